"""Build the wheel and the sdist, and try both with the oldest and the newest torch, beside nothing else.

    python .ci/release_check.py            # the oldest of pyproject.toml, and the newest that pip finds
    python .ci/release_check.py 2.13.0     # or these

A version of torch has an environment of its own in build/release-check, with torch and what torch needs.
It is kept, as torch is gigabytes; probstep is put into it, tried and taken out again. Tried are the
quickstart, the doctests of all that needs torch alone, and that all tell the same version.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "build" / "release-check"
DOCTESTS = """
import doctest, importlib, json, pkgutil, sys, warnings
from importlib.metadata import version
import torch, probstep

outside = ("probstep.bench", "probstep.drawing.paint", *(f"probstep.integrations.{n}" for n in
    ("lightning", "transformers", "accelerate", "tensorboard")))  # they need more than torch
warnings.simplefilter("ignore", DeprecationWarning)  # of the old names
found = [m.name for m in pkgutil.walk_packages(probstep.__path__, "probstep.", onerror=print)]
modules = ["probstep", *(name for name in found if not name.startswith(outside))]
results = [doctest.testmod(importlib.import_module(m), optionflags=doctest.ELLIPSIS) for m in modules]
print(json.dumps({
    "torch": torch.__version__, "python": sys.version.split()[0], "probstep": probstep.__version__,
    "metadata": version("probstep"), "where": probstep.__file__,
    "doctests": sum(r.attempted for r in results), "failed": sum(r.failed for r in results),
}))
"""


def main(versions: Sequence[str]) -> None:
    """Build, try, and say what was tried."""
    artefacts = build(PLACE / "dist")
    tried = []
    for version in versions or [oldest_torch(), newest_torch()]:
        python = environment_with(version)
        for artefact in artefacts:
            tried.append({"artefact": artefact.name, **try_out(python, artefact)})
            print(json.dumps(tried[-1]), flush=True)
    print(f"{len(tried)} passed, 0 failed")


def build(folder: Path) -> list[Path]:
    """Make the wheel and the sdist; they hold what they should, and the same version."""
    for old in folder.glob("probstep-*"):
        old.unlink()
    tools = empty_environment(PLACE / "tools")
    run(tools, "-m", "pip", "install", "--quiet", "build")
    run(tools, "-m", "build", "--outdir", str(folder), str(ROOT))
    (wheel,), (sdist,) = folder.glob("probstep-*.whl"), folder.glob("probstep-*.tar.gz")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert "probstep/py.typed" in packed, "the wheel lacks py.typed"
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in packed)
    with tarfile.open(sdist) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml", "examples/01_quickstart.py"} <= names
    return [wheel, sdist]


def try_out(python: Path, artefact: Path) -> dict[str, str | int]:
    """Install the artefact, try it from an empty folder, and take it out again."""
    expected = re.match(r"probstep-(.+?)(-py3|\.tar)", artefact.name)[1]
    run(python, "-m", "pip", "install", "--quiet", str(artefact))
    try:
        run(python, str(ROOT / "examples" / "01_quickstart.py"))
        facts = json.loads(run(python, "-c", DOCTESTS).splitlines()[-1])
    finally:
        run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "probstep")
    assert not facts.pop("where").startswith(str(ROOT / "src")), "that was not the artefact"
    assert facts["failed"] == 0, facts
    assert facts["probstep"] == facts["metadata"] == expected, facts
    return facts


def environment_with(version: str) -> Path:
    """Return the Python of an environment that has this version of torch."""
    folder = PLACE / f"torch-{version}"
    python = empty_environment(folder)
    if not (folder / "done").exists():
        run(python, "-m", "pip", "install", "--quiet", "--no-cache-dir", f"torch=={version}")
        (folder / "done").touch()
    return python


def empty_environment(folder: Path) -> Path:
    """Return the Python of an environment, made if need be."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    return python


def oldest_torch() -> str:
    """Return the lower end of the range in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(r'"torch>=([\d.]+)"', text)[1]


def newest_torch() -> str:
    """Return the newest version that pip finds."""
    said = run(Path(sys.executable), "-m", "pip", "index", "versions", "torch")
    return re.match(r"torch \(([\d.]+)", said)[1]


def run(python: Path, *words: str) -> str:
    """Run Python in an empty folder and without this one's path; what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), *words]
        done = subprocess.run(command, cwd=folder, env=clean(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)[:200]} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def clean() -> dict[str, str]:
    """Return the environment's variables without those that let Python look elsewhere."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}


if __name__ == "__main__":
    main(sys.argv[1:])

"""A notebook runs top to bottom in a process of its own, and is kept without what it printed."""

import json
import subprocess
import sys

import pytest

from .pages import ROOT

NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_top_to_bottom(path, tmp_path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "docs" / "notebooks.py"), str(path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# ")
    assert "```text\n1797 images" in done.stdout
    assert "data:image/svg+xml" in done.stdout


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path) -> None:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs"), cell["source"]
        assert cell.get("execution_count") is None

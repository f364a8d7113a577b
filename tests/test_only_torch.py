"""With torch and nothing else installed probstep imports, quickly, and the quickstart runs."""

import functools
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRIES = 3
HIDE_OTHERS = """
import sys
allowed = set(sys.stdlib_module_names) | set({allowed!r})
class Only:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in allowed or top.startswith("_sysconfigdata"):
            return self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Only(finder) for finder in sys.meta_path]
"""
TIME_IMPORTS = """
import json, sys, time
start = time.perf_counter()
import torch
torch_done = time.perf_counter()
before = set(sys.modules)
middle = time.perf_counter()
import probstep
end = time.perf_counter()
more = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
print(json.dumps([torch_done - start, end - middle, more]))
"""
RUN = """
import runpy
runpy.run_path({path!r}, run_name="__main__")
"""


def requirements_of(name, seen=frozenset()):
    """The distributions that come with one: its requirements, and theirs."""
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return seen
    seen |= {name.lower()}
    for line in lines:
        required = re.match(r"[\w.-]+", line).group().lower().replace("_", "-")
        if "extra ==" not in line and required not in seen:
            seen = requirements_of(required, seen)
    return seen


@functools.cache
def modules_of_torch():
    installed = requirements_of("torch")
    return sorted(
        module
        for module, names in importlib.metadata.packages_distributions().items()
        if any(name.lower().replace("_", "-") in installed for name in names)
    )


def run(code):
    """Run code in a process where only torch, what comes with it, and probstep can be imported."""
    hide = HIDE_OTHERS.format(allowed=[*modules_of_torch(), "probstep"])
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", hide + code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_others_are_hidden_indeed():
    assert {"torch", "typing_extensions"} <= set(modules_of_torch())
    assert not {"numpy", "sklearn", "lightning", "pytest"} & set(modules_of_torch())
    caught = "try:\n    import pytest\nexcept ModuleNotFoundError:\n    print('hidden')"
    assert run(caught).strip() == "hidden"


def test_importing_it_imports_nothing_more_and_takes_at_most_a_fifth_of_torchs_time():
    tries = [json.loads(run(TIME_IMPORTS)) for _ in range(TRIES)]
    for *_, more in tries:
        assert set(more) - sys.stdlib_module_names <= {"probstep", "torch"}
    of_torch, of_probstep = (min(times) for times in zip(*(t[:2] for t in tries), strict=True))
    assert of_probstep <= 0.2 * of_torch


def test_the_quickstart_runs():
    last = run(RUN.format(path=str(ROOT / "examples" / "01_quickstart.py"))).splitlines()[-1]
    assert last.startswith("epoch 10")

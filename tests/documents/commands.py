"""The commands that the pages print: run in this process, or listed with the reason why not."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path

from typer.testing import CliRunner

from probstep.bench.cli import app

from .pages import ROOT, Block

PLAN = """
problems = ["quadratic_100"]
methods = ["sgd", "probstep_sgd"]
rates = [0.01, 0.1]
epochs = 1
subset = 64
"""
NOT_RUN = {
    r"make ": "it would make an environment and run these tests; that it exists is tested",
    r"pip install ": "it installs packages; that the extra exists is tested",
    r"python -m probstep\.bench\.data ": "it downloads; that the data sets exist is tested",
    r"probstep run demo ": "it takes a minute; the plan is read instead",
    r"probstep run paper(-small|-beside)? ": "it needs data sets and hours; the plan is read instead",
    r"probstep export runs/paper-(small|beside) ": "it needs those runs; that it is a command is tested",
    r"python benchmarks/": "it takes minutes of a machine of its own; that it exists is tested",
    r"probstep live ": "it serves until it is stopped; tests/bench/live does that",
    r"probstep --install-completion": "it changes the start-up files of the user's shell",
}


def commands_of(block: Block) -> list[str]:
    """Return the commands of a block, without comments and the `&` at the end.

    In a block of the language `console` they follow `$ `; one of the language `bash` has nothing else.
    """
    prompt = "$ " if block.language == "console" else ""
    lines = [line for line in block.text.splitlines() if line and line.startswith(prompt)]
    typed = [line.removeprefix(prompt) for line in lines]
    return [re.sub(r"\s+#\s.*|\s+&$", "", line).strip() for line in typed]


def is_run(command: str) -> bool:
    """Say whether a command is run here."""
    is_possible = "--parquet" not in command or find_spec("pyarrow") is not None  # of an extra
    return is_possible and not any(re.match(pattern, command) for pattern in NOT_RUN)


def words_of(command: str) -> list[str]:
    """Return the arguments of a command `probstep`; files of the repository are found anywhere."""
    program, *words = shlex.split(command)
    assert program == "probstep", f"{command!r} is neither run nor in NOT_RUN"
    ours = ("benchmarks/", "examples/")
    return [str(ROOT / word) if word.startswith(ours) else word for word in words]


def run(command: str) -> None:
    """Run a command `probstep` in the present directory."""
    result = CliRunner().invoke(app, words_of(command))
    assert result.exit_code == 0, f"{command}: {result.output}"


def make_results(out: Path) -> None:
    """Make an output directory."""
    Path("my.toml").write_text(PLAN, encoding="utf-8")
    run(f"probstep run my.toml --out {out}")

"""The commands and plans that the documents print work, in the order of their page."""

import re
import tomllib
from pathlib import Path

import pytest
import typer

from probstep.bench.cli import app
from probstep.bench.data.catalog import CATALOG
from probstep.bench.plans import list_runs, parse_plan, read_plan

from .commands import NOT_RUN, PLAN, commands_of, is_run, make_results, run, words_of
from .pages import PAGES, ROOT, all_blocks, blocks_of, read

BLOCKS = [*all_blocks("console"), *all_blocks("bash")]
COMMANDS = sorted({command for block in BLOCKS for command in commands_of(block)})
WITH_COMMANDS = sorted({block.page for block in BLOCKS if any(map(is_run, commands_of(block)))})


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_the_commands_of_a_page_run_in_their_order(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.toml").write_text(PLAN, encoding="utf-8")
    if page == "docs/report.md":  # its first command reads what the page on the bench has made
        make_results(Path("results"))
    for block in blocks_of(page):
        if block.language in ("console", "bash"):
            for command in filter(is_run, commands_of(block)):
                run(command)
        elif block.language == "text":
            files_are_there(block.text, tmp_path)


def files_are_there(tree: str, folder: Path) -> None:
    """Assert that a directory holds what a page draws of it; an ended run has no checkpoint."""
    top, *lines = tree.splitlines()
    found = [path for path in folder.rglob(top.rstrip("/")) if path.is_dir()]
    assert found, f"no {top}"
    for line in lines:
        pattern = re.sub(r"<\w+>", "*", line.split()[0])
        assert pattern.startswith("checkpoints/") or list(found[0].glob(pattern)), line


@pytest.mark.parametrize("command", [c for c in COMMANDS if not is_run(c)])
def test_a_command_that_is_not_run_is_one_that_exists(command: str) -> None:
    program, *words = command.split()
    if program == "make":
        assert f"\n{words[0]}:" in read("Makefile")
    elif program == "pip":
        extras = re.findall(r"(?:probstep|\.)\[(\w+)\]", command)
        assert (
            set(extras)
            <= tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"].keys()
        )
    elif words[0].startswith(("benchmarks/", "examples/")):
        assert (ROOT / words[0]).exists()
    elif program == "python":
        assert set(words[2 : words.index("--data-dir")]) <= CATALOG.keys()
    elif not words[0].startswith("--"):
        name, *arguments = words_of(command)
        commands = typer.main.get_command(app).commands
        with commands[name].make_context(name, arguments) as context:
            if name == "run":
                assert list_runs(read_plan(context.params["plan"]))


def test_what_is_not_run_is_printed_somewhere() -> None:
    for pattern in NOT_RUN:
        assert any(re.match(pattern, command) for command in COMMANDS), pattern


def test_every_extra_that_a_page_names_exists() -> None:
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    named = {extra for page in PAGES for extra in re.findall(r"probstep\[(\w+)\]", read(page))}
    assert named <= extras.keys()


def test_the_plan_on_the_page_has_as_many_runs_as_the_page_says() -> None:
    (block,) = all_blocks("toml")
    assert block.page == "docs/bench.md"
    assert len(list_runs(parse_plan(block.text))) == 48 + 48
    assert "2 x 2 x 4 x 3 = 48" in read(block.page)


def test_every_example_that_a_page_names_exists() -> None:
    for page in PAGES:
        for name in re.findall(r"`(?:examples/)?(\d\d_\w+\.py|own_problem\.\w+)`", read(page)):
            assert (ROOT / "examples" / name).exists(), f"{page}: {name}"

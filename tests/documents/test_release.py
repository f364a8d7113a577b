"""What is released tells one version, and nothing that is not so."""

import re
import tomllib

import probstep

from .pages import ROOT, read

PROJECT = tomllib.loads(read("pyproject.toml"))["project"]


def test_the_version_stands_in_one_place() -> None:
    assert "version" in PROJECT["dynamic"]
    text = read("src/probstep/__init__.py")
    assert re.findall(r'^__version__ = "(.+?)"', text, flags=re.MULTILINE) == [probstep.__version__]


def test_the_changelog_has_the_version_under_what_is_to_come() -> None:
    headings = re.findall(r"^## (.+)$", read("CHANGELOG.md"), flags=re.MULTILINE)
    assert headings[:2] == ["Unreleased", probstep.__version__]


def test_a_version_of_the_changelog_has_each_heading_once() -> None:
    for section in read("CHANGELOG.md").split("\n## ")[1:]:
        headings = re.findall(r"^### (.+)$", section, flags=re.MULTILINE)
        assert len(headings) == len(set(headings)), section.splitlines()[0]


def test_the_pages_ask_for_the_versions_that_the_package_asks_for() -> None:
    (torch,) = [d for d in PROJECT["dependencies"] if d.startswith("torch")]
    oldest = torch.partition(">=")[2]
    python = PROJECT["requires-python"].removeprefix(">=")
    for page in ("README.md", "docs/index.md"):
        assert f"with Python {python} or newer and torch {oldest} or newer" in read(page)


def test_the_release_check_is_no_part_of_the_tests() -> None:
    assert "release" not in read("Makefile").split("test: ")[1].split("\n\n")[0]
    assert "release" not in read(".ci/run")
    assert (ROOT / ".ci" / "release_check.py").exists()

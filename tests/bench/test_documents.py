"""The page on methods names all settings."""

import inspect
import re
from pathlib import Path

import pytest

from probstep.bench.methods.adapted import OURS, ROBUST
from probstep.bench.methods.rivals import RIVALS

DOCS = Path(__file__).parents[2] / "docs"
PLACED_ELSEWHERE = {"params", "lr", "steps_per_epoch"}


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def settings_of(rows: str) -> set[str]:
    """The settings in the line of the table that begins with these rows."""
    line = next(line for line in read("methods.md").splitlines() if line.startswith(f"| {rows} |"))
    return set(re.findall(r"`(\w+)`", line.split("|")[2]))


OF_RIVALS: dict[type, list[str]] = {}
for row in RIVALS:
    if row.build.__module__.startswith("probstep."):
        OF_RIVALS.setdefault(row.build, []).append(row.name)


@pytest.mark.parametrize("build", OF_RIVALS, ids=lambda build: build.__name__)
def test_the_page_names_the_settings_of_a_rival_and_no_others(build: type) -> None:
    rows = " ".join(f"`{name}`" for name in OF_RIVALS[build])
    assert settings_of(rows) == inspect.signature(build).parameters.keys() - PLACED_ELSEWHERE


def test_the_page_names_the_settings_of_the_adapted_rows_and_no_others() -> None:
    rule, wrapper = "`probstep_*`: the rule, `PaperRule`", "`probstep_*`: the wrapper"
    assert settings_of(rule) | settings_of(wrapper) == OURS
    assert settings_of("`robust_*`: the rule, `RobustRule`") == ROBUST

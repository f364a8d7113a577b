"""The folder of the bench and the page on the architecture say the same."""

import re
from pathlib import Path

import probstep.bench

HOUSE = Path(probstep.bench.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


def rooms_of_the_folder() -> dict[str, set[str]]:
    """The modules of each room; a folder of models or backends belongs to its room."""
    rooms: dict[str, set[str]] = {}
    for path in HOUSE.rglob("*.py"):
        place = path.relative_to(HOUSE)
        if not place.stem.startswith("__"):
            depth = 2 if place.parts[0] == "report" else 1
            room = "/".join(place.parts[:-1][:depth]) or "top"
            rooms.setdefault(room, set()).add(place.stem)
    return rooms


def rooms_of_the_page() -> dict[str, set[str]]:
    """The modules that the page names in the row of each room."""
    table = PAGE.read_text(encoding="utf-8").split("| room of `bench/` |")[1].split("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines()[2:]]
    commands = {"show"}  # a command and no module
    return {
        room.strip().strip("`").rstrip("/"): set(re.findall(r"`(\w+)`", said)) - commands
        for _, room, said, _ in rows
    }


def test_the_page_names_every_module_of_the_bench_in_its_room_and_no_other() -> None:
    assert rooms_of_the_page() == rooms_of_the_folder()

"""The library's folders and the page on the architecture say the same."""

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

import probstep

from .pages import Block, blocks_of, read

HOUSE = Path(probstep.__file__).parent
PAGE = "docs/architecture.md"
PICTURES = [block for block in blocks_of(PAGE) if block.text.lstrip().startswith("1 ")]


def rooms_of_the_folder() -> dict[str, set[str]]:
    """The modules of each room; a folder inside a room belongs to it."""
    rooms: dict[str, set[str]] = {}
    for path in HOUSE.rglob("*.py"):
        place = path.relative_to(HOUSE)
        if not place.stem.startswith("__") and place.parts[0] != "bench":
            room = place.parts[0] if len(place.parts) > 1 else "top"
            rooms.setdefault(room, set()).add(place.stem)
    return rooms


def rooms_of_the_page() -> dict[str, set[str]]:
    """The modules that the page names in the row of each room."""
    table = read(PAGE).split("| room of the library |")[1].split("\n\n")[0]
    rows = [line.split("|") for line in table.splitlines()[2:]]
    return {
        room.strip().strip("`").rstrip("/"): set(re.findall(r"`(\w+)`", said))
        for _, room, said, _ in rows
    }


def test_the_page_names_every_module_of_the_library_in_its_room_and_no_other() -> None:
    assert rooms_of_the_page() == rooms_of_the_folder()


def hops_of(picture: Block) -> list[str]:
    """What each line of a picture calls."""
    return [line.split()[1] for line in picture.text.splitlines()]


def test_a_probed_step_has_at_most_ten_hops_and_another_five() -> None:
    probed, unprobed = map(hops_of, PICTURES)
    assert len(probed) <= 10
    assert len(unprobed) <= 5


@pytest.mark.parametrize("hop", sorted({hop for picture in PICTURES for hop in hops_of(picture)}))
def test_every_hop_is_a_function(hop: str) -> None:
    *module, name = re.split(r"\.(?=[A-Z]|\w+$)", hop, maxsplit=1)
    found = importlib.import_module(".".join(("probstep", *module)))
    assert callable(reduce(getattr, name.split("."), found))


def test_every_layer_of_the_picture_is_one_that_is_checked() -> None:
    picture = next(block for block in blocks_of(PAGE) if block.opening.startswith("bench "))
    shown = [re.split(r"\s{2,}", line)[0] for line in picture.text.splitlines()]
    contract = read("pyproject.toml").split("The library is layered")[1].split("]\n\n")[0]
    layers = re.findall(r'^  "(.+)",$', contract, flags=re.MULTILINE)
    assert [set(line.split(" | ")) for line in shown] == [
        set(layer.split(" | ")) for layer in layers
    ]

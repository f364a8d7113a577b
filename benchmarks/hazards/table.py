"""All rows, and how to find some of them."""

from collections.abc import Sequence

from .batches import BATCHES
from .changing import CHANGING
from .flat import FLAT
from .hazard import Hazard
from .models import MODELS
from .objectives import OBJECTIVES
from .practice import PRACTICE

HAZARDS: tuple[Hazard, ...] = (*CHANGING, *BATCHES, *FLAT, *OBJECTIVES, *MODELS, *PRACTICE)


def choose(rows: Sequence[Hazard], half: str = "all", only: Sequence[str] = ()) -> list[Hazard]:
    """Return the rows of a half, or those with the given names.

    Raises:
        ValueError: A name is unknown.
    """
    unknown = set(only) - {row.name for row in rows}
    if unknown:
        names = ", ".join(row.name for row in rows)
        raise ValueError(f"No hazard is called {', '.join(sorted(unknown))}. There are: {names}.")
    if only:
        return [row for row in rows if row.name in only]
    return [row for row in rows if half in ("all", row.half)]

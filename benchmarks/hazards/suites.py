"""The suites by name: the hazards, and the ordinary trainings, which need real data."""

from collections.abc import Sequence
from pathlib import Path

from .hazard import Hazard
from .ordinary import ordinary
from .table import HAZARDS

SUITES = ("hazards", "ordinary")


def rows_of(suite: str, data: Path | None = None) -> Sequence[Hazard]:
    """Return the rows of a suite.

    Args:
        suite: Its name.
        data: Where MNIST, Fashion-MNIST, CIFAR-10 and text/ are; only the ordinary trainings need it.

    Raises:
        ValueError: The data are needed and not given.
    """
    if suite == "hazards":
        return HAZARDS
    if data is None:
        raise ValueError("The ordinary trainings need real data: give their directory with --data.")
    return ordinary(data)

"""What RobustRule remembers, and how a checkpoint of version 0.1.0 spelled it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...plain import refuse_outside, restored
from .alarm import Alarm
from .belief import Belief
from .bound import Bound
from .search import Search


@dataclass(slots=True)
class RobustState:
    """What RobustRule remembers.

    Args:
        t: The step that comes, from 1 on.
        forwards: The probes made, each a forward pass.
        losses: How many losses the averages hold: those since the loss has its present level.
        unseen: The probes in a row that could see nothing.
        straight: The probes in a row that saw a slope and no bend.
        search: How far the search of the first batch has come.
        belief: What probes said.
        bound: What the losses say about the gain to come.
        alarm: What the losses say about surprises.
    """

    t: int = 1
    forwards: int = 0
    losses: int = 0
    unseen: int = 0
    straight: int = 0
    search: Search = field(default_factory=Search)
    belief: Belief = field(default_factory=Belief)
    bound: Bound = field(default_factory=Bound)
    alarm: Alarm = field(default_factory=Alarm)

    def __post_init__(self) -> None:
        refuse_outside(
            self,
            t=(1, math.inf),
            forwards=(0, math.inf),
            losses=(0, math.inf),
            unseen=(0, math.inf),
            straight=(0, math.inf),
        )


# The keys of 0.1.0, in one flat dictionary, and where their values are now.
FLAT = {
    "t": ("t",),
    "forwards": ("forwards",),
    "found": ("search", "is_done"),
    "too_long": ("search", "too_long"),
    "variance": ("belief", "variance"),
    "probes": ("belief", "probes"),
    "cosine": ("belief", "cosine"),
    "curvature": ("belief", "curvature"),
    "slope": ("belief", "slope"),
    "steepness": ("belief", "steepness"),
    "relative_slope": ("belief", "relative_slope"),
    "log_ratio": ("belief", "log_gradient_per_length"),
    "recent": ("bound", "recent"),
    "older": ("bound", "older"),
    "spread": ("bound", "spread"),
    "peak": ("bound", "peak"),
    "mean": ("alarm", "mean"),
    "mean_spread": ("alarm", "spread"),
    "ceiling": ("alarm", "ceiling"),
    "surprised_at": ("alarm", "confirmed_at"),
}
# 0.1.0 also watched the norm of the gradient, and lowered the scale at surprises.
DROPPED = {"log_gradient", "lent"}


def restore(plain: Mapping[str, Any]) -> RobustState:
    """Return the state that a checkpoint carries; raise ValueError if it is another rule's."""
    if plain.keys() == FLAT.keys() | DROPPED:
        plain = _nested(plain)
    return restored(RobustState, plain)


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {"search": {}, "belief": {}, "bound": {}, "alarm": {}}
    for key, (*parts, name) in FLAT.items():
        place = nested[parts[0]] if parts else nested
        place[name] = flat[key]
    t = flat["t"]  # what is no count is refused with the others
    nested |= {"losses": t - 1 if isinstance(t, int) else t, "unseen": 0, "straight": 0}
    nested["alarm"] |= {"surprises": 0.0, "is_asking": False, "suspect": 0.0}
    nested["search"] |= {"found": 0.0, "has_failed": False}
    return nested

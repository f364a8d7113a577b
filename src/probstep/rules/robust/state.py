"""What RobustRule remembers, and how checkpoints of earlier versions spelled it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...plain import FINITE, as_plain, refuse_outside, restored
from .alarm import TRUST, Alarm
from .belief import Belief, renewed
from .bound import Bound
from .numbers import DOUBLE
from .search import Search
from .setback import Setback

SMOOTH_PROBES = int(DOUBLE)  # downhill in a row that are not bending: with SGD, what a rise needs


@dataclass(slots=True)
class RobustState:
    """What RobustRule remembers.

    Args:
        t: The step that comes, from 1 on.
        forwards: The probes made, each a forward pass.
        losses: How many losses the averages hold: those since the loss has its present level.
        unseen: The probes in a row that could see nothing.
        vain: The searches in a row after which probes could see nothing again: each doubles the wait.
        straight: The probes in a row that saw a slope and no bend.
        calm: The probes in a row that saw a slope and hardly a bend.
        bent: The probes in a row whose step went too far.
        smooth: The probes downhill in a row, up to two, that were not bending nor shortened.
        rested: The time since a probe last raised the scale, in units of 1/(1-beta) steps.
        pause: What it must be before the next probe, unless a surprise asks for one.
        held: The losses that surely rose, and would have lowered the scale had the probes not been calm.
        highest: The highest scale that a search has found and the next probe has not lowered.
        seen_scale: The scale of the last step that a probe could see and did not shorten; else 0.
        sound_scale: The scale before losses stopped being finite; 0 while they are finite.
        search: How far the search of the first batch has come.
        belief: What probes said.
        bound: What the losses say about the gain to come.
        alarm: What the losses say about surprises.
        setback: What shortened steps took from the scale.
    """

    t: int = 1
    forwards: int = 0
    losses: int = 0
    unseen: int = 0
    vain: int = 0
    straight: int = 0
    calm: int = 0
    bent: int = 0
    smooth: int = SMOOTH_PROBES
    held: int = 0
    rested: float = 0.0
    pause: float = 0.0
    highest: float = 0.0
    seen_scale: float = 0.0
    sound_scale: float = 0.0
    search: Search = field(default_factory=Search)
    belief: Belief = field(default_factory=Belief)
    bound: Bound = field(default_factory=Bound)
    alarm: Alarm = field(default_factory=Alarm)
    setback: Setback = field(default_factory=Setback)

    def __post_init__(self) -> None:
        refuse_outside(
            self,
            t=(1, math.inf),
            forwards=(0, math.inf),
            losses=(0, math.inf),
            unseen=(0, math.inf),
            vain=(0, math.inf),
            straight=(0, math.inf),
            calm=(0, math.inf),
            bent=(0, math.inf),
            smooth=(0, SMOOTH_PROBES),
            held=(0, math.inf),
            rested=(0.0, math.inf),
            pause=(0.0, math.inf),
            highest=(0.0, math.inf),
            seen_scale=(0.0, FINITE[1]),
            sound_scale=(0.0, FINITE[1]),
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
    "peak": ("bound", "peak"),
}
# What it averaged otherwise than today, or not at all.
DROPPED = {
    *("recent", "older", "spread", "mean", "mean_spread", "ceiling", "surprised_at"),
    *("log_gradient", "lent"),
}

# What earlier versions did not know yet.
NOT_KNOWN_YET = {
    "search": {"rough": 0.0, "has_looked": False, "is_untried": False},
    "bound": {"lowered_scale": 0.0, "lowered_multiplier": 1.0},
    "setback": {"highest": 0.0},
    "alarm": {
        "last": math.inf,
        "rises": 0,
        "low": 0.0,
        "is_exploding": False,
        "trust": TRUST,
        "held": 0,
        "held_loss": 0.0,
        "lenience": 1.0,
    },
}


def restore(plain: Mapping[str, Any]) -> RobustState:
    """Return the state that a checkpoint carries; raise ValueError if it is another rule's."""
    if plain.keys() == FLAT.keys() | DROPPED:
        plain = _nested(plain)
    told = plain.get("belief")
    if isinstance(told, Mapping) and "curvature" in told:
        plain = _with_new_averages(plain)
    return restored(RobustState, completed(plain))


def completed(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return what 0.3.0 to 0.13.0 saved, in the form of today."""
    unknown = {
        "sound_scale": 0.0,
        "rested": 1.0,
        "pause": 0.0,
        "calm": 0,
        "vain": 0,
        "seen_scale": 0.0,
        "highest": _found(plain),
    }
    completed = unknown | {"smooth": SMOOTH_PROBES, "setback": as_plain(Setback())} | dict(plain)
    completed.pop("flat", None)  # what only 0.9.0 counted
    for part, numbers in NOT_KNOWN_YET.items():
        told = plain.get(part)
        if isinstance(told, Mapping):
            completed[part] = numbers | dict(told)
    return completed


def _found(plain: Mapping[str, Any]) -> float:
    """Return what the last search of an earlier version had found."""
    search = plain.get("search")
    found = search.get("found") if isinstance(search, Mapping) else 0.0
    return found if isinstance(found, int | float) else 0.0


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return what 0.1.0 saved in the form of 0.2.0."""
    nested: dict[str, Any] = {"search": {}, "belief": {}, "bound": {}}
    for key, (*parts, name) in FLAT.items():
        place = nested[parts[0]] if parts else nested
        place[name] = flat[key]
    nested["search"] |= {"found": 0.0, "has_failed": False}
    return nested | {"unseen": 0, "straight": 0}


def _with_new_averages(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return what 0.2.0 saved in today's form: what probes said stays, the losses begin anew."""
    bound = plain.get("bound")
    peak = bound["peak"] if isinstance(bound, Mapping) and "peak" in bound else 0.0
    fresh = as_plain(RobustState())
    return {
        **plain,
        "belief": renewed(plain["belief"]),
        "bound": fresh["bound"] | {"peak": peak},
        "alarm": fresh["alarm"],
        "losses": 0,
        "bent": 0,
        "held": 0,
    }

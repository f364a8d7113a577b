"""What ProbStep remembers from step to step, and what of it a checkpoint carries.

`Memory` is typed and changed in place. A checkpoint gets a plain copy of it: numbers, strings and
dictionaries whose keys never change, as distributed checkpoints need.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .estimators import LowerBound
from .plain import as_plain, restored
from .rules import Rule

WORDS = ("up", "down", "keep", "search", "reject", "uninformative", "unpaired", "skipped")

UNKNOWN = -1  # stands in a checkpoint for what has not been examined yet


@dataclass(frozen=True)
class Probe:
    """What the last probe saw and what was decided.

    Args:
        loss: f, before the step; coupled weight decay counts as part of the loss.
        slope: phi, the slope along the optimizer's own step.
        loss_after: f+, of the same batch after the step.
        ratio: Observed over predicted decrease; NaN where the probe says nothing.
        scale: The scale after the decision.
        decision: "up", "down" or "keep"; "search" (RobustRule's first batch); "uninformative" (the
            predicted decrease lies under the rounding of the loss), "unpaired" (the probe saw other
            random numbers than the first pass) or "skipped" (the gradients were not finite, so no step
            was taken).
    """

    loss: float
    slope: float
    loss_after: float
    ratio: float
    scale: float
    decision: str

    @classmethod
    def skipped(cls, loss: float, scale: float) -> "Probe":
        """Return what is known of a step that was not taken."""
        return cls(loss, math.nan, math.nan, math.nan, scale, "skipped")


NO_PROBE = Probe(math.nan, math.nan, math.nan, math.nan, 1.0, "")


@dataclass
class Memory:
    """What ProbStep remembers.

    Args:
        rule: The rule's state.
        bound: What the lower bound remembers.
        scale: The adapted factor of the rates.
        steps: Steps taken.
        forwards: Forward passes beyond one per step.
        decisions: How often each word was decided.
        last: The last probe; None before the first.
        pending: The loss of the last step, which the rule has not been told yet.
        first_rates: The groups' rates before anybody changed them, as far as is known.
        is_frozen: The scale stays as it is.
        keeps_weights: Whether the base's state depends on the rate of its steps; None until examined.
    """

    rule: Any
    bound: dict[str, Any]
    scale: float = 1.0
    steps: int = 0
    forwards: int = 0
    decisions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(WORDS, 0))
    last: Probe | None = None
    pending: float | None = None
    first_rates: list[float] = field(default_factory=list)
    is_frozen: bool = False
    keeps_weights: bool | None = None

    @classmethod
    def new(cls, rule: Rule, bound: LowerBound | None) -> "Memory":
        """Return a memory that has seen nothing."""
        return cls(rule=rule.init(), bound={} if bound is None else bound.init())

    @classmethod
    def restored(
        cls, plain: object, rule: Rule, bound: LowerBound | None
    ) -> tuple["Memory", list[str]]:
        """Return the memory that a checkpoint carries; raise nothing, whatever it carries.

        A part that is missing, damaged, or of another rule or bound begins anew.

        Returns:
            The memory, and for every part that begins anew a sentence that says why.
        """
        memory = cls.new(rule, bound)
        if not isinstance(plain, Mapping):
            return memory, [f"It must be a dictionary, not {_brief(plain)}."]
        readers = {**READERS, "bound": _like(memory.bound), "rule": rule.restore}
        faults = [f"'{name}' is unknown." for name in sorted(plain.keys() - readers.keys())]
        for name, read in readers.items():
            if name in plain:
                try:
                    setattr(memory, name, read(plain[name]))
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    faults.append(f"'{name}': {error}")
            elif name not in NOT_IN_0_1_0:
                faults.append(f"'{name}' is missing.")
        if memory.scale != plain.get("scale"):
            memory.rule = rule.init()  # what it has found is worth nothing without the scale
        return memory, faults

    def plain(self) -> dict[str, Any]:
        """Return a copy of plain data under fixed keys."""
        return {
            "scale": self.scale,
            "steps": self.steps,
            "forwards": self.forwards,
            "decisions": dict(self.decisions),
            "last": asdict(self.last or NO_PROBE),
            "bound": copy.deepcopy(self.bound),
            "rule": as_plain(self.rule),
            "pending": {
                "has": int(self.pending is not None),
                "loss": math.nan if self.pending is None else self.pending,
            },
            "first_rates": list(self.first_rates),
            "is_frozen": int(self.is_frozen),
            "keeps_weights": UNKNOWN if self.keeps_weights is None else int(self.keeps_weights),
        }

    def record(self, probe: Probe, rejected: int) -> None:
        """Take over what was decided."""
        self.scale, self.last = probe.scale, probe
        self.decisions[probe.decision] += 1
        self.decisions["reject"] += rejected


class Published(dict[str, Any]):
    """The plain copy of a memory that lies in every group; it is printed with the group, hence short.

    >>> {"lr": 0.1, "probstep": Published({"scale": 1.5, "steps": 0})}
    {'lr': 0.1, 'probstep': <scale 1.5>}
    """

    def __repr__(self) -> str:
        return f"<scale {self['scale']:.4g}>"


def _scale(value: Any) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"must be positive and finite, not {_brief(value)}.")
    return float(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"must be a whole number of at least 0, not {_brief(value)}.")
    return value


def _decisions(plain: Mapping[str, Any]) -> dict[str, int]:
    if not plain.keys() <= set(WORDS):
        raise ValueError(f"unknown words {sorted(plain.keys() - set(WORDS))}.")
    return dict.fromkeys(WORDS, 0) | {word: _count(count) for word, count in plain.items()}


def _last(plain: Mapping[str, Any]) -> Probe | None:
    last = restored(Probe, plain)
    return last if last.decision else None


def _pending(plain: Mapping[str, Any]) -> float | None:
    return float(plain["loss"]) if plain["has"] else None


def _rates(plain: list[Any]) -> list[float]:
    rates = [float(rate) for rate in plain]
    if not all(0 <= rate < math.inf for rate in rates):
        raise ValueError(f"must be rates, not {_brief(plain)}.")
    return rates


def _claim(value: Any) -> bool:
    if value not in (0, 1):
        raise ValueError(f"must be 0 or 1, not {_brief(value)}.")
    return bool(value)


def _examined(value: Any) -> bool | None:
    return None if value == UNKNOWN else _claim(value)


def _like(bound: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return a function that reads what this kind of bound remembers."""

    def read(plain: Mapping[str, Any]) -> dict[str, Any]:
        if plain.keys() != bound.keys():
            raise ValueError(f"must hold {sorted(bound)}, not {sorted(plain)}.")
        if any(value != value for value in plain.values()):
            raise ValueError(f"must hold no NaN: {_brief(plain)}.")
        return dict(plain)

    return read


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) < 80 else f"{text[:76]} ..."


# How the parts of a checkpoint are read; each raises where it is not what it should be.
READERS: dict[str, Callable[[Any], Any]] = {
    "scale": _scale,
    "steps": _count,
    "forwards": _count,
    "decisions": _decisions,
    "last": _last,
    "pending": _pending,
    "first_rates": _rates,
    "is_frozen": _claim,
    "keeps_weights": _examined,
}
NOT_IN_0_1_0 = {"first_rates", "is_frozen", "keeps_weights", "pending"}

"""What ProbStep remembers from step to step, and what of it a checkpoint carries.

`Memory` is typed and changed in place. A checkpoint gets a plain copy of it: numbers, strings, one
tensor and dictionaries whose keys never change, as distributed checkpoints need.
"""

import copy
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .estimators import LowerBound
from .history import Ledger
from .plain import as_plain, copied, restored, twin_of
from .ratios import Ratios
from .rules import Observation, Rule

FAINT = 0.01  # a schedule that has lowered the rate so far may well make invisible steps
FLAT = 1e-3  # of the steepest slope
UNSEEN = 1e-5  # of the loss: a promised change that a probe in single precision cannot judge
SAME_NORM = 2e-5  # relative: how exactly torch's clipping reaches its norm
OTHER_LOSS = 1e-3  # relative: a loss of another batch, or of another place
STEEPER = 1.02  # times the promised decrease

WORDS = (
    "up",
    "down",
    "keep",
    "search",
    "reject",
    "uninformative",
    "unpaired",
    "contradicted",
    "skipped",
    "watched",
)

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
            random numbers than the first pass), "contradicted" (it saw another function than the first
            pass), "skipped" (loss or gradients were not finite, so no step was taken) or "watched" (the
            step is the optimizer's own, whatever was seen).
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

    @classmethod
    def empty(cls, scale: float) -> "Probe":
        """Return what is known of a step on a batch without loss and gradient, which was not probed."""
        return cls(0.0, 0.0, 0.0, math.nan, scale, "uninformative")


@dataclass(slots=True)
class Proof:
    """What is known of the function that probes see.

    Args:
        is_same: Evaluated again where the step began, the loss was the same number.
        is_searching: The last probed step searched.
        is_steep: The slope of the loss was compared with the gradients.
        slope_factor: The gradients over that slope: 1 if they agree, 0 if that is not known.
        doubts: How many later probes saw more than their step explains.
        is_contradicted: The last of these probes that was examined saw another function.
    """

    is_same: bool = False
    is_searching: bool = False
    is_steep: bool = False
    slope_factor: float = 0.0
    doubts: int = 0
    is_contradicted: bool = False


@dataclass(slots=True)
class Health:
    """What shows that a rate is far too low or far too high.

    Args:
        blind: Probes in a row that could see nothing.
        steepest: The steepest slope so far, of a step at rate 1.
        taken_back: Probed steps in a row that were taken back.
        found: The scale after the last search; 0 without one.
        highest: The highest scale so far that a probe found good.
        gradient: The norm of the last probed gradient; 0 if the rule measures none.
        loss: The loss of that probed step.
        repeats: How often in a row that norm was the same though the loss was not.
    """

    blind: int = 0
    steepest: float = 0.0
    taken_back: int = 0
    found: float = 0.0
    highest: float = 0.0
    gradient: float = 0.0
    loss: float = 0.0
    repeats: int = 0

    def learn(self, probe: Probe, rejected: int, seen: Observation | None) -> None:
        """Take note of a probed step."""
        if seen is None or probe.decision in ("unpaired", "contradicted"):
            return
        step = seen.step
        is_faint = step.setting.multiplier < FAINT  # normal at the end of a schedule
        is_tiny = not abs(step.slope) > max(step.resolution, UNSEEN * abs(step.loss))
        steepness = abs(step.slope / step.rate) if step.rate else 0.0
        self.steepest = max(self.steepest, steepness if steepness < math.inf else 0.0)
        # Where the gradients themselves have vanished, training has arrived.
        has_arrived = steepness < FLAT * self.steepest
        is_blind = probe.decision == "uninformative" and is_tiny and not (is_faint or has_arrived)
        self.blind = self.blind + 1 if is_blind else 0
        self.taken_back = self.taken_back + 1 if rejected else 0
        if probe.decision == "search":
            self.found = self.highest = probe.scale
        if probe.decision in ("up", "keep"):  # not a user's rate that proved too high
            self.highest = max(self.highest, probe.scale)
        self._see_gradient(seen)

    def _see_gradient(self, seen: Observation) -> None:
        step = seen.step
        if step.norms is None:
            return
        is_same = abs(step.norms.gradient - self.gradient) <= SAME_NORM * self.gradient
        has_moved = abs(step.loss - self.loss) > OTHER_LOSS * abs(self.loss)
        # A loss that falls by more than its slope promises is what clipped gradients look like.
        is_steeper = step.loss - seen.loss_after > STEEPER * step.slope > 0
        self.repeats = self.repeats + 1 if is_same and has_moved and is_steeper else 0
        self.gradient, self.loss = step.norms.gradient, step.loss


NO_PROBE = Probe(math.nan, math.nan, math.nan, math.nan, 1.0, "")


@dataclass(slots=True)
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
        moving: The most parameters that could move so far.
        is_frozen: The scale stays as it is.
        keeps_weights: Whether the base's state depends on the rate of its steps; None until examined.
        short: The rounding of the coarsest 16-bit format in which the model last computed; 0 without.
        proof: What is known of the function that probes see.
        health: What shows that a rate is far too low or far too high.
        history: What all steps looked like.
        ratios: What is remembered of the members of a step, if it has several.
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
    moving: int = 0
    is_frozen: bool = False
    keeps_weights: bool | None = None
    short: float = 0.0
    proof: Proof = field(default_factory=Proof)
    health: Health = field(default_factory=Health)
    history: Ledger = field(default_factory=Ledger)
    ratios: Ratios = field(default_factory=Ratios)

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
        faults = [
            f"'{name}' is unknown." for name in sorted(plain.keys() - readers.keys(), key=str)
        ]
        known: set[str] = set()
        for name, read in readers.items():
            if name in plain:
                try:
                    setattr(memory, name, read(plain[name]))
                    known.add(name)
                except Exception as error:  # whatever a damaged part makes a reader raise
                    faults.append(f"'{name}': {error}")
            elif name not in NOT_IN_0_1_0:
                faults.append(f"'{name}' is missing.")
        if "scale" not in known:
            memory.rule = rule.init()  # what the rule has found means nothing without the scale
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
            "moving": self.moving,
            "is_frozen": int(self.is_frozen),
            "keeps_weights": UNKNOWN if self.keeps_weights is None else int(self.keeps_weights),
            "short": self.short,
            "proof": as_plain(self.proof),
            "health": as_plain(self.health),
            "history": self.history.tensor(),
            "ratios": self.ratios.plain(),
        }

    def copy(self) -> "Memory":
        """Return a copy that later steps do not change."""
        twin = twin_of(self)
        twin.rule, twin.bound = copied(self.rule), copy.deepcopy(self.bound)
        twin.proof, twin.health = copied(self.proof), copied(self.health)
        twin.decisions, twin.first_rates = dict(self.decisions), list(self.first_rates)
        twin.history, twin.ratios = copy.copy(self.history), copied(self.ratios)
        return twin

    def record(
        self,
        probe: Probe,
        rejected: int,
        seen: Observation | None = None,
        limit: str = "",
    ) -> None:
        """Note what was decided at the present step, and what limits the rate."""
        self.scale, self.last = probe.scale, probe
        self.decisions[probe.decision] += 1
        self.decisions["reject"] += rejected
        self.health.learn(probe, rejected, seen)
        self.history.probe(self.steps + 1, probe.decision, probe.scale, probe.ratio, rejected)
        if limit:
            self.history.limited(limit)

    def record_skipped(self, step: int) -> None:
        """Note that a step without a probe was skipped, because its batch was not finite."""
        self.decisions["skipped"] += 1
        self.history.add("not finite", step)


class Published(dict[str, Any]):
    """The plain copy of a memory that lies in every group; it prints short, as it prints with the group.

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


def _rounding(value: Any) -> float:
    if not 0 <= value < 1:
        raise ValueError(f"must lie between 0 and 1, not {_brief(value)}.")
    return float(value)


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
    "moving": _count,
    "is_frozen": _claim,
    "keeps_weights": _examined,
    "short": _rounding,
    "proof": functools.partial(restored, Proof),
    "health": functools.partial(restored, Health),
    "history": Ledger.restored,
    "ratios": Ratios.restored,
}
NOT_IN_0_1_0 = {
    "first_rates",
    "moving",
    "is_frozen",
    "keeps_weights",
    "pending",
    "short",
    "proof",
    "health",
    "history",
    "ratios",
}

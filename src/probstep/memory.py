"""What ProbStep remembers from step to step, and what of it a checkpoint carries.

`Memory` is typed and changed in place. A checkpoint gets a plain copy of it: numbers, strings and
dictionaries whose keys never change, as distributed checkpoints need.
"""

import contextlib
import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .estimators import LowerBound
from .plain import as_plain
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
    keeps_weights: bool | None = None

    @classmethod
    def new(cls, rule: Rule, bound: LowerBound | None) -> "Memory":
        """Return a memory that has seen nothing."""
        return cls(rule=rule.init(), bound={} if bound is None else bound.init())

    @classmethod
    def restored(cls, plain: Mapping[str, Any], rule: Rule, bound: LowerBound | None) -> "Memory":
        """Return the memory that a checkpoint carries; a part of another rule or bound begins anew."""
        memory = cls.new(rule, bound)
        if not plain:
            return memory
        memory.scale, memory.steps = plain["scale"], plain["steps"]
        memory.forwards = plain["forwards"]
        memory.decisions |= plain["decisions"]
        last = Probe(**plain["last"])
        memory.last = last if last.decision else None
        pending = plain.get("pending", {"has": 0})
        memory.pending = pending["loss"] if pending["has"] else None
        memory.keeps_weights = {0: False, 1: True}.get(plain.get("keeps_weights", UNKNOWN))
        if plain["bound"].keys() == memory.bound.keys():
            memory.bound = dict(plain["bound"])
        with contextlib.suppress(KeyError, ValueError):  # it was saved with another rule
            memory.rule = rule.restore(plain["rule"])
        return memory

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
            "keeps_weights": UNKNOWN if self.keeps_weights is None else int(self.keeps_weights),
        }

    def record(self, probe: Probe, rejected: int) -> None:
        """Take over what was decided."""
        self.scale, self.last = probe.scale, probe
        self.decisions[probe.decision] += 1
        self.decisions["reject"] += rejected

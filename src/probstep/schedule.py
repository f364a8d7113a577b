"""When to probe: a schedule looks at the number of steps taken and says whether the next is probed."""

import operator
from dataclasses import dataclass
from typing import Protocol, SupportsIndex


class Schedule(Protocol):
    """Anything that can say whether a step is probed."""

    def is_due(self, step: int) -> bool:
        """Say whether step number `step`, counted from 0, is probed."""
        ...


@dataclass(frozen=True)
class EveryStep:
    """Probe at every step, as Algorithm 1 does: one more forward pass each.

    >>> EveryStep().is_due(17)
    True
    """

    def is_due(self, step: int) -> bool:
        """Say whether step number `step`, counted from 0, is probed."""
        return step >= 0


@dataclass(frozen=True)
class Every:
    """Probe at the first step and at every k-th after it: a k-th of a forward pass per step.

    >>> [step for step in range(10) if Every(4).is_due(step)]
    [0, 4, 8]
    """

    k: int

    def __post_init__(self) -> None:
        _require_positive("Every(k)", self.k)

    def is_due(self, step: int) -> bool:
        """Say whether step number `step`, counted from 0, is probed."""
        return step % self.k == 0


@dataclass(frozen=True)
class DoublingEpochs:
    """Probe at every step of epochs 1, 2, 4, 8, ...: the paper's remedy for the cost (Section 4.4).

    >>> [step for step in range(10) if DoublingEpochs(steps_per_epoch=2).is_due(step)]
    [0, 1, 2, 3, 6, 7]
    """

    steps_per_epoch: int

    def __post_init__(self) -> None:
        _require_positive("DoublingEpochs(steps_per_epoch)", self.steps_per_epoch)

    def is_due(self, step: int) -> bool:
        """Say whether step number `step`, counted from 0, is probed."""
        epoch = step // self.steps_per_epoch + 1
        return epoch.bit_count() == 1  # a power of two


def _require_positive(name: str, value: object) -> None:
    if not isinstance(value, SupportsIndex) or operator.index(value) < 1:
        raise ValueError(f"{name} needs a whole number of at least 1, not {value!r}.")

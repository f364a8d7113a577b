"""What a rule sees before and after a probe, and what it answers: plain typed values.

Symbols of docs/algorithm.md: f = loss, f+ = loss_after, phi = slope, s = step_factor, r = ratio.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol


class Setting(NamedTuple):
    """What the optimizer's settings say of a step.

    Args:
        multiplier: What the schedule makes of the rate: lr over the schedule's reference.
        beta: The optimizer's momentum.
        builds_up: It sums gradients, so that the first steps are up to 1 / (1 - beta) times shorter than
            later ones. Adam's are not: it corrects for that.
        look_ahead: The momentum with which a step looks ahead, as Nesterov's and NAdam's do; None if it
            does not.

    >>> round(Setting(beta=0.9).own_share, 3), round(Setting(beta=0.9, look_ahead=0.9).own_share, 3)
    (0.1, 0.19)
    """

    multiplier: float = 1.0
    beta: float = 0.0
    builds_up: bool = False
    look_ahead: float | None = None

    @property
    def own_share(self) -> float:
        """The part of all that a gradient will move, which the step of its own batch moves."""
        return 1 - self.beta * (1.0 if self.look_ahead is None else self.look_ahead)


NO_SCHEDULE = Setting()


class Norms(NamedTuple):
    """Sizes that only some rules want, because they cost time.

    Args:
        gradient: |g|, the norm of the gradient.
        length: |v|, the length of the step.
    """

    gradient: float
    length: float


@dataclass(frozen=True)
class Proposal:
    """What is known of a step before its first probe.

    Args:
        loss: f, the loss before the step.
        slope: phi, the slope of the loss along the optimizer's own step.
        resolution: The smallest change of the loss that its number format can show.
        rate: The scale of the step, times the schedule's multiplier.
        setting: What the optimizer's settings say of it.
        norms: Norms of gradient and step; None for a rule that does not choose lengths.
        step_factor: s, how many times the optimizer's own step is taken (1 without bound and noise).

    >>> Proposal(loss=2.0, slope=1.0, rate=0.1).times(0.5)  # doctest: +ELLIPSIS
    Proposal(loss=2.0, slope=0.5, resolution=0.0, rate=0.05, ...)
    """

    loss: float
    slope: float
    resolution: float = 0.0
    rate: float = 1.0
    setting: Setting = NO_SCHEDULE
    norms: Norms | None = None
    step_factor: float = 1.0

    def times(self, length: float) -> "Proposal":
        """Return the same step at another length."""
        norms = self.norms
        if norms is not None:
            norms = norms._replace(length=norms.length * length)
        return replace(self, slope=self.slope * length, rate=self.rate * length, norms=norms)


@dataclass(frozen=True)
class Observation:
    """What one probe saw: the step that was taken, and the loss after it.

    Args:
        step: The step, at the length that was probed.
        loss_after: f+, the loss of the same batch after the step.
        tries: How many lengths of this step have been probed, this one included.

    >>> Observation(Proposal(loss=2.0, slope=1.0), loss_after=1.5).tries
    1
    """

    step: Proposal
    loss_after: float
    tries: int = 1


class Decision(NamedTuple):
    """What becomes of scale and step.

    Args:
        factor: What the scale is multiplied with.
        ratio: The ratio that led to it; NaN where the probe says nothing.
        word: One word for the reader.
        again: If not None, the step is not good: change its length by this factor and probe again.
        limit: What keeps the scale from being higher, a word of `history.LIMITS`; "" if unknown.
    """

    factor: float
    ratio: float
    word: str
    again: float | None = None
    limit: str = ""


class Rule(Protocol):
    """Anything that turns observations into decisions.

    A rule itself is frozen settings. What it remembers is a state: a dataclass of its own, made by
    `init`, changed in place, and turned into plain numbers for a checkpoint by `plain.as_plain`.
    """

    @property
    def exact_noise(self) -> bool:
        """Say whether R enters the step four times, as the posterior has it, or once, as printed."""
        ...

    @property
    def momentum_as_gradient(self) -> bool:
        """Say whether the slope is taken along the momentum instead of the batch gradient."""
        ...

    @property
    def chooses_lengths(self) -> bool:
        """Say whether the rule searches, takes bad steps back, and wants the loss of every step."""
        ...

    @property
    def only_watches(self) -> bool:
        """Say whether the optimizer steps at its own rates, whatever the rule decides."""
        ...

    def init(self) -> Any:
        """Return the state before the first step."""
        ...

    def restore(self, plain: Mapping[str, Any]) -> Any:
        """Return the state that a checkpoint carries; raise ValueError for another rule's."""
        ...

    def is_due(self, state: Any) -> bool:
        """Say whether the next step is probed, if no schedule says it."""
        ...

    def is_searching(self, state: Any) -> bool:
        """Say whether the order of magnitude is still to be found."""
        ...

    def search_again(self, state: Any) -> None:
        """Forget what was found for rates that no longer hold; a rule without a search does nothing."""
        ...

    def first_length(self, proposal: Proposal) -> float:
        """Return the share of a step at rate 1 with which a search begins."""
        ...

    def judge(self, state: Any, seen: Observation) -> Decision:
        """Learn from a probe, and say what becomes of step and scale."""
        ...

    def notice(self, state: Any, loss: float, scale: float, setting: Setting) -> float:
        """Learn from the loss of a step, told one step later; return a factor for the scale."""
        ...

    def part_to_take(self, state: Any, loss: float, *, is_probed: bool) -> float:
        """Return the part of a step to take, where its own loss is known before it.

        A step of which only a part is taken is not probed, although that was due.
        """
        ...

    def is_new_level(self, state: Any) -> bool:
        """Say whether the loss that was told last began another level of losses, for the history."""
        ...

    def complaint(self, state: Any) -> str:
        """Return what the user should be told once: the rule cannot judge this loss; "" if it can."""
        ...

    def metrics(self, state: Any) -> dict[str, float]:
        """Return what a logger may want to see of the state."""
        ...

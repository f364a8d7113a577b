"""One step whose length is open: measured once, then probed at one length after the other.

Length 1 is the optimizer's own step, which has been taken. Not in the paper, whose Algorithm 1 keeps
every step: the first step is searched for the order of magnitude of the rate, and a later one that
proves bad is shortened.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..rules import Norms, Observation, Proposal, Rule, Setting
from .displacement import Displacement
from .objective import Objective
from .scalars import flag, pack

FAITHFUL = 0.95  # the share of its slope that a step must keep when the parameters round it


class Movable(Protocol):
    """What a trial tries: an Attempt, or a part of one."""

    moved: Displacement

    def keep_direction(self) -> None:
        """Keep a copy of the displacement, so that the step can grow as well as shrink."""

    def resize(self, length: float, was: float) -> bool:
        """Take `length` times the step, after `was` times; say whether the base took it anew."""


class Before(NamedTuple):
    """What is known before the base steps.

    Args:
        loss: f, the objective.
        resolution: The smallest change of the loss that its number format can show.
        scale: The scale at which the base steps.
        setting: What the optimizer's settings say of the step.
    """

    loss: float
    resolution: float
    scale: float
    setting: Setting


class Look(NamedTuple):
    """What a look at another length of a step showed.

    Args:
        drop: By how much the objective fell.
        slope: What the gradients promise for the step after the rounding of the parameters.
        is_unchanged: The loss is the same number as before.
        is_usable: Every number is finite, and the random numbers agreed.
    """

    drop: float
    slope: float
    is_unchanged: bool
    is_usable: bool

    @property
    def share(self) -> float:
        """The part of the promise that was kept; NaN without a promise."""
        return self.drop / self.slope if self.slope else math.nan


class Aside:
    """Looks at other lengths of a step, also backwards; the step itself is kept.

    Args:
        moved: The step, with its direction kept.
        objective: What it descends on.
        before: The objective where it began.
    """

    def __init__(self, moved: Displacement, objective: Objective, before: float) -> None:
        self._moved, self._objective, self._before = moved, objective, before

    def go(self, length: float) -> None:
        """Go this length from where the step began."""
        self._moved.resize(length, was=1.0)

    def look(
        self, length: float, evaluate: Callable[[], tuple[Tensor, bool]], loss: Tensor
    ) -> Look:
        """Go there, and return what the loss has become; `loss` is what it was."""
        self.go(length)
        value, is_paired = evaluate()
        after, slope = self._objective.after(value, self._moved), self._objective.slope(self._moved)
        unpaired, changed = flag(not is_paired), (value != loss).any()
        shares = self._objective.ranks.read(after, slope, unpaired, changed)
        loss_after, promised, strayed, changes = shares
        is_finite = math.isfinite(loss_after) and math.isfinite(promised)
        return Look(self._before - loss_after, promised, not changes, is_finite and not strayed)


class Trial:
    """A step between the base's move and the end of its probes.

    Args:
        attempt: The step as the base took it.
        objective: What it descends on.
        before: What was known before it was taken. The slope is read with the first probe.
        phi: This rank's share of that slope.
        squares: The same for the squares of gradient and displacement, if the rule wants norms.
        step_factor: s, how many times the base's step was taken; None for once.
    """

    def __init__(
        self,
        attempt: Movable,
        objective: Objective,
        before: Before,
        phi: Tensor,
        squares: Sequence[Tensor],
        step_factor: Tensor | None,
    ) -> None:
        self._attempt, self._objective, self._before = attempt, objective, before
        self._ranks = objective.ranks
        self._step_factor = step_factor
        self.length = 1.0
        self._take_sizes(phi, *squares)

    def begin_search(self, rule: Rule) -> None:
        """Take the length at which the rule begins to search; from there it may grow and shrink."""
        self._attempt.keep_direction()
        whole, _ = self._read()
        self.resize(rule.first_length(whole))
        # Lengthen the step until the rounding of the parameters leaves it its slope.
        while self.length < 1.0 and self._slope() < FAITHFUL * whole.slope * self.length:
            self.resize(10.0 * self.length)

    def resize(self, length: float) -> None:
        """Take another length."""
        is_taken_anew = self._attempt.resize(length, was=self.length)
        self.length = length
        if is_taken_anew and length:
            self._take_sizes(*self._objective.measure(self._attempt.moved))

    def see(self, value: Tensor, *, is_paired: bool, tries: int) -> tuple[Observation, bool]:
        """Return what a probe of the present length saw, and whether every rank's was paired.

        Args:
            value: The batch's loss, evaluated again.
            is_paired: It is the same function as before, as far as random numbers tell.
            tries: How many lengths have been probed, this one included.
        """
        after = self._objective.after(value, self._attempt.moved)
        step, (loss_after, unpaired) = self._read(after, flag(not is_paired))
        if self.length != self._measured:
            step = step.times(self.length / self._measured)
        return Observation(step, loss_after, tries), not unpaired

    def _take_sizes(self, phi: Tensor, *squares: Tensor) -> None:
        """Keep the sizes of the step at its present length; at other lengths they are in proportion."""
        self._measured = self.length
        self._shares = [phi]
        if squares:
            grad_scale = self._objective.grad_scale
            is_one = isinstance(grad_scale, float) and grad_scale == 1.0
            self._shares += [*squares, flag(True) if is_one else torch.as_tensor(grad_scale)]

    @contextmanager
    def aside(self) -> Iterator[Aside]:
        """As a context: let any length be looked at; afterwards the step is as it was, bit for bit."""
        moved = self._attempt.moved
        with moved.kept():
            yield Aside(moved.from_before(self.length), self._objective, self._before.loss)

    def _read(self, *shares: Tensor) -> tuple[Proposal, list[float]]:
        """Sum over the ranks and read in one transfer: the step, and the shares given."""
        numbers, factor = self._totals(shares)
        count = len(self._shares)
        if count > 1 and not all(map(math.isfinite, numbers[:count])):
            # Where training has exploded, products of single precision overflow.
            self._take_sizes(*self._objective.measure(self._attempt.moved, in_double=True))
            numbers, factor = self._totals(shares)
        slope, *sizes = numbers[:count]
        before = self._before
        step = Proposal(
            loss=before.loss,
            slope=slope,
            resolution=before.resolution,
            rate=before.scale * before.setting.multiplier * self._measured,
            setting=before.setting,
            norms=self._norms(sizes),
            step_factor=factor,
        )
        return step, numbers[count:]

    def _totals(self, shares: Sequence[Tensor]) -> tuple[list[float], float]:
        """Return the sums over the ranks of the sizes and of the shares given, and the step's factor."""
        if self._step_factor is None:
            return self._ranks.read(*self._shares, *shares), 1.0
        # The factor is the same on every rank, hence no share.
        totals = self._ranks.total(pack(*self._shares, *shares))
        *numbers, factor = pack(*totals, self._step_factor).tolist()
        return numbers, factor

    def _norms(self, sizes: list[float]) -> Norms | None:
        if not sizes:
            return None
        gradient, length, grad_scales = sizes
        return Norms(
            # A norm that overflows lets clipping make all gradients zero, with a factor of zero.
            gradient=math.sqrt(gradient) * self._ranks.size / grad_scales
            if grad_scales
            else math.nan,
            length=math.sqrt(length),
        )

    def _slope(self) -> float:
        """Return the slope of the step as it is now, after the rounding of the parameters."""
        return self._ranks.total(self._objective.slope(self._attempt.moved)).item()

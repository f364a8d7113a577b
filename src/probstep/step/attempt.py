"""The base's step while it is open: taken, taken back, taken anew at another rate.

A step is taken back whole: parameters, gradients, the base's state and numbers, and the random streams
that it may have drawn from. For that its state is copied, which costs as much memory as the state does,
so it is only done where a step may have to be taken anew.
"""

import math
from collections.abc import Sequence
from typing import Self

from torch import Tensor, optim

from .base import devices_of, params_of, step_at
from .displacement import Displacement
from .hooks import AFTER, BEFORE, silent
from .joint import any_hooks_before, fire_all_before
from .kept import Kept
from .randomness import RandomState
from .ranks import Ranks

FAINT = 2.0**-12  # of the length of the parameters: a shorter step is measured coarsely in float32
MOST, TRIES = 30, 3  # powers of two at once, and how often: rates must stay within float32


def growth(before: float, length: float) -> float:
    """Return the power of two by which a step must grow to be visible; 1 if it is visible.

    A step that is far shorter than the parameters is lost in their rounding. An example is SGD on a
    loss of 1e-12, at any usual rate.

    Args:
        before: The square of the parameters.
        length: The square of the step.

    >>> growth(1.0, 0.25), growth(1.0, 2.0**-40)
    (1.0, 524288.0)
    """
    if not 0 < before < math.inf or not length < FAINT**2 * before:
        return 1.0
    exponent = -math.frexp(math.sqrt(length / before))[1] if length else MOST
    return 2.0 ** min(exponent, MOST)


class Attempt:
    """A step of the base that is not final yet.

    As a context it puts back the parameters if anything raises, and the base's state if that was kept.
    In most probed steps it is not: a copy may need more memory than the model has. An empty state counts
    as kept, any other is copied only by `keep`.

    Args:
        base: Whose step it is.
        ranks: Who else takes it.
        from_zero: As for `Displacement.begin`.
        factors: What each group's rate is multiplied with beside the scale; None for nothing.
    """

    def __init__(
        self,
        base: optim.Optimizer,
        ranks: Ranks,
        *,
        from_zero: bool = False,
        factors: Sequence[float] | None = None,
    ) -> None:
        self.factors = factors
        self._base, self._ranks, self._from_zero = base, ranks, from_zero
        self._kept: tuple[Kept, RandomState] | None = None
        self._began_without_state = not base.state
        self._is_search = self._is_by_rate = False
        self._scale = 1.0
        self.moved = self._displacement()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.undo()

    def keep(self, *, is_search: bool) -> None:
        """Fire the hooks before the step, and keep all that the step will change.

        Args:
            is_search: The step is tried, and taken by `settle`.
        """
        if any_hooks_before(self._base):
            self.moved.undo()
            fire_all_before(self._base)
            self.moved = self._displacement()
        params = {id(p) for p in params_of(self._base)}
        self._kept = (
            Kept([self._base], is_spared=lambda tensor: id(tensor) in params),
            RandomState(devices_of(self._base)),
        )
        self._is_search = is_search

    def shorten_by_rate(self) -> None:
        """Never move the parameters alone from now on: take the step anew at another rate instead."""
        self._is_by_rate = True
        if self._from_zero:
            self.moved.undo()
            self._from_zero = False
            self.moved = self._displacement()

    def take(self, scale: float) -> None:
        """Let the base step, for a trial or for good."""
        if self._is_search:
            self.try_at(scale)
        else:
            self._step(scale, *(() if self._kept is None else (BEFORE,)))

    def take_visibly(self, scale: float) -> float:
        """Let the base step, for a search, at the first scale from this one on that is visible."""
        self.try_at(scale)
        longer = scale
        for _ in range(TRIES):
            before, length = self._ranks.total(self.moved.squares()).tolist()
            grown = growth(before, length)
            if grown == 1.0:
                return longer
            longer *= grown
            self._take_anew(longer)
        self._take_anew(scale)  # there is nothing to see
        return scale

    def try_at(self, scale: float) -> None:
        """Let the base step without any hook: the step will be taken back."""
        self._step(scale, BEFORE, AFTER)

    def settle(self, scale: float) -> None:
        """End a search: let the base step once, at the scale that was found.

        At 0 the parameters stay, but the state learns: some optimizers only use their first gradient.
        """
        self.undo()
        self._step(scale, BEFORE)
        if not scale:
            self.moved.resize(0.0, was=1.0)  # 0 times an infinite direction is NaN

    def stretch(self, factor: Tensor) -> None:
        """Take `factor` times the step instead of the step."""
        if self._is_by_rate:
            self._take_anew(self._scale * factor.item())
        else:
            self.moved.stretch(factor)

    def keep_direction(self) -> None:
        """Keep a copy of the displacement, so that the step can grow as well as shrink."""
        self.moved = self.moved.keeping_direction()

    def resize(self, length: float, was: float) -> bool:
        """Take `length` times the step, after `was` times; say whether the base took it anew."""
        is_anew = self._is_by_rate and not self._is_search
        if is_anew:
            self._take_anew(self._scale * length / was)
        else:
            self.moved.resize(length, was=was)
        return is_anew

    def undo(self) -> None:
        """Put everything back that was kept, and parameters and gradients in any case."""
        self.moved.undo()
        if self._kept is not None:
            state, streams = self._kept
            state.restore()
            streams.restore()
        elif self._began_without_state:
            self._base.state.clear()

    def rewind(self) -> None:
        """Put everything back to where the base began, so that it can step again."""
        self.undo()
        self.moved.go_to_origin()

    def _take_anew(self, scale: float) -> None:
        self.undo()
        if scale:
            self.try_at(scale)  # its hooks have fired when it was taken first

    def _step(self, scale: float, *without: str) -> None:
        self._scale = scale
        if without:
            with silent(self._base, *without):
                step_at(self._base, scale, self.factors)
        else:
            step_at(self._base, scale, self.factors)

    def _displacement(self) -> Displacement:
        return Displacement.begin(self._base, self._ranks, from_zero=self._from_zero)

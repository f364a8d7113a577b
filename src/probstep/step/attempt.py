"""The base's step while it is open: taken, taken back, taken anew at another rate.

A step is taken back whole: parameters, gradients, the base's state and numbers, and the random streams
that it may have drawn from. For that its state is copied, which costs as much memory as the state does,
so it is only done where a step may have to be taken anew.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import optim

from .base import devices_of, params_of, step_at
from .displacement import Displacement
from .hooks import AFTER, BEFORE, fire_before, has_hooks_before, silent
from .kept import Kept
from .randomness import RandomState
from .ranks import Ranks


class Attempt:
    """A step of the base that is not final yet.

    Args:
        base: Whose step it is.
        ranks: Who else takes it.
        from_zero: As for `Displacement.begin`.
    """

    def __init__(self, base: optim.Optimizer, ranks: Ranks, *, from_zero: bool = False) -> None:
        self._base, self._ranks, self._from_zero = base, ranks, from_zero
        self._kept: tuple[Kept, RandomState] | None = None
        self._began_without_state = not base.state
        self.moved = Displacement.begin(base, ranks, from_zero=from_zero)

    def keep(self) -> None:
        """Fire the hooks before the step, and keep all that the step will change."""
        if has_hooks_before(self._base):
            self.moved.undo()
            fire_before(self._base)
            self.moved = Displacement.begin(self._base, self._ranks, from_zero=self._from_zero)
        params = {id(p) for p in params_of(self._base)}
        self._kept = (
            Kept([self._base], is_spared=lambda tensor: id(tensor) in params),
            RandomState(devices_of(self._base)),
        )

    def take(self, scale: float) -> None:
        """Let the base step, with all of its hooks."""
        step_at(self._base, scale)

    def try_at(self, scale: float) -> None:
        """Let the base step, without hooks: after `keep` it can be taken back."""
        with silent(self._base, BEFORE, AFTER):
            step_at(self._base, scale)

    def take_anew(self, scale: float) -> None:
        """Take the step back and take it at another scale; at 0 there is no step.

        `keep` has fired the hooks before it.
        """
        self.undo()
        if not scale:
            return
        with silent(self._base, BEFORE):
            step_at(self._base, scale)

    def undo(self) -> None:
        """Put everything back that was kept, and the parameters in any case."""
        self.moved.undo()
        if self._kept is not None:
            state, streams = self._kept
            state.restore()
            streams.restore()
        elif self._began_without_state:
            self._base.state.clear()


@contextmanager
def attempting(
    base: optim.Optimizer, ranks: Ranks, *, from_zero: bool = False
) -> Iterator[Attempt]:
    """Begin a step; if anything raises, put back the parameters, and the state if it was kept.

    It is kept for a search, and if it is empty: always to copy it would cost more than the model.
    """
    begun = Attempt(base, ranks, from_zero=from_zero)
    try:
        yield begun
    except BaseException:
        begun.undo()
        raise

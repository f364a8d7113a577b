"""Rates that come down towards the end of training, if that is known, while a step is taken."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ..horizon import checked_horizon, decay
from .base import Groups, scaled_rates

AS_THEY_ARE: AbstractContextManager[None] = nullcontext()


class Ending:
    """The end of training.

    Args:
        horizon: How many steps training has, from its first; None if that is not known.

    >>> groups = [{"lr": 1.0}]
    >>> with Ending(horizon=10).decayed(groups, taken=9):
    ...     groups
    [{'lr': 0.5}]
    """

    def __init__(self, horizon: int | None = None) -> None:
        self.horizon = horizon
        self._is_decayed = False

    def check(self, taken: int) -> None:
        """Raise if more steps were taken than training has."""
        checked_horizon(self.horizon, taken=taken)

    def decayed(self, groups: Groups, taken: int) -> AbstractContextManager[None]:
        """Give the groups the rates of the next step, as a context; inside another one they stay."""
        if self.horizon is None or self._is_decayed:
            return AS_THEY_ARE
        return self._scaled(groups, decay(taken, self.horizon))

    @contextmanager
    def _scaled(self, groups: Groups, factor: float) -> Iterator[None]:
        self._is_decayed = True
        try:
            with scaled_rates(groups, factor):
                yield
        finally:
            self._is_decayed = False

"""Which steps are probed, and whether the account of forward passes can pay for that."""

from . import alarm, budget
from .numbers import HUNDREDTH, QUARTER
from .settings import Settings
from .state import RobustState

GREAT_DOUBT = QUARTER  # the variance of log scale from which on a probe may draw on the reserve
FAINT = HUNDREDTH  # a schedule's multiplier, up to which it is no wonder that a probe sees nothing


def is_due(settings: Settings, state: RobustState) -> bool:
    """Say whether the next step is probed: the scale is uncertain, and the budget allows it."""
    if not state.search.is_done and (state.search.found or not state.belief.probes):
        # The first search, whatever it costs; or one whose last probe could not be judged.
        return True
    if state.search.is_untried:
        return True  # what a search found is tried under a probe
    is_faint = 0 < state.bound.peak <= FAINT  # a warm-up begins: keep the probes for its end
    variance, is_asking = state.belief.variance, state.alarm.is_asking
    is_uncertain = variance >= (GREAT_DOUBT if is_faint else settings.doubt)
    is_uncertain = (is_uncertain or not state.search.is_done) and state.rested >= state.pause
    if not (is_uncertain or is_asking):
        return False
    if alarm.is_free(state.alarm) and "explosion" not in settings.without:
        return True
    return can_pay(settings, state)


def can_pay(settings: Settings, state: RobustState) -> bool:
    """Say whether the budget allows a probe, for a surprise or great doubt with its reserve."""
    allowed = budget.allowed(settings.budget, state.t)
    is_urgent = state.alarm.is_asking or state.belief.variance >= GREAT_DOUBT
    if is_urgent and "reserve" not in settings.without:
        allowed += budget.reserve(settings.budget, state.t)
    return state.forwards < allowed


def allow_looks(settings: Settings, state: RobustState) -> None:
    """Allow some forward passes, whatever was spent, for a scale that is to come back."""
    state.forwards = budget.spent_before_looks(
        settings.budget,
        state.t,
        state.forwards,
        with_reserve="reserve" not in settings.without,
    )

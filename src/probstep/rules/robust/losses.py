"""What the loss of a step changes: `notice`, which is told of every step, one step later.

Where the loss is known before its step, `part_to_take` says how much of the step is taken. `notice`
moves the scale by what noise may cost, and asks for probes. A surprise moves nothing before its
probe, but for a loss that is not finite, and a rate above all that was searched.
"""

from ..protocol import Setting
from . import alarm, belief, bound, budget, limits, search, setback
from .due import allow_looks
from .limits import DOWN, LEAST_SCALE
from .numbers import DOUBLE, FEW, SETTLED
from .settings import Settings
from .state import SMOOTH_PROBES, RobustState

SECOND = 3  # the step that comes when the second loss is told
BACK_PRICE = float(FEW)  # the trust that looks cost after a setback
LEVEL_PRICE = DOUBLE  # and on a new level of the loss, where enough is left for a setback


def notice(
    settings: Settings, state: RobustState, loss: float, scale: float, setting: Setting
) -> float:
    """Learn from the loss of a step; return a factor for the scale, above 1 only to give back."""
    _count_step(settings, state, setting)
    alarm.learn_from_held_back(state.alarm, loss)
    if not abs(loss) < alarm.HUGE:  # its own proof: no probe has to confirm it
        state.sound_scale = state.sound_scale or scale
        return DOWN if scale > LEAST_SCALE else 1.0
    if state.t == SECOND and _was_unlike(settings, state, loss):
        search_again(settings, state)
        state.losses = 0
    is_surprise, is_new_level = _average(settings, state, loss)
    back = _given_back(state, scale, is_surprise=is_surprise)
    scale *= back
    _ask(settings, state, loss, setting, is_surprise=is_surprise)
    if is_new_level:
        _look_at_new_level(settings, state, scale)
    if setback.ends(state.setback, loss, scale, setting.beta):
        _begin_way_back(settings, state)
    if scale < LEAST_SCALE:
        return back
    if is_surprise and setting.multiplier > 1:
        state.bound.lowered_scale = 0.0
        return back * DOWN  # a rate above all that was searched needs no further proof
    return back * limits.bounded(settings, state, scale, setting)


def part_to_take(settings: Settings, state: RobustState, loss: float, *, is_probed: bool) -> float:
    """Return the part of a step to take, whose own loss is known before it.

    It is 1, unless the loss is a surprise and more than ten times as large as usual: then the gradient
    counts as much less as the loss is larger than usual. Most likely the batch is bad, and its gradient
    as much larger as its loss. But it may be a rare one that is hard, and is to be learnt: each time
    that the loss after it is less than half of its own the next one counts ten times as much. A probe of
    such a batch would say nothing about others, unless it is the answer to a question: then all may be
    like that.

    >>> from functools import partial
    >>> from probstep import RobustRule
    >>> state = RobustRule().init()
    >>> for loss in (1.0, 1.1, 0.9, 1.0, 1.1):
    ...     _ = notice(RobustRule(), state, loss, 0.1, Setting())
    >>> take = partial(part_to_take, RobustRule(), state, is_probed=False)
    >>> round(take(5.0), 2), round(take(100.0), 2)
    (1.0, 0.01)
    """
    usual = bound.size(state.bound)
    is_explosion = 0 < alarm.EXPLOSION * usual < loss
    is_answer = is_probed and state.alarm.is_asking
    if not is_explosion or is_answer or {"caution", "surprise"} & settings.without:
        return 1.0
    if not alarm.unsurprising(state.alarm, loss, state.losses + 1) < loss:
        return 1.0
    return alarm.hold_back(state.alarm, loss, usual)


def search_again(settings: Settings, state: RobustState) -> None:
    """Forget everything that is measured in units of the rate; the losses stay known."""
    _, per_step = settings.budget
    state.forwards = min(state.forwards, int(per_step * state.t))  # a new search, a new budget
    state.unseen = state.vain = state.straight = state.calm = state.bent = 0
    state.smooth = SMOOTH_PROBES
    state.search, state.belief = search.Search(), belief.Belief()
    state.bound.peak = state.bound.lowered_scale = state.seen_scale = state.highest = 0.0
    setback.forget(state.setback)


def _count_step(settings: Settings, state: RobustState, setting: Setting) -> None:
    """Count time, and be less sure than at the step before."""
    state.t += 1
    state.rested += 1 - setting.beta
    if state.t == SETTLED:  # what was spent, or saved, no longer counts
        state.forwards = int(budget.allowed(settings.budget, SETTLED))
    if setting.multiplier > state.bound.peak:
        state.bound.peak = setting.multiplier
    belief.drift(state.belief, state.t)
    if state.search.has_failed:
        state.search = search.Search(is_done=True)


def _was_unlike(settings: Settings, state: RobustState, loss: float) -> bool:
    """Say whether this second loss of a training shows that the first batch was like no other.

    That batch must have been searched. A search takes so short a step that the loss of a batch like
    the first cannot fall so far. What such a batch says of slope, curvature and gain would be
    remembered for hundreds of steps.
    """
    is_searched = state.losses == 1 and state.search.found > 0
    is_lower = 0 < loss < search.UNLIKE * state.bound.recent
    return is_searched and is_lower and "unlike" not in settings.without


def _average(settings: Settings, state: RobustState, loss: float) -> tuple[bool, bool]:
    """Average a loss; say whether it was a surprise, and whether the averages begin anew with it.

    A loss that is surprisingly high asks for a probe. Several in short order are another level.
    """
    state.losses += 1
    usual = loss
    if "surprise" not in settings.without:
        # One outlier must pass neither for a rise of the loss nor for noise.
        usual = alarm.unsurprising(state.alarm, loss, state.losses)
    is_surprise = usual < loss
    is_new = is_surprise or state.alarm.surprises > 0  # else there is nothing to count
    is_new = is_new and alarm.is_new_level(state.alarm, is_surprise=is_surprise)
    is_new = is_new and "level" not in settings.without
    if is_new:
        state.losses, usual = 1, loss
        state.bound.lowered_scale = 0.0
        belief.doubt(state.belief)
    alarm.average(state.alarm, usual, state.losses)
    bound.average(state.bound, usual, state.losses)
    return is_surprise, is_new


def _given_back(state: RobustState, scale: float, *, is_surprise: bool) -> float:
    """Return the factor that gives back what losses that were not finite have taken; 1 for nothing.

    A batch that is not finite moves nothing. If the next one is as usual, it was the batch.
    """
    if not state.sound_scale:
        return 1.0
    back = 1.0 if is_surprise else state.sound_scale / scale
    state.sound_scale = 0.0
    if is_surprise:  # confirmed
        state.bound.lowered_scale = 0.0
    return back


def _ask(
    settings: Settings, state: RobustState, loss: float, setting: Setting, *, is_surprise: bool
) -> None:
    """Ask for a probe after a surprise; without momentum also where losses keep rising, or jump."""
    is_rising = alarm.is_rising(state.alarm, loss)
    has_jumped = alarm.has_jumped(state.alarm, loss)
    if setting.beta or "rises" in settings.without:
        # With momentum losses rise and fall in waves, at any rate.
        is_rising = has_jumped = False
    if is_surprise or is_rising or has_jumped:
        is_exploding = has_jumped and alarm.is_believed(state.alarm)
        is_exploding = is_exploding or loss > alarm.EXPLOSION * bound.size(state.bound)
        alarm.ask(state.alarm, is_exploding=is_exploding)


def _look_at_new_level(settings: Settings, state: RobustState, scale: float) -> None:
    """Search again on a new level if the scale has fallen far: what lowered it no longer holds."""
    if limits.has_fallen(scale, state.search.found):
        state.search, state.seen_scale, state.vain = search.Search(), 0.0, 0
        if alarm.spend_trust(state.alarm, LEVEL_PRICE, leaving=BACK_PRICE):
            allow_looks(settings, state)


def _begin_way_back(settings: Settings, state: RobustState) -> None:
    """Allow the probes that a way back needs at every step; without them there is none."""
    if alarm.spend_trust(state.alarm, BACK_PRICE):
        allow_looks(settings, state)
        belief.doubt(state.belief)
    else:
        setback.forget(state.setback)

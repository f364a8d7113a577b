"""What a probe changes: `judge`, which says what becomes of the step and of the scale."""

import math

from ..protocol import Decision, Observation
from . import alarm, belief, bound, limits, search, setback
from .due import FAINT, GREAT_DOUBT, can_pay
from .limits import DOWN, scale_of
from .numbers import DOUBLE, RARE, TENTH
from .settings import Settings
from .state import RobustState

REJECTED = DOUBLE  # times the usual predicted change: a step that raises the loss by more is bad
SHORTER = (TENTH, 1 / DOUBLE)  # the smallest and the largest factor by which it is shortened
UNSEEN = RARE  # probes in a row that could see nothing, after which the rule searches again
MOST_VAIN = 10  # times that this number is doubled, at most
TRIES = 20  # forward passes on one step, after which it is kept as it is


def judge(settings: Settings, state: RobustState, seen: Observation) -> Decision:
    """Learn from a probe, and say what becomes of step and scale."""
    was_exploding, state.alarm.is_exploding = state.alarm.is_exploding, False
    was_paid, was_searching = can_pay(settings, state), not state.search.is_done
    was_untried, state.search.is_untried = state.search.is_untried, False
    state.forwards += 1
    decision = _decide(settings, state, seen)
    if was_untried and decision.word in ("keep", "up"):  # it has proved good
        state.highest = max(state.highest, state.search.found)
    if was_exploding and not was_searching:
        is_right = decision.again is not None or decision.factor < 1
        alarm.answer(state.alarm, was_right=is_right, was_paid=was_paid)
    if seen.step.setting.multiplier > FAINT:
        _count_unseen(settings, state, decision)
    return decision


def _count_unseen(settings: Settings, state: RobustState, decision: Decision) -> None:
    """Search again after several probes in a row that saw nothing: a dead rate must not stay.

    Where a search changes nothing, as after convergence, the next one waits twice as long.
    """
    if decision.word != "uninformative":
        state.unseen = 0
        is_step_kept = decision.again is None and decision.word != "search"
        state.vain = 0 if is_step_kept else state.vain
    elif state.search.is_done:
        state.unseen += 1
        if state.unseen >= UNSEEN * DOUBLE**state.vain and "again" not in settings.without:
            state.search, state.unseen = search.Search(), 0
            state.vain = min(state.vain + 1, MOST_VAIN)


def _decide(settings: Settings, state: RobustState, seen: Observation) -> Decision:
    """Search, shorten a bad step, or move the scale."""
    step = seen.step
    if not math.isfinite(step.loss) or not step.slope * step.slope > 0:
        return Decision(1.0, math.nan, "uninformative")
    ratio = 2 * (step.loss - seen.loss_after) / step.slope
    if not math.isfinite(seen.loss_after):
        ratio = -math.inf
    if not state.search.is_done:
        return _search(settings, state, seen, ratio)
    again = _part_to_keep(settings, state, seen, 2 - ratio) if seen.tries < TRIES else 1.0
    if again < 1:
        if "regain" not in settings.without:
            setback.begin(state.setback, scale_of(step), state.alarm, state.losses)
        belief.doubt(state.belief)
        state.bound.lowered_scale = 0.0
        return Decision(1.0, ratio, "reject", again)
    if not math.isfinite(seen.loss_after):
        return Decision(DOWN, ratio, "down")
    return _move(settings, state, seen, ratio)


# A step that is kept


def _move(settings: Settings, state: RobustState, seen: Observation, ratio: float) -> Decision:
    """Learn from a step that is kept, and move the scale towards its aim, as far as limits allow."""
    step, bend, is_visible = seen.step, 2 - ratio, search.is_visible(seen.step)
    limits.count_bends(settings, state, step, bend, is_shortened=seen.tries > 1)
    is_way_back = setback.is_way_back(state.setback, scale_of(step))
    if is_way_back:
        if not is_visible:
            state.seen_scale = state.setback.scale
            setback.forget(state.setback)
            state.unseen = UNSEEN  # it searches now, unless it has searched here in vain
            return Decision(1.0, ratio, "uninformative")
        _look_back(state, seen, is_bending=limits.is_bending(settings, state, step, bend))
    _learn(settings, state, seen, with_curvature=is_visible)
    aimed = limits.aimed_factor(settings, state, step)
    largest = limits.largest_factor(settings, state, step, bend)
    factor = min(max(aimed, DOWN), largest)
    limit = limits.name_of(settings, state, step, bend, aimed=aimed, largest=largest)
    is_too_far = factor < 1 or limits.went_too_far(settings, state, step, bend)
    bound.confine(state.bound, scale_of(step) * (factor if is_too_far else aimed))
    is_waiting = limits.may_cross_a_valley(settings, state, step)  # for another straight probe
    if is_way_back and factor <= 1 and not is_waiting:
        setback.forget(state.setback)  # something else limits the scale
    if is_visible and seen.tries == 1:
        state.seen_scale = scale_of(step)
    _wait(settings, state, seen, bend, factor)
    word = _word(factor) if is_visible else "uninformative"
    return Decision(factor, ratio, word, limit=limit)


def _wait(
    settings: Settings, state: RobustState, seen: Observation, bend: float, factor: float
) -> None:
    """Say when the next probe may come: after a pause, or at once."""
    step = seen.step
    if factor > 1:
        state.rested = 0.0
        state.pause = limits.PAUSE if limits.is_paced(settings, state, step, bend) else 0.0
    # This probe was the answer, unless the loss of its own batch rose: then the next step is asked.
    state.alarm.is_asking = limits.has_risen(step, bend)
    state.alarm.is_exploding = state.alarm.is_asking and alarm.is_believed(state.alarm)
    if factor > settings.up and limits.shows_at_once(state, step):
        # The next step shows whether it was right. Averages under which a scale has fallen, though
        # steps are straight, are of another place.
        is_elsewhere = limits.is_coming_back(state, step)
        belief.doubt(state.belief, belief.UNKNOWN if is_elsewhere else GREAT_DOUBT)


def _look_back(state: RobustState, seen: Observation, *, is_bending: bool) -> None:
    """After a setback, stay where a step bends; else, if it goes downhill, believe this probe alone."""
    if is_bending:
        setback.forget(state.setback)
    elif seen.step.slope > 0:
        usual = state.bound.recent
        news = belief.measure(seen, with_curvature=True, usual_loss=usual)
        belief.replace(state.belief, news)


def _learn(
    settings: Settings, state: RobustState, seen: Observation, *, with_curvature: bool = True
) -> None:
    with_curvature = with_curvature and "curvature" not in settings.without
    belief.learn(
        state.belief,
        belief.measure(seen, with_curvature=with_curvature, usual_loss=state.bound.recent),
        floors={} if "floors" in settings.without else belief.FLOORS,
    )


def _word(factor: float) -> str:
    return "up" if factor > 1 else "down" if factor < 1 else "keep"


# A search


def _search(settings: Settings, state: RobustState, seen: Observation, ratio: float) -> Decision:
    """Try another length, or take a tenth of the step that was found and probe that, too."""
    if seen.tries == 1:
        state.search.found, state.search.has_looked = 0.0, False
    elif state.search.found:
        state.search.is_done = True
        state.forwards -= 1  # it teaches nothing, so it does not count
        state.search.is_untried = True
        return Decision(state.search.found / seen.step.rate, ratio, "search", limit="search")
    bend, room = 2 - ratio, limits.room(settings, state, seen)
    again = search.next_length(state.search, seen, bend, room)
    if again is not None:
        return Decision(1.0, ratio, "search", again)
    if state.belief.probes and not search.is_visible(seen.step):
        state.search = search.Search(has_failed=True)
        return Decision(1.0, math.nan, "uninformative")
    if math.isfinite(bend) and bend > 0:
        state.belief = belief.Belief()  # what was known belongs to where it searched before
        _learn(settings, state, seen)
    factor = search.final_factor(bend, seen.step.setting.beta, room)
    found = factor * seen.step.rate  # in a search, of the schedule's reference
    # Where slopes vanish, as on a saddle or after convergence, all lengths look straight. So a later
    # search stays near what a probe has seen, and goes farther only after one in vain.
    farther = search.LONGER if limits.is_beginning(state) else search.BEYOND
    most = state.seen_scale * farther ** max(state.vain, 1) or math.inf
    state.search.found = min(found, most)
    state.bound.lowered_scale = 0.0
    if "unlike" in settings.without:
        return Decision(state.search.found / seen.step.rate, ratio, "search", limit="search")
    state.search.is_done = False  # the step that is taken is probed, too
    return Decision(1.0, ratio, "search", search.TAKEN)


# A bad step


def _part_to_keep(settings: Settings, state: RobustState, seen: Observation, bend: float) -> float:
    """Return the part of a step that is probed again if the step is bad; 1 if it is not.

    Nothing is learnt from a bad one: the curvature out there is not that of the step to come.
    """
    affordable = limits.affordable_part(settings, state, seen.step, bend)
    if not _is_bad(settings, state, seen):
        return affordable
    least, most = SHORTER
    if not math.isfinite(bend):
        return least
    return min(max(settings.target / bend, least), most, affordable) if bend > 0 else most


def _is_bad(settings: Settings, state: RobustState, seen: Observation) -> bool:
    """Say whether the loss rose, after a surprise, or by far more than is usual, or than there was.

    What is usual may be of long ago, when slopes were steep.
    """
    step = seen.step
    # Momentum may point uphill: what the slope itself predicts is no reason to shorten a step.
    rise = seen.loss_after - step.loss - max(-step.slope, 0.0)
    if not math.isfinite(rise):
        return True
    # Any rise confirms a question, unless momentum may have carried the step beyond a minimum.
    is_confirmed = state.alarm.is_asking and not step.setting.beta and seen.tries == 1
    usual = REJECTED * step.rate * state.belief.steepness
    most = 0.0 if is_confirmed else min(usual, limits.size_of_loss(state, step) or usual)
    is_high = rise > most + search.VISIBLE * step.resolution
    return is_high and "shortening" not in settings.without

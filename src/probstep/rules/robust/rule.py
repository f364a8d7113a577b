"""RobustRule: the parts composed. `notice` is told of every step, `judge` of every probe."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..protocol import Decision, Observation, Proposal, Setting
from . import alarm, belief, bound, budget, limits, search, setback
from .limits import DOWN, LEAST_SCALE, scale_of
from .numbers import DOUBLE, FEW, HUNDREDTH, QUARTER, RARE, SETTLED, TENTH
from .state import SMOOTH_PROBES, RobustState, restore

REJECTED = DOUBLE  # times the usual predicted change: a step that raises the loss by more is bad
SHORTER = (TENTH, 1 / DOUBLE)  # the smallest and the largest factor by which it is shortened
GREAT_DOUBT = QUARTER  # the variance of log scale from which on a probe may draw on it
FAINT = HUNDREDTH  # a schedule's multiplier, up to which it is no wonder that a probe sees nothing
UNSEEN = RARE  # probes in a row that could see nothing, after which the rule searches again
MOST_VAIN = 10  # times that this number is doubled, at most
HELD = int(1 / HUNDREDTH)  # losses that rose without a bend, after which the user is told
SECOND = 3  # the step that comes when the second loss is told
BACK_PRICE = float(FEW)  # the trust that looks cost after a setback
LEVEL_PRICE = DOUBLE  # and on a new level of the loss, where enough is left for a setback
TRIES = 20  # forward passes on one step, after which it is kept as it is

NO_OBJECTIVE = (
    f"{HELD} times the losses have risen although probed steps lowered the loss of their own batch as "
    "promised. So it is not the learning rate that raises them, and the rate is kept while that lasts. "
    "Either the data change (batches sorted by class, a weight that grows), or the loss is not what "
    "training is to reduce (a policy gradient, an adversary, bootstrapped targets): then no rule can "
    "judge a rate by it. Take a fixed rate there, or opt.freeze() once the rate is good."
)

# Parts that can be left out, to measure what they are for (benchmarks/ablations.py).
PARTS = {
    "noise": "the bound by noise: its excess loss against the gain of the next e-fold of time",
    "certain": "what the bound says for certain is done at once, not slowly",
    "return": "what the bound took from the scale it gives back when it allows more",
    "plateau": "a little is always hoped for, so that a plateau does not bring the scale down",
    "scatter": "less is hoped for where single losses differ by more than their mean",
    "unlike": "a search takes a tenth of its step, and begins anew if its batch was like no other",
    "early": "in the first hundred losses noise may cost up to twice the loss",
    "hold": "a rise of the losses that no probe can explain by a bend does not lower the scale",
    "share": "the search ends where a step promises its share of the loss",
    "curvature": "the aim at a bend: without it the bound alone limits the scale",
    "shortening": "a step that raises the loss is shortened (without it, only an infinite one)",
    "restraint": "a step that bends does not raise the scale; two in a row that went too far lower it",
    "gentle": "in the first hundred losses steps of Adam, or of what is like it, must bend less",
    "climb": "the scale may double at a probe, first and after straight probes (without it, times 1.2)",
    "pace": "with SGD's momentum the scale rises no faster than it shows what a rise does",
    "surprise": "a high loss asks for a probe, and counts less in the averages of the loss",
    "rises": "without momentum five rises of the loss in a row, or a rise to ten times, ask for a probe",
    "level": "surprises in short order begin these averages anew",
    "explosion": "a loss ten times as large as usual is followed by a probe, whatever the budget says",
    "reserve": "forward passes are kept for surprises and for great doubt",
    "again": "after probes that saw nothing the rule searches again",
    "wall": "with SGD a step too far whose noise costs more than the loss is shortened at once",
    "regain": "after a setback, when losses are as before, the scale comes back fast",
    "smooth": "with SGD a step that bends keeps the next probe from raising the scale, too",
    "floors": "the size of the gradients is averaged over fewer probes than the slope",
}


@dataclass(frozen=True)
class RobustRule:
    """Find, hold and defend a good rate: a filter on the logarithm of the scale.

    The first batch is searched for the order of magnitude, from below, so that nothing depends on the
    initial rate. Later a step is probed when the scale has become too uncertain, and shortened when
    the probe shows that it was bad. Between probes the losses of the steps bound the scale.

    Args:
        target: 2 - r*, the curvature over slope that is aimed at, and the largest share of the loss
            that a step may be predicted to gain. Smaller is more cautious; 1 aims at the minimum along
            the step, 2 at no gain.
        up: Largest factor per probe. Larger is faster after a plateau and more dangerous on leaving it.
        doubt: The variance of log scale at which a probe is due. Smaller means more probes.
        budget: The probes allowed: so many at once, and so many per step.
        without: Names of parts to leave out, for ablations; `rule.PARTS` says what each one does.

    >>> rule = RobustRule()
    >>> rule.is_due(rule.init())
    True
    """

    target: float = 4 / 3
    up: float = 1.2
    doubt: float = 0.09
    budget: tuple[float, float] = (40.0, 0.04)
    without: frozenset[str] = frozenset()

    exact_noise: ClassVar[bool] = False
    momentum_as_gradient: ClassVar[bool] = False
    chooses_lengths: ClassVar[bool] = True
    only_watches: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.target < 2:
            raise ValueError(f"RobustRule(target=) must lie between 0 and 2, not {self.target!r}.")
        if not 1 < self.up < math.inf:
            raise ValueError(f"RobustRule(up=) must be above 1 and finite, not {self.up!r}.")
        if not 0 < self.doubt < 1:
            raise ValueError(f"RobustRule(doubt=) must lie between 0 and 1, not {self.doubt!r}.")
        is_pair = isinstance(self.budget, tuple | list) and len(self.budget) == 2
        if not (is_pair and all(0 <= number < math.inf for number in self.budget)):
            raise ValueError(
                f"RobustRule(budget=) holds two finite numbers of at least 0, not {self.budget!r}."
            )
        if not set(self.without) <= PARTS.keys():
            raise ValueError(
                f"RobustRule(without=) holds names of parts, not {self.without!r}. "
                f"The parts are: {', '.join(PARTS)}."
            )

    def init(self) -> RobustState:
        """Return the state before the first step."""
        return RobustState()

    def restore(self, plain: Mapping[str, Any]) -> RobustState:
        """Return the state that a checkpoint carries, also one of 0.1.0; raise ValueError for others."""
        return restore(plain)

    def is_due(self, state: RobustState) -> bool:
        """Say whether the next step is probed: the scale is uncertain, and the budget allows it."""
        if not state.search.is_done and (state.search.found or not state.belief.probes):
            # The first search, whatever it costs; or one whose last probe could not be judged.
            return True
        if state.search.is_untried:
            return True  # what a search found is tried under a probe
        is_faint = 0 < state.bound.peak <= FAINT  # a warm-up begins: keep the probes for its end
        variance, is_asking = state.belief.variance, state.alarm.is_asking
        is_uncertain = variance >= (GREAT_DOUBT if is_faint else self.doubt)
        is_uncertain = (is_uncertain or not state.search.is_done) and state.rested >= state.pause
        if not (is_uncertain or is_asking):
            return False
        if alarm.is_free(state.alarm) and "explosion" not in self.without:
            return True
        return self._can_pay(state)

    def _can_pay(self, state: RobustState) -> bool:
        """Say whether the budget allows a probe, for a surprise or great doubt with its reserve."""
        allowed = budget.allowed(self.budget, state.t)
        is_urgent = state.alarm.is_asking or state.belief.variance >= GREAT_DOUBT
        if is_urgent and "reserve" not in self.without:
            allowed += budget.reserve(self.budget, state.t)
        return state.forwards < allowed

    def _allow_looks(self, state: RobustState) -> None:
        """Allow some forward passes, whatever was spent, for a scale that is to come back."""
        state.forwards = budget.spent_before_looks(
            self.budget, state.t, state.forwards, with_reserve="reserve" not in self.without
        )

    def is_searching(self, state: RobustState) -> bool:
        """Say whether the order of magnitude is still to be found."""
        return not state.search.is_done

    def search_again(self, state: RobustState) -> None:
        """Forget everything that is measured in units of the rate; the losses stay known."""
        _, per_step = self.budget
        state.forwards = min(state.forwards, int(per_step * state.t))  # a new search, a new budget
        state.unseen = state.vain = state.straight = state.calm = state.bent = 0
        state.smooth = SMOOTH_PROBES
        state.search, state.belief = search.Search(), belief.Belief()
        state.bound.peak = state.bound.lowered_scale = state.seen_scale = state.highest = 0.0
        setback.forget(state.setback)

    def metrics(self, state: RobustState) -> dict[str, float]:
        """Return the standard deviation of log scale."""
        return {"log_scale_deviation": math.sqrt(state.belief.variance)}

    def complaint(self, state: RobustState) -> str:
        """Say it if the losses are not what the rule reduces."""
        return NO_OBJECTIVE if state.held >= HELD else ""

    def is_new_level(self, state: RobustState) -> bool:
        """Say whether the averages of the loss began anew with the last loss, not with the first."""
        return state.losses == 1 and state.t > 2

    # Every step, told one step later

    def notice(self, state: RobustState, loss: float, scale: float, setting: Setting) -> float:
        """Learn from the loss of a step; return a factor for the scale, above 1 only to give back."""
        state.t += 1
        state.rested += 1 - setting.beta
        if state.t == SETTLED:  # what was spent, or saved, no longer counts
            state.forwards = int(budget.allowed(self.budget, SETTLED))
        if setting.multiplier > state.bound.peak:
            state.bound.peak = setting.multiplier
        belief.drift(state.belief, state.t)
        if state.search.has_failed:
            state.search = search.Search(is_done=True)
        if not abs(loss) < alarm.HUGE:  # its own proof: no probe has to confirm it
            state.sound_scale = state.sound_scale or scale
            return DOWN if scale > LEAST_SCALE else 1.0
        if state.t == SECOND and self._was_unlike(state, loss):
            self.search_again(state)
            state.losses = 0
        is_surprise, is_new_level = self._average_loss(state, loss)
        back = 1.0
        if state.sound_scale:
            # A batch that is not finite moves nothing. If the next one is as usual, it was the batch.
            back = 1.0 if is_surprise else state.sound_scale / scale
            state.sound_scale = 0.0
            if is_surprise:  # confirmed
                state.bound.lowered_scale = 0.0
        scale *= back
        is_rising = alarm.is_rising(state.alarm, loss)
        has_jumped = alarm.has_jumped(state.alarm, loss)
        if setting.beta or "rises" in self.without:
            # With momentum losses rise and fall in waves, at any rate.
            is_rising = has_jumped = False
        if is_surprise or is_rising or has_jumped:
            is_exploding = has_jumped and alarm.is_believed(state.alarm)
            is_exploding = is_exploding or loss > alarm.EXPLOSION * bound.size(state.bound)
            alarm.ask(state.alarm, is_exploding=is_exploding)
        if is_new_level and limits.has_fallen(scale, state.search.found):
            # What lowered the scale so far no longer holds, and nothing else is known.
            state.search, state.seen_scale, state.vain = search.Search(), 0.0, 0
            if alarm.spend_trust(state.alarm, LEVEL_PRICE, leaving=BACK_PRICE):
                self._allow_looks(state)
        if setback.ends(state.setback, loss, scale, setting.beta):
            if alarm.spend_trust(state.alarm, BACK_PRICE):
                self._allow_looks(state)
                belief.doubt(state.belief)
            else:
                setback.forget(state.setback)  # a way back needs a probe at every step
        if scale < LEAST_SCALE:
            return back
        if is_surprise and setting.multiplier > 1:
            state.bound.lowered_scale = 0.0
            return back * DOWN  # a rate above all that was searched needs no further proof
        return back * limits.bounded(self, state, scale, setting)

    def _was_unlike(self, state: RobustState, loss: float) -> bool:
        """Say whether this second loss of a training shows that the first batch was like no other.

        That batch must have been searched. A search takes so short a step that the loss of a batch like
        the first cannot fall so far. What such a batch says of slope, curvature and gain would be
        remembered for hundreds of steps.
        """
        is_searched = state.losses == 1 and state.search.found > 0
        is_lower = 0 < loss < search.UNLIKE * state.bound.recent
        return is_searched and is_lower and "unlike" not in self.without

    def _average_loss(self, state: RobustState, loss: float) -> tuple[bool, bool]:
        """Average a loss; say whether it was a surprise, and whether the averages begin anew with it.

        A loss that is surprisingly high asks for a probe. Several in short order are another level.
        """
        state.losses += 1
        usual = loss
        if "surprise" not in self.without:
            # One outlier must pass neither for a rise of the loss nor for noise.
            usual = alarm.unsurprising(state.alarm, loss, state.losses)
        is_surprise = usual < loss
        is_new = is_surprise or state.alarm.surprises > 0  # else there is nothing to count
        is_new = is_new and alarm.is_new_level(state.alarm, is_surprise=is_surprise)
        is_new = is_new and "level" not in self.without
        if is_new:
            state.losses, usual = 1, loss
            state.bound.lowered_scale = 0.0
            belief.doubt(state.belief)
        alarm.average(state.alarm, usual, state.losses)
        bound.average(state.bound, usual, state.losses)
        return is_surprise, is_new

    # A probed step

    def first_length(self, proposal: Proposal) -> float:
        """Return the share of a step at rate 1 with which the search begins: just visible."""
        return search.first_length(proposal)

    def judge(self, state: RobustState, seen: Observation) -> Decision:
        """Learn from a probe, and say what becomes of step and scale."""
        was_exploding, state.alarm.is_exploding = state.alarm.is_exploding, False
        was_paid, was_searching = self._can_pay(state), not state.search.is_done
        was_untried, state.search.is_untried = state.search.is_untried, False
        decision = self._judge(state, seen)
        if was_untried and decision.word in ("keep", "up"):  # it has proved good
            state.highest = max(state.highest, state.search.found)
        if was_exploding and not was_searching:
            is_right = decision.again is not None or decision.factor < 1
            alarm.answer(state.alarm, was_right=is_right, was_paid=was_paid)
        if seen.step.setting.multiplier > FAINT:
            self._count_unseen(state, decision)
        return decision

    def _count_unseen(self, state: RobustState, decision: Decision) -> None:
        """Search again after several probes in a row that saw nothing: a dead rate must not stay.

        Where a search changes nothing, as after convergence, the next one waits twice as long.
        """
        if decision.word != "uninformative":
            state.unseen = 0
            is_step_kept = decision.again is None and decision.word != "search"
            state.vain = 0 if is_step_kept else state.vain
        elif state.search.is_done:
            state.unseen += 1
            if state.unseen >= UNSEEN * DOUBLE**state.vain and "again" not in self.without:
                state.search, state.unseen = search.Search(), 0
                state.vain = min(state.vain + 1, MOST_VAIN)

    def _judge(self, state: RobustState, seen: Observation) -> Decision:
        state.forwards += 1
        step = seen.step
        if not math.isfinite(step.loss) or not step.slope * step.slope > 0:
            return Decision(1.0, math.nan, "uninformative")
        ratio = 2 * (step.loss - seen.loss_after) / step.slope
        if not math.isfinite(seen.loss_after):
            ratio = -math.inf
        if not state.search.is_done:
            return self._search(state, seen, ratio)
        bend = 2 - ratio
        if seen.tries < TRIES:
            again = self._part_to_keep(state, seen, bend)
            if again < 1:
                if "regain" not in self.without:
                    setback.begin(state.setback, scale_of(step), state.alarm, state.losses)
                belief.doubt(state.belief)
                state.bound.lowered_scale = 0.0
                return Decision(1.0, ratio, "reject", again)
        if not math.isfinite(seen.loss_after):
            return Decision(DOWN, ratio, "down")
        is_visible = search.is_visible(step)
        limits.count_bends(self, state, step, bend, is_shortened=seen.tries > 1)
        is_way_back = setback.is_way_back(state.setback, scale_of(step))
        if is_way_back:
            if not is_visible:
                state.seen_scale = state.setback.scale
                setback.forget(state.setback)
                state.unseen = UNSEEN  # it searches now, unless it has searched here in vain
                return Decision(1.0, ratio, "uninformative")
            _look_back(state, seen, is_bending=limits.is_bending(self, state, step, bend))
        self._learn(state, seen, with_curvature=is_visible)
        aimed = limits.aimed_factor(self, state, step)
        largest = limits.largest_factor(self, state, step, bend)
        factor = min(max(aimed, DOWN), largest)
        limit = limits.name_of(self, state, step, bend, aimed=aimed, largest=largest)
        is_too_far = factor < 1 or limits.went_too_far(self, state, step, bend)
        bound.confine(state.bound, scale_of(step) * (factor if is_too_far else aimed))
        is_waiting = limits.may_cross_a_valley(self, state, step)  # for another straight probe
        if is_way_back and factor <= 1 and not is_waiting:
            setback.forget(state.setback)  # something else limits the scale
        if is_visible and seen.tries == 1:
            state.seen_scale = scale_of(step)
        if factor > 1:
            state.rested = 0.0
            state.pause = limits.PAUSE if limits.is_paced(self, state, step, bend) else 0.0
        # This probe was the answer, unless the loss of its own batch rose: then the next step is asked.
        state.alarm.is_asking = limits.has_risen(step, bend)
        state.alarm.is_exploding = state.alarm.is_asking and alarm.is_believed(state.alarm)
        if factor > self.up and limits.shows_at_once(state, step):
            # The next step shows whether it was right. Averages under which a scale has fallen, though
            # steps are straight, are of another place.
            is_elsewhere = limits.is_coming_back(state, step)
            belief.doubt(state.belief, belief.UNKNOWN if is_elsewhere else GREAT_DOUBT)
        word = _word(factor) if is_visible else "uninformative"
        return Decision(factor, ratio, word, limit=limit)

    def _search(self, state: RobustState, seen: Observation, ratio: float) -> Decision:
        if seen.tries == 1:
            state.search.found, state.search.has_looked = 0.0, False
        elif state.search.found:
            state.search.is_done = True
            state.forwards -= 1  # it teaches nothing, so it does not count
            state.search.is_untried = True
            return Decision(state.search.found / seen.step.rate, ratio, "search", limit="search")
        bend, room = 2 - ratio, limits.room(self, state, seen)
        again = search.next_length(state.search, seen, bend, room)
        if again is not None:
            return Decision(1.0, ratio, "search", again)
        if state.belief.probes and not search.is_visible(seen.step):
            state.search = search.Search(has_failed=True)
            return Decision(1.0, math.nan, "uninformative")
        if math.isfinite(bend) and bend > 0:
            state.belief = belief.Belief()  # what was known belongs to where it searched before
            self._learn(state, seen)
        factor = search.final_factor(bend, seen.step.setting.beta, room)
        found = factor * seen.step.rate  # in a search, of the schedule's reference
        # Where slopes vanish, as on a saddle or after convergence, all lengths look straight. So a later
        # search stays near what a probe has seen, and goes farther only after one in vain.
        farther = search.LONGER if limits.is_beginning(state) else search.BEYOND
        most = state.seen_scale * farther ** max(state.vain, 1) or math.inf
        state.search.found = min(found, most)
        state.bound.lowered_scale = 0.0
        if "unlike" in self.without:
            return Decision(state.search.found / seen.step.rate, ratio, "search", limit="search")
        state.search.is_done = False  # the step that is taken is probed, too
        return Decision(1.0, ratio, "search", search.TAKEN)

    def _is_bad(self, state: RobustState, seen: Observation) -> bool:
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
        return is_high and "shortening" not in self.without

    def _part_to_keep(self, state: RobustState, seen: Observation, bend: float) -> float:
        """Return the part of a step that is probed again if the step is bad; 1 if it is not.

        Nothing is learnt from a bad one: the curvature out there is not that of the step to come.
        """
        affordable = limits.affordable_part(self, state, seen.step, bend)
        if not self._is_bad(state, seen):
            return affordable
        least, most = SHORTER
        if not math.isfinite(bend):
            return least
        return min(max(self.target / bend, least), most, affordable) if bend > 0 else most

    def _learn(self, state: RobustState, seen: Observation, *, with_curvature: bool = True) -> None:
        with_curvature = with_curvature and "curvature" not in self.without
        belief.learn(
            state.belief,
            belief.measure(seen, with_curvature=with_curvature, usual_loss=state.bound.recent),
            floors={} if "floors" in self.without else belief.FLOORS,
        )


def _look_back(state: RobustState, seen: Observation, *, is_bending: bool) -> None:
    """After a setback, stay where a step bends; else, if it goes downhill, believe this probe alone."""
    if is_bending:
        setback.forget(state.setback)
    elif seen.step.slope > 0:
        usual = state.bound.recent
        news = belief.measure(seen, with_curvature=True, usual_loss=usual)
        belief.replace(state.belief, news)


def _word(factor: float) -> str:
    return "up" if factor > 1 else "down" if factor < 1 else "keep"

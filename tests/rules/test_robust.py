"""RobustRule: what it makes of its parts, whatever is seen."""

import itertools
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probstep.rules import Decision, Norms, Observation, Proposal, RobustRule, Setting
from probstep.rules.robust import search
from probstep.rules.robust.belief import Belief
from probstep.rules.robust.limits import (
    BENDING,
    BENT_PROBES,
    CLIMB,
    DOWN,
    GENTLY_BENDING,
    GENTLY_TOO_FAR,
    MORE_BENT_PROBES,
    PACE,
    PAUSE,
    PROMISE,
)
from probstep.rules.robust.probes import SHORTER, TRIES, UNSEEN
from probstep.rules.robust.rule import PARTS
from probstep.rules.robust.search import VISIBLE, Search
from probstep.rules.robust.state import RobustState


def settled(**belief):
    """A state after the search, with a belief of nine probes."""
    known = {"cosine": 1.0, "steepness": 1.0, "probes": 9, **belief}
    return RobustState(t=9, search=Search(is_done=True), belief=Belief(**known))


def seen(loss_after, loss=1.0, slope=0.1, rate=0.1, beta=0.0, tries=1, resolution=0.0):
    setting = Setting(beta=beta)
    step = Proposal(loss, slope, resolution, rate, setting, Norms(gradient=1.0, length=rate))
    return Observation(step, loss_after, tries)


any_floats = st.tuples(
    st.floats(), st.floats(), st.floats(), st.floats(min_value=0), st.floats(min_value=0)
)


@given(st.lists(any_floats, max_size=30), st.floats(0, 0.99), st.floats(1e-6, 10), st.booleans())
def test_factors_are_positive_and_finite_whatever_is_seen(steps, beta, multiplier, builds_up):
    rule = RobustRule()
    state = rule.init()
    setting = Setting(multiplier, beta, builds_up)
    for f, phi, f_plus, gradient, length in steps:
        step = Proposal(f, phi, 1e-7, 0.1, setting, Norms(gradient, length))
        decision = rule.judge(state, Observation(step, f_plus))
        assert 0 < decision.factor < math.inf
        assert decision.again is None or 0 < decision.again < math.inf
        assert 0 < rule.notice(state, f, 0.1, setting) < math.inf
        assert all(math.isfinite(number) for number in rule.metrics(state).values())


def test_ten_thousand_losses_that_are_not_finite_leave_a_scale_above_0():
    rule, scale = RobustRule(), 1.0
    state = settled(relative_slope=1.0)
    for _ in range(10_000):
        scale *= rule.notice(state, math.nan, scale, Setting())
    assert scale > 0


def test_the_search_is_due_before_anything_else_and_within_no_budget():
    rule = RobustRule(budget=(0.0, 0.0))
    state = rule.init()
    assert rule.is_searching(state)
    assert rule.is_due(state)
    state.search.is_done = True
    assert not rule.is_searching(state)
    assert not rule.is_due(state)


def test_a_probe_is_due_in_doubt_and_within_the_budget():
    rule = RobustRule(doubt=0.09, budget=(10.0, 0.5))
    state = settled(variance=0.08)
    assert not rule.is_due(state)
    state.belief.variance = 0.09
    assert rule.is_due(state)
    state.forwards = 14
    assert rule.is_due(state)
    state.forwards = 15
    assert not rule.is_due(state)


def test_after_a_thousand_steps_an_account_of_forward_passes_begins_anew():
    rule = RobustRule()
    for spent in (0, 139):  # unused passes lapse, and what the reserve has spent is forgiven
        state = settled(variance=0.2)
        state.t, state.forwards = 999, spent
        rule.notice(state, 1.0, 0.1, Setting())
        state.belief.variance, due = 0.2, []
        for t in range(1000, 1100):
            state.t = t
            due.append(rule.is_due(state))
            state.forwards += due[-1]
        assert sum(due) == 4


def test_layers_that_are_unfrozen_bring_passes_for_their_search_and_no_more():
    rule, state = RobustRule(), settled(variance=1.0)
    state.t, state.forwards = 5000, 240
    rule.search_again(state)
    assert state.forwards == 200


def test_every_probe_counts_as_a_forward_pass_also_one_that_says_nothing():
    rule = RobustRule()
    state = rule.init()
    for k, loss_after in enumerate((0.5, math.nan, math.inf, 2.0), start=1):
        rule.judge(state, seen(loss_after))
        assert state.forwards == k
    rule.judge(state, seen(1.0, loss=math.nan))
    assert state.forwards == 5


@pytest.mark.parametrize("slope", [0.0, math.nan])
def test_without_a_slope_a_probe_says_nothing(slope):
    state = settled()
    decision = RobustRule().judge(state, seen(0.5, slope=slope))
    assert decision.factor == 1.0
    assert decision.word == "uninformative"
    assert state.belief == settled().belief


def test_a_probe_moves_the_scale_towards_the_aim_by_at_most_its_limits():
    rule = RobustRule(without=frozenset({"noise"}))  # of which this state knows nothing
    for curvature, expected in ((1e-3, CLIMB), (1e3, DOWN)):
        state = settled(root_curvature=curvature, variance=1e-9, slope=1.0)
        state.losses = state.t - 1
        # The step itself shows no curvature, and one probe counts little beside nine.
        step = Proposal(1.0, 0.1, rate=0.1, norms=None)
        assert rule.judge(state, Observation(step, 0.9)).factor == expected


@pytest.mark.parametrize(
    ("multiplier", "factor"), [(1.0, 0.5), (0.8, 0.625), (0.5, 1.0), (0.1, 1.0)]
)
def test_after_the_peak_of_a_schedule_curvature_lowers_only_what_is_too_long_as_scheduled(
    multiplier, factor
):
    rule = RobustRule(without=frozenset({"noise"}))
    state = settled(root_curvature=math.sqrt(rule.target / 0.05), variance=1e-9)
    state.bound.peak = 1.0
    # By the averages the largest rate is 0.05. The step itself shows no curvature.
    setting = Setting(multiplier=multiplier)
    step = Proposal(1.0, 0.1, rate=0.1 * multiplier, setting=setting)
    assert rule.judge(state, Observation(step, 0.9)).factor == pytest.approx(factor)


def test_momentum_that_goes_uphill_leaves_step_and_scale_alone():
    state = settled(cosine=-1.0)
    decision = RobustRule().judge(state, seen(1.11, slope=-0.1, beta=0.9))
    assert decision.again is None
    assert decision.factor == 1.0


def test_a_step_that_went_too_far_does_not_raise_the_scale():
    rule = RobustRule(up=2.5)
    state = settled(root_curvature=1e-9)
    bend = 1.4  # above the target of 4/3; the averages still ask for more
    step = Proposal(1.0, 0.1, rate=0.1)
    after = 1.0 - (2 - bend) * 0.1 / 2
    assert rule.judge(state, Observation(step, after)).factor == 1.0
    freely = RobustRule(up=2.5, without=frozenset({"restraint"}))
    assert freely.judge(state, Observation(step, after)).factor == 2.5


def test_two_steps_in_a_row_that_went_too_far_lower_the_scale_whatever_the_averages_say():
    rule, state = RobustRule(), settled(root_curvature=1e-9)
    step = Proposal(1.0, 0.1, rate=0.1)
    far, good = (Observation(step, 1.0 - (2 - bend) * 0.05) for bend in (1.6, 0.5))
    uphill = Observation(replace(step, slope=-0.1), 1.0)
    assert rule.judge(state, far).factor == 1.0
    rule.judge(state, uphill)  # of which nothing is known
    assert rule.judge(state, far).factor == pytest.approx(rule.target / 1.6)
    rule.judge(state, good)
    assert rule.judge(state, far).factor == 1.0


def test_steps_that_cannot_be_seen_lower_nothing_however_often_they_seem_to_bend():
    rule, state = RobustRule(), settled(root_curvature=1e-9)
    unseen = seen(1.0, slope=1e-9, resolution=1e-8)  # the loss has not changed: a bend of 2
    assert [rule.judge(state, unseen).factor for _ in range(UNSEEN)] == [1.0] * UNSEEN


def test_a_step_that_rises_by_far_more_than_usual_is_shortened():
    rule, (least, most) = RobustRule(), SHORTER
    state = settled(variance=0.1)
    decision = rule.judge(state, seen(1.3))
    assert decision.word == "reject"
    assert least <= decision.again <= most
    assert state.belief.variance == 1.0
    assert rule.judge(settled(), seen(1.1)).again is None  # twice of what is usual is not far more


@pytest.mark.parametrize("after", [math.inf, math.nan])
def test_a_step_after_which_the_loss_is_not_finite_is_shortened_at_once_to_a_tenth(after):
    assert RobustRule().judge(settled(), seen(after)).again == SHORTER[0]


def test_a_step_that_stays_bad_is_kept_in_the_end_and_the_scale_comes_down():
    rule = RobustRule()
    assert rule.judge(settled(), seen(1.3, tries=TRIES)).again is None
    at_last = rule.judge(settled(), seen(math.inf, tries=TRIES))
    assert at_last == Decision(DOWN, -math.inf, "down")


def test_below_the_rounding_of_the_loss_a_probe_teaches_no_curvature():
    state = settled(root_curvature=3.0)
    decision = RobustRule().judge(state, seen(0.95, resolution=0.1 / VISIBLE))
    assert decision.word == "uninformative"
    assert state.belief.root_curvature == 3.0
    RobustRule().judge(state, seen(0.95, resolution=0.09 / VISIBLE))
    assert state.belief.root_curvature != 3.0


def nothing(k):
    """A probe that sees nothing, for one of several reasons."""
    reasons = ({"slope": 0.0}, {"loss": math.nan}, {"resolution": 1.0})
    return seen(0.95, **reasons[k % len(reasons)])


def test_after_five_probes_in_a_row_that_see_nothing_it_searches_again():
    rule, state = RobustRule(), settled()
    for k in range(UNSEEN):
        assert not rule.is_searching(state)
        rule.judge(state, nothing(k))
    assert rule.is_searching(state)


def test_each_search_in_vain_makes_the_next_one_wait_twice_as_long():
    rule, state, waits = RobustRule(), settled(), []
    for k in range(100):
        rule.judge(state, nothing(2))
        if rule.is_searching(state):
            waits.append(k)
            state.search = Search(is_done=True)
    assert [b - a for a, b in itertools.pairwise([-1, *waits])] == [5, 10, 20, 40]
    rule.judge(state, seen(0.95))
    assert state.vain == 0


@pytest.mark.parametrize(
    ("losses", "vain", "most"),
    [(8, 0, 1.0), (8, 1, 1.0), (8, 2, 10.0), (200, 0, 0.2), (200, 1, 0.2), (200, 2, 0.4)],
)
def test_a_later_search_stays_near_what_could_last_be_seen(losses, vain, most):
    rule, state = RobustRule(without=frozenset({"share"})), settled()
    state.losses, state.t = losses, losses + 1
    state.seen_scale, state.vain, state.search = 0.1, vain, Search()
    step, tries = Proposal(1.0, 1e-6, 1e-9, rate=1e-4, norms=Norms(1e-2, 1e-4)), 1
    while rule.is_searching(state):  # at any length the loss falls as promised, as on a saddle
        decision = rule.judge(state, Observation(step, 1.0 - step.slope, tries))
        step, tries = step.times(decision.again or 1.0), tries + 1
    assert state.search.found == pytest.approx(most)


def test_a_probe_that_sees_something_ends_the_row_of_those_that_do_not():
    rule, state = RobustRule(), settled()
    for k in range(UNSEEN - 1):
        rule.judge(state, nothing(k))
    rule.judge(state, seen(0.95))
    rule.judge(state, nothing(0))
    assert not rule.is_searching(state)


def test_under_a_faint_schedule_probes_that_see_nothing_do_not_count():
    rule, state = RobustRule(), settled()
    step = replace(nothing(0).step, setting=Setting(multiplier=0.01))
    for _ in range(UNSEEN):
        rule.judge(state, Observation(step, loss_after=0.95))
    assert not rule.is_searching(state)


def test_a_search_again_stays_within_the_budget():
    rule, state = RobustRule(budget=(10.0, 0.0)), settled(variance=1e-9)
    state.search = Search()
    assert rule.is_due(state)
    state.forwards = 10
    assert not rule.is_due(state)


def test_a_warm_up_that_begins_faintly_is_probed_seldom_and_not_never():
    rule, state, faint, probes = RobustRule(), settled(variance=0.2), Setting(multiplier=1e-3), 0
    unseen = Proposal(1.0, slope=1e-9, resolution=1e-8, setting=faint, norms=Norms(1.0, 1e-4))
    for _ in range(1000):
        rule.notice(state, 1.0, 0.1, faint)
        if rule.is_due(state):
            rule.judge(state, Observation(unseen, loss_after=1.0))
            probes += 1
    assert 1 < probes < 20
    rule.notice(state, 1.0, 0.1, Setting(multiplier=0.1))
    assert rule.is_due(state)


def test_a_search_remembers_the_scale_that_it_found():
    rule = RobustRule()
    state = rule.init()
    rule.judge(state, seen(0.95))
    rule.judge(state, seen(0.95, tries=2))
    assert state.search.found == pytest.approx(0.1 * search.final_factor(bend=1.0, beta=0.0))


def test_a_search_takes_a_tenth_of_the_step_that_it_found_and_probes_it():
    rule = RobustRule()
    state = rule.init()
    rule.judge(state, seen(0.95))
    assert rule.judge(state, seen(0.95, tries=2)).again == search.TAKEN
    assert rule.is_searching(state)
    taken = Observation(seen(0.95).step.times(search.TAKEN), loss_after=0.99, tries=3)
    decision = rule.judge(state, taken)
    assert decision.again is None
    assert not rule.is_searching(state)
    assert taken.step.rate * decision.factor == pytest.approx(state.search.found)


def searched(rule, loss=1e6):
    """The state after a search on a batch of this loss, when that loss has been told."""
    state = rule.init()
    step = Proposal(loss, slope=0.1 * loss, rate=0.1, norms=Norms(1.0, 0.1 * loss))
    judged(rule, state, step, bent=step.slope)
    rule.notice(state, loss, 0.1, Setting())
    return state


@pytest.mark.parametrize(("second", "is_unlike"), [(9e4, True), (2e5, False)])
def test_a_second_loss_far_below_the_first_begins_all_anew(second, is_unlike):
    rule = RobustRule()
    state = searched(rule)
    rule.notice(state, second, 0.1, Setting())
    assert rule.is_searching(state) == is_unlike
    assert state.losses == (1 if is_unlike else 2)
    assert state.bound.recent == second if is_unlike else state.bound.recent > second


def test_only_the_second_loss_can_begin_all_anew():
    rule = RobustRule()
    state = searched(rule)
    for loss in (5e5, 1.0, 1.0):
        rule.notice(state, loss, 0.1, Setting())
        assert not rule.is_searching(state)


def test_its_metrics_are_the_deviation_of_log_scale():
    assert RobustRule().metrics(settled(variance=0.25)) == {"log_scale_deviation": 0.5}


PLAIN = Setting()


def answers(rule, steps=400, setting=PLAIN):
    """What a rule answers to random probes and losses at random scales."""
    rng, state, given = random.Random(0), settled(), []
    state.t = 1
    for k in range(steps):
        scale, loss = 10 ** rng.uniform(-4, 1), 10 * math.exp(-k / 30) + rng.expovariate(100.0)
        loss += 1e3 if k % 50 > 44 else 0.0  # a new level for a while
        gradient, length = rng.uniform(1, 3), scale * rng.uniform(0.5, 2)
        slope, bent = gradient * length * rng.uniform(0.2, 1), length**2 * rng.expovariate(0.2)
        if k >= 300:  # losses that rise while steep steps do not bend
            loss, bent = 1e4 * 1.05 ** (k - 300), 0.0
            gradient, slope = 1e6 * gradient, 1e6 * slope
        if k % 40 > 35:  # probes that are far less steep than the others
            slope, bent = 1e-3 * slope, 1e-3 * bent
        if k % 20 == 7:  # momentum that goes uphill
            slope = -slope
        if k % 20 == 13:  # a plateau that ends
            bent = -slope
        resolution = abs(slope) if k % 100 > 90 else 0.0  # probes that see nothing
        step = Proposal(loss, slope, resolution, scale, setting, Norms(gradient, length))
        given += judged(rule, state, step, bent)
        given.append(rule.part_to_take(state, loss, is_probed=False))
        given.append(rule.notice(state, loss, scale, setting))
    return given


def judged(rule, state, step, bent):
    """What a rule answers to the probes of a step, one for each length that it asks for."""
    length, given = 1.0, []
    for tries in range(1, 41):
        after = step.loss - length * step.slope + length**2 * bent / 2
        given.append(rule.judge(state, Observation(step.times(length), after, tries)))
        if given[-1].again is None:
            return given
        length *= given[-1].again
    raise AssertionError("It never ends.")


# These change only which step is probed.
QUESTIONS = {"reserve", "rises", "explosion"}
BOUNDS = {"plateau"}  # of losses that stand still: test_bound.py
SETBACKS = {"regain"}  # of losses that come back: test_setback.py


@pytest.mark.parametrize("part", sorted(PARTS.keys() - QUESTIONS - BOUNDS - SETBACKS))
def test_a_part_left_out_changes_what_is_answered(part):
    # A part that is for SGD or for Adam alone says so.
    setting = Setting(beta=0.9, builds_up=True) if "SGD" in PARTS[part] else PLAIN
    setting = Setting(beta=0.9) if "Adam" in PARTS[part] else setting
    without = RobustRule(without=frozenset({part}))
    assert answers(without, setting=setting) != answers(RobustRule(), setting=setting)


@pytest.mark.parametrize(
    "settings",
    [
        {"target": 0.0},
        {"target": 2.0},
        {"up": 1.0},
        {"up": math.nan},
        {"doubt": 0.0},
        {"budget": (-1, 0)},
        {"budget": (1.0,)},
        {"budget": (math.nan, 1.0)},
        {"without": frozenset({"everything"})},
    ],
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(ValueError, match=f"{next(iter(settings))}="):
        RobustRule(**settings)


STRAIGHT = {"loss_after": 0.9, "slope": 0.1}  # falls by all of its slope


def test_a_scale_that_has_fallen_may_double_after_three_straight_probes_and_is_then_watched():
    rule = RobustRule(without=frozenset({"noise"}))
    state = settled(variance=0.05, root_curvature=0.1)
    state.losses, state.t = 500, 500  # the rate has been found long ago
    state.search.found, state.highest = 0.2, 1.01  # ten times what it is now
    for _ in range(2):
        assert rule.judge(state, seen(**STRAIGHT)).factor == rule.up
        assert not rule.is_due(state)
    assert rule.judge(state, seen(**STRAIGHT)).factor == 2.0
    assert rule.is_due(state)
    assert state.belief.variance == 1.0  # the averages are of another place
    state.highest = 0.99
    assert rule.judge(state, seen(**STRAIGHT)).factor == rule.up
    state.highest = 1.01
    calm = RobustRule(without=frozenset({"noise", "climb"}))
    assert calm.judge(state, seen(**STRAIGHT)).factor == rule.up


def probed_after_a_search(rule, state, curvature, proof):
    """Search along a step of slope 1 with this curvature; return what the next step's probe led to."""
    state.search = Search()
    step = Proposal(1.0, slope=1.0, rate=1.0, norms=Norms(1.0, 1.0)).times(1e-6 / curvature)
    for tries in range(1, 40):
        after = 1.0 - step.slope * (1 - curvature * step.rate / 2)
        decision = rule.judge(state, Observation(step, after, tries))
        if decision.again is None:
            break
        step = step.times(decision.again)
    step = Proposal(1.0, state.search.found, 0.0, state.search.found, norms=Norms(1.0, 1.0))
    return rule.judge(state, Observation(step, proof))


@pytest.mark.parametrize("curvatures", [(1.0, 1e3), (1e3, 1.0)])
def test_what_counts_as_fallen_is_the_highest_scale_that_was_found_and_has_proved_good(curvatures):
    rule, state, found = RobustRule(), RobustState(), []
    for curvature in curvatures:  # another batch, another rate
        probed_after_a_search(rule, state, curvature, proof=0.99)
        found.append(state.search.found)
    assert found[0] != found[1]
    assert state.highest == max(found)
    rule.search_again(state)  # layers were unfrozen: nothing of that holds any more
    assert state.highest == 0.0


def test_a_scale_that_was_found_and_raised_the_loss_is_not_the_highest():
    state = RobustState()
    assert probed_after_a_search(RobustRule(), state, 1.0, proof=50.0).word == "reject"
    assert state.search.found > 0
    assert state.highest == 0.0


@pytest.mark.parametrize(
    ("losses", "steps", "expected"), [(100, 101, 2.0), (101, 102, 1.2), (9, 500, 1.2)]
)
def test_while_training_begins_it_climbs_faster_far_below_what_curvature_allows(
    losses, steps, expected
):
    rule, state = (
        RobustRule(without=frozenset({"noise"})),
        settled(root_curvature=0.1, variance=1e-9),
    )
    state.losses, state.t = losses, steps
    bent = seen(0.91, slope=0.1)  # a bend of 0.2, so it is not straight
    assert rule.judge(state, bent).factor == expected


def test_a_climb_allows_for_the_momentum_that_has_yet_to_build_up():
    factors = {}
    for builds_up in (False, True):
        state = settled(root_curvature=0.6, variance=1e-9)
        state.t = 1
        step = seen(0.91, slope=0.1).step
        step = replace(step, setting=Setting(beta=0.9, builds_up=builds_up))
        rule = RobustRule(without=frozenset({"pace"}))
        factors[builds_up] = rule.judge(state, Observation(step, 0.91)).factor
    assert factors == {False: CLIMB, True: RobustRule().up}


def climbing(rested=10.0):
    """A rule whose averages let the scale double, and its state so long after the last rise."""
    state = settled(root_curvature=1e-3, variance=1e-9)
    state.t, state.rested = 100, rested
    state.losses = state.t - 1
    return RobustRule(without=frozenset({"noise"})), state


def bent_by(bend, beta=0.9, *, builds_up=True):
    """A step that sums gradients with this momentum, long after its start, and its bend."""
    found = seen(0.9 + bend * 0.05, slope=0.1)
    return replace(found, step=replace(found.step, setting=Setting(beta=beta, builds_up=builds_up)))


@pytest.mark.parametrize("rested", [0.1, 0.4, 1.0])
def test_with_momentum_the_scale_rises_no_faster_than_momentum_shows_what_a_rise_does(rested):
    rule, state = climbing(rested)
    decision = rule.judge(state, bent_by(0.2))
    assert (decision.factor, decision.limit) == (PACE**rested, "momentum")
    assert state.rested == 0.0


def test_the_time_of_momentum_is_counted_from_the_last_rise():
    rule, state = climbing()
    rule.judge(state, bent_by(0.2))
    for _ in range(5):
        rule.notice(state, 1.0, 0.1, Setting(beta=0.9))
    assert state.rested == pytest.approx(0.5)
    rule.judge(state, bent_by(BENDING + 0.01))
    assert state.rested == pytest.approx(0.5)  # nothing rose


def test_without_sums_of_gradients_or_on_straight_steps_a_climb_does_not_wait():
    for observation in (bent_by(0.2, beta=0.0), bent_by(0.2, builds_up=False), bent_by(0.05)):
        rule, state = climbing(rested=0.3)
        assert rule.judge(state, observation).factor == CLIMB


@pytest.mark.parametrize(
    ("beta", "builds_up", "most"),
    [(0.9, True, BENDING), (0.9, False, GENTLY_BENDING), (0.0, False, BENDING)],
)
def test_a_step_that_bends_does_not_raise_the_scale(beta, builds_up, most):
    rule, state = climbing()
    decision = rule.judge(state, bent_by(most + 0.01, beta, builds_up=builds_up))
    assert (decision.factor, decision.limit) == (1.0, "curvature")
    rise = rule.judge(state, bent_by(most - 0.01, beta, builds_up=builds_up)).factor
    assert rise > 1.0 if not builds_up else rise == 1.0
    assert rule.judge(state, bent_by(most - 0.01, beta, builds_up=builds_up)).factor > 1.0


def test_after_a_hundred_losses_steps_of_adam_may_bend_as_much_as_others():
    rule, state = climbing()
    state.losses = state.t = 200
    assert rule.judge(state, bent_by(BENDING - 0.01, builds_up=False)).factor > 1.0


@pytest.mark.parametrize(
    ("beta", "builds_up", "count"),
    [
        (0.9, True, MORE_BENT_PROBES),
        (0.9, False, BENT_PROBES),
        (0.0, True, BENT_PROBES),
    ],
)
def test_where_momentum_sums_gradients_three_steps_too_far_lower_the_scale_else_two(
    beta, builds_up, count
):
    rule, state = climbing()
    state.losses = state.t = 200
    far = bent_by(1.6, beta, builds_up=builds_up)
    factors = [rule.judge(state, far).factor for _ in range(count)]
    assert factors == [1.0] * (count - 1) + [pytest.approx(rule.target / 1.6)]


@pytest.mark.parametrize(("t", "factor"), [(100, GENTLY_TOO_FAR / 1.2), (200, 1.0)])
def test_two_first_steps_of_adam_in_a_row_beyond_the_minimum_lower_the_scale(t, factor):
    rule, state = climbing()
    state.losses = state.t = t
    beyond = bent_by(1.2, builds_up=False)
    assert rule.judge(state, beyond).factor == 1.0
    assert rule.judge(state, beyond).factor == pytest.approx(factor)


def test_with_sgd_a_step_that_had_to_be_shortened_does_not_raise_the_scale():
    rule, state = climbing()
    for tries, expected in ((2, 1.0), (1, 1.0)):
        decision = rule.judge(state, replace(bent_by(0.2), tries=tries))
        assert (decision.factor, decision.limit) == (expected, "curvature")
    assert rule.judge(state, bent_by(0.2)).factor > 1.0


def test_with_sgd_a_probe_that_sees_nothing_does_not_end_the_wait_after_a_bend():
    rule, state = climbing()
    rule.judge(state, bent_by(BENDING + 0.01))
    unseen = bent_by(0.2)
    for _ in range(3):
        rule.judge(state, replace(unseen, step=replace(unseen.step, resolution=1.0)))
    assert rule.judge(state, bent_by(0.2)).factor == 1.0
    assert rule.judge(state, bent_by(0.2)).factor > 1.0


@pytest.mark.parametrize(("slope", "again"), [(0.39, None), (0.8, 0.2)])
def test_with_sgd_a_step_too_far_that_promises_more_than_the_loss_is_shortened(slope, again):
    rule, state = climbing()
    state.belief.steepness = 10.0  # so that the rise of the loss alone is no reason
    setting = Setting(beta=0.9, builds_up=True)
    step = Proposal(1.0, slope, rate=0.1, setting=setting, norms=Norms(1.0, 0.1))
    decision = rule.judge(state, Observation(step, 1.0))
    assert decision.again == (again and pytest.approx(again))


@pytest.mark.parametrize("loss", [1.0, 100.0])
def test_with_momentum_a_straight_step_that_promises_much_of_the_loss_is_not_followed_by_a_climb(
    loss,
):
    rule, state = climbing(rested=0.3)
    state.bound.recent = loss
    excess = 0.1 / (4 * (1 - 0.9))
    factor = rule.judge(state, bent_by(0.05)).factor
    assert factor == (PACE**0.3 if excess > PROMISE * loss else CLIMB)


@pytest.mark.parametrize(("loss_after", "is_bad"), [(1.9, False), (2.1, True)])
@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_a_step_that_more_than_doubles_its_loss_is_shortened_whatever_was_usual(
    loss_after, is_bad, beta
):
    state = settled(steepness=1e6)  # as after a start on a steep slope
    decision = RobustRule().judge(state, seen(loss_after, beta=beta))
    assert (decision.word == "reject") is is_bad


def test_after_a_rise_that_momentum_slowed_the_next_probe_waits_unless_a_surprise_asks_for_it():
    rule, state = climbing()
    state.belief.variance = 0.2
    rule.judge(state, bent_by(0.2))
    assert not rule.is_due(state)
    state.alarm.is_asking = True
    assert rule.is_due(state)
    state.alarm.is_asking = False
    state.rested = PAUSE
    assert rule.is_due(state)


def test_the_search_allows_for_it_too():
    found = {}
    for builds_up in (False, True):
        rule, state = RobustRule(), RobustRule().init()
        step = Proposal(1.0, 1e-6, setting=Setting(beta=0.9, builds_up=builds_up))
        for tries in range(1, 30):
            decision = rule.judge(state, Observation(step, step.loss - step.slope, tries))
            if decision.again is None:
                break
            step = step.times(decision.again)
        found[builds_up] = state.search.found
    assert 0.05 * found[False] < found[True] < 0.2 * found[False]


def test_a_probe_that_can_see_nothing_raises_nothing():
    assert RobustRule().judge(settled(), seen(0.95, resolution=1.0)).factor == 1.0


def risen(calm, without=()):
    """A rule that has seen losses which rise for certain, after so many calm probes."""
    rule = RobustRule(without=frozenset(without))
    state = settled(slope=1.0, relative_slope=1.0, variance=0.05)
    state.calm = calm
    scale = 1.0
    for t in range(200):
        scale *= rule.notice(state, 1.0 + 0.001 * t, scale, Setting())
    return rule, state, scale


def test_a_rise_that_no_probe_explains_by_a_bend_does_not_lower_the_scale():
    assert risen(calm=0)[2] < 0.5
    held = risen(calm=3)[2]
    assert held > 1.2 * risen(calm=0)[2]
    assert risen(calm=3, without={"hold"})[2] == risen(calm=0)[2]


def test_losses_that_stand_still_are_no_reason_to_complain():
    rng, rule = random.Random(0), RobustRule()
    state, scale = settled(slope=1.0, relative_slope=1.0, variance=0.05), 1.0
    state.calm = 3
    for _ in range(10_000):
        scale *= rule.notice(state, rng.gauss(1.0, 0.1), scale, Setting())
    assert rule.complaint(state) == ""


def test_a_step_that_was_shortened_says_nothing_about_bends():
    rule, state = climbing()
    state.calm = state.straight = 2
    assert rule.judge(state, replace(bent_by(0.05), tries=2)).word != "reject"
    assert state.calm == state.straight == 0


def test_a_lasting_rise_without_a_bend_is_told_once_it_has_held_the_scale_a_hundred_times():
    rule, state, _ = risen(calm=3)
    assert state.held >= 100
    assert "policy gradient" in rule.complaint(state)
    assert rule.complaint(risen(calm=0)[1]) == ""


@pytest.mark.parametrize(("beta", "is_confirmed"), [(0.0, True), (0.9, False)])
def test_after_a_surprise_any_rise_shortens_the_step_unless_momentum_may_have_carried_it(
    beta, is_confirmed
):
    state = settled(steepness=1e6)  # as after a start on a steep slope
    state.alarm.is_asking = True
    decision = RobustRule().judge(state, seen(loss_after=1.01, beta=beta))
    assert (decision.word == "reject") is is_confirmed
    assert RobustRule().judge(state, seen(1.01, beta=beta, tries=2)).word != "reject"  # once
    state.alarm.is_asking = False
    assert RobustRule().judge(state, seen(loss_after=1.01, beta=beta)).word != "reject"


@pytest.mark.parametrize(("beta", "asks"), [(0.0, True), (0.9, False)])
def test_losses_that_rise_five_times_in_a_row_ask_for_a_probe_unless_momentum_may_swing(beta, asks):
    for without in (frozenset(), frozenset({"rises"})):
        rule, state = RobustRule(without=without), settled(variance=0.0)
        for k in range(60):
            rule.notice(state, 5.0 + (-1) ** k, 0.1, Setting(beta=beta))
        for k in range(5):
            assert not state.alarm.is_asking
            rule.notice(state, 4.5 + 0.1 * k, 0.1, Setting(beta=beta))
        rule.notice(state, 5.0, 0.1, Setting(beta=beta))
        assert state.alarm.is_asking is (asks and not without)
        state.alarm.is_asking = False
        rule.notice(state, 5.1, 0.1, Setting(beta=beta))  # of the same row
        assert not state.alarm.is_asking


def test_a_search_counts_what_a_step_gains_where_that_is_more_than_its_slope_promises():
    """An adversary's loss falls ever faster along a step: the search must not follow it."""
    shares = []
    for gained in (0.1, 0.2):  # as its slope promises, and twice as much
        rule = RobustRule()
        state = rule.init()
        state.t = 9
        decision = rule.judge(state, seen(1 - gained, tries=3))
        shares.append(decision.again * gained)
    assert shares == pytest.approx([shares[0]] * 2)


def test_a_search_whose_last_probe_could_not_be_judged_is_made_again_whatever_it_costs():
    rule = RobustRule(budget=(0.0, 0.0))
    state = rule.init()
    rule.judge(state, seen(0.95))
    assert rule.judge(state, seen(0.95, tries=2)).again == search.TAKEN
    assert rule.is_due(state)

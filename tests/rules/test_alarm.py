"""The alarm: a surprising loss asks for a probe, and several in short order are a new level."""

import math
import random

import pytest

from probstep.rules import Norms, Observation, Proposal, RobustRule, Setting, WatchRule
from probstep.rules.robust import alarm
from probstep.rules.robust.alarm import Alarm
from probstep.rules.robust.belief import Belief
from probstep.rules.robust.search import Search
from probstep.rules.robust.state import RobustState

STEADY = [1.0 + 0.01 * (-1) ** t for t in range(50)]


def averaged(losses):
    state = Alarm()
    for count, loss in enumerate(losses, start=1):
        alarm.average(state, loss, count)
    return state, count + 1


def test_mean_and_spread_are_those_of_the_first_twenty_losses():
    losses = [float(k) for k in range(20)]
    state, _ = averaged(losses)
    assert state.mean == pytest.approx(9.5)
    assert state.spread == pytest.approx((20**2 - 1) / 12)


def test_a_loss_five_deviations_above_the_mean_is_no_surprise_and_six_are():
    state, count = averaged(STEADY)
    deviation = math.sqrt(state.spread)
    usual = state.mean + 4.9 * deviation
    assert alarm.unsurprising(state, usual, count) == usual
    limited = alarm.unsurprising(state, state.mean + 6 * deviation, count)
    assert limited == pytest.approx(state.mean + alarm.SURPRISE * deviation)


def test_a_low_loss_is_never_a_surprise():
    state, count = averaged(STEADY)
    assert alarm.unsurprising(state, -1e9, count) == -1e9


def test_the_first_losses_surprise_nobody():
    state, count = averaged([1.0, 1.0, 1.0])
    assert alarm.unsurprising(state, 1e9, count) == 1e9


def test_rounding_of_a_loss_that_stands_still_is_no_surprise():
    state, count = averaged([1.0] * 50)
    assert alarm.unsurprising(state, 1.0 + 1e-7, count) == 1.0 + 1e-7
    assert alarm.unsurprising(state, 1.0 + 1e-5, count) < 1.0 + 1e-5


def test_losses_that_stood_still_learn_of_the_few_that_do_not():
    state, count = averaged([0.0] * 50)
    for step in range(300):
        loss = 2.0 if step % 10 == 0 else 0.0
        count += 1
        alarm.average(state, alarm.unsurprising(state, loss, count), count)
    assert alarm.unsurprising(state, 2.0, count) == 2.0


def is_new_level_after(surprises):
    """Say whether the last of these steps, each a surprise or not, shows a new level."""
    state = Alarm()
    return [alarm.is_new_level(state, is_surprise=bool(k)) for k in surprises][-1]


def test_three_surprises_within_five_steps_are_a_new_level_and_within_six_they_are_not():
    assert is_new_level_after([1, 0, 1, 0, 1])
    assert is_new_level_after([1, 1, 1])
    assert not is_new_level_after([1, 0, 1, 0, 0, 1])
    assert not is_new_level_after([1, 1])


def test_a_new_level_is_told_once_and_the_count_begins_anew():
    state = Alarm()
    told = [alarm.is_new_level(state, is_surprise=True) for _ in range(6)]
    assert told == [False, False, True, False, False, True]


# The rule that composes it


def trained(*losses, scale=1.0, rule=None, found=1.0):
    """A state after steady losses and these, each told with the scale as it then was."""
    rule = rule or RobustRule()
    state = RobustState(
        search=Search(is_done=True, found=found),
        belief=Belief(cosine=1.0, steepness=1.0, probes=9, variance=0.05),
    )
    for loss in (*STEADY, *losses):
        scale *= rule.notice(state, loss, scale, Setting())
    return state, scale


def probe(scale, loss=0.9, tries=1):
    """A probe of a good step without curvature, which teaches nothing because it has no norms."""
    step = Proposal(loss, slope=scale, rate=scale)
    return Observation(step, loss_after=loss - scale, tries=tries)


def test_a_surprise_moves_nothing_and_makes_the_next_step_a_probed_one():
    rule = RobustRule(doubt=0.9)
    state, scale = trained(1.0)
    assert not rule.is_due(state)
    state, scale = trained(100.0)
    assert scale == 1.0
    assert rule.is_due(state)


@pytest.mark.parametrize("loss", [math.inf, -math.inf, math.nan, 1e150])
def test_a_loss_that_is_not_finite_halves_the_scale_at_once(loss):
    assert trained(loss)[1] == 0.5
    assert trained(loss, loss)[1] == 0.25


@pytest.mark.parametrize("bad", [1, 3, 3000])
def test_what_losses_that_are_not_finite_took_is_given_back_if_the_next_loss_is_as_usual(bad):
    lost = [math.nan] * bad
    assert trained(*lost, STEADY[-1])[1] == trained(STEADY[-1])[1]
    assert trained(*lost, 100.0)[1] == trained(*lost)[1]  # a high loss says that it was the step
    assert trained(*lost, 100.0, STEADY[-1])[1] <= 0.5


def test_batches_that_are_not_finite_now_and_then_leave_rate_and_doubt_alone():
    often = [math.nan if k % 10 == 9 else STEADY[k % len(STEADY)] for k in range(300)]
    state, scale = trained(*often, STEADY[0])
    without, expected = trained(*filter(math.isfinite, often), STEADY[0])
    assert scale == expected
    assert state.belief.variance == pytest.approx(without.belief.variance, rel=0.1)


@pytest.mark.parametrize("loss", [math.inf, math.nan])
def test_a_loss_that_is_not_finite_is_in_no_average(loss):
    (with_it, _), (without, _) = trained(loss), trained()
    assert (with_it.losses, with_it.bound) == (without.losses, without.bound)
    assert with_it.alarm == without.alarm


def test_one_outlier_passes_neither_for_a_rise_of_the_loss_nor_for_noise():
    (with_outlier, _), (without, _) = trained(1e6), trained(1.0)
    assert with_outlier.alarm.mean < 1.05
    assert with_outlier.bound.recent == pytest.approx(without.bound.recent, rel=0.02)


def test_a_surprise_costs_nothing_and_the_first_probe_answers_it():
    rule = RobustRule(doubt=0.9)
    (surprised, scale), (quiet, _) = trained(100.0), trained(1.0)
    assert surprised.alarm.is_asking
    assert rule.judge(surprised, probe(scale)) == rule.judge(quiet, probe(scale))
    assert not surprised.alarm.is_asking
    assert not rule.is_due(surprised)


def test_a_new_level_of_the_loss_begins_its_averages_anew():
    state, _ = trained(100.0, 100.0)
    assert state.losses == len(STEADY) + 2
    state, scale = trained(100.0, 100.0, 90.0)
    assert scale == 1.0
    assert state.losses == 1
    assert (state.alarm.mean, state.alarm.spread) == (90.0, 0.0)
    assert state.bound.recent == state.bound.older == 90.0


@pytest.mark.parametrize(("found", "is_searching"), [(9.9, False), (10.1, True)])
def test_a_new_level_calls_for_a_search_only_where_the_scale_has_fallen_to_a_tenth(
    found, is_searching
):
    state, _ = trained(100.0, 100.0, 100.0, found=found)
    assert RobustRule().is_searching(state) == is_searching


@pytest.mark.parametrize(("trust", "looks"), [(5.0, 10), (4.9, 0)])
def test_a_new_level_where_a_scale_has_fallen_allows_ten_looks_if_there_is_trust(trust, looks):
    rule = RobustRule()
    state, scale = trained(100.0, 100.0, found=10.1)
    state.alarm.trust = trust - 0.01  # the loss brings a hundredth
    state.forwards = spent = 10**6
    rule.notice(state, 100.0, scale, Setting())
    assert rule.is_searching(state)
    state.search.is_done, state.alarm.is_exploding = True, False
    while rule.is_due(state) and spent:
        state.forwards, spent = state.forwards + 1, spent - 1
    assert 10**6 - spent == looks + (looks > 0)  # what is allowed is rounded up


def test_without_the_surprise_no_loss_asks_for_a_probe():
    rule = RobustRule(doubt=0.9, without=frozenset({"surprise", "rises"}))
    assert not rule.is_due(trained(100.0, rule=rule)[0])


FALLEN_LOW = [1.0 + 0.5 * (-1) ** t for t in range(40)] + [0.01]


def after_losses(losses, beta=0.0, without=frozenset()):
    """A state without any budget left, after these losses."""
    rule = RobustRule(doubt=0.9, without=without)
    state = RobustState(
        forwards=10**6,
        search=Search(is_done=True, found=1.0),
        belief=Belief(cosine=1.0, probes=9, variance=0.05),
    )
    for loss in losses:
        rule.notice(state, loss, 1.0, Setting(beta=beta))
    return rule, state


@pytest.mark.parametrize(
    ("rises", "is_due"), [([0.09], False), ([0.11], True), ([0.04, 0.11], True)]
)
def test_a_rise_to_ten_times_the_last_low_loss_is_probed_whatever_was_spent(rises, is_due):
    rule, state = after_losses(FALLEN_LOW + rises)
    assert rule.is_due(state) == is_due
    assert not after_losses(FALLEN_LOW + rises, beta=0.9)[1].alarm.is_asking
    assert not after_losses(FALLEN_LOW + rises, without=frozenset({"rises"}))[1].alarm.is_asking


def test_after_a_step_that_raised_the_loss_of_its_own_batch_the_next_one_is_probed():
    for after, is_due in ((0.99, False), (1.01, True)):
        rule, state = after_losses([1.0] * 9)
        state.belief.steepness = 1.0
        rule.judge(state, Observation(Proposal(1.0, slope=0.1, rate=1.0), loss_after=after))
        assert rule.is_due(state) == is_due


def test_a_second_such_step_in_a_row_is_shortened():
    rule, state = after_losses([1.0] * 9)
    state.belief.steepness = 1.0
    seen = Observation(Proposal(1.0, slope=0.1, rate=1.0), loss_after=1.01)
    assert rule.judge(state, seen).word == "keep"
    assert rule.judge(state, seen).word == "reject"


def test_what_a_search_found_is_tried_under_a_probe_whatever_was_spent():
    rule, state = after_losses([1.0] * 9)
    state.search, state.belief.variance = Search(found=2.0), 0.95
    step = Proposal(1.0, slope=0.1, rate=0.2)
    assert rule.judge(state, Observation(step, loss_after=0.9, tries=2)).factor == 10.0
    assert rule.is_due(state)


def test_what_a_search_learns_takes_the_place_of_what_was_known():
    rule, state = after_losses([1.0] * 9)
    state.search, state.belief.root_curvature = Search(), 1e6
    step = Proposal(1.0, slope=0.1, rate=0.1, norms=Norms(1.0, 0.1))
    rule.judge(state, Observation(step, loss_after=0.95))
    rule.judge(state, Observation(step.times(2), loss_after=0.9, tries=2))
    assert state.belief.root_curvature < 10


def look(rule, state):
    """Probe a harmless step, at as many lengths as the rule wants: along it the loss bends as 4 e."""
    step = Proposal(1.0, 0.1, rate=0.1, norms=Norms(1.0, 0.1))
    for tries in range(1, 40):
        after = 1.0 - step.slope * (1 - 4 * step.rate / 2)
        decision = rule.judge(state, Observation(step, after, tries))
        if decision.again is None:
            return
        step = step.times(decision.again)


@pytest.mark.parametrize("rule", [RobustRule(), WatchRule()], ids=["robust", "watch"])
def test_losses_that_scatter_cost_hardly_more_probes_than_the_budget(rule):
    state, noise, probes, steps = rule.init(), random.Random(0), 0, 4000
    look(rule, state)
    for _ in range(steps):
        rule.notice(state, noise.lognormvariate(0, 3), 0.1, Setting())  # as of single samples
        if rule.is_due(state):
            look(rule, state)
            probes += 1
    at_once, per_step = RobustRule().budget
    reserve = 1.5 * per_step * 1000  # before the account begins anew
    assert probes <= at_once + reserve + (per_step + 0.01) * steps + alarm.TRUST


def test_a_probe_at_any_cost_that_was_right_brings_the_trust_back():
    state = Alarm(trust=1.0)
    alarm.answer(state, was_right=True, was_paid=False)
    assert state.trust == alarm.TRUST


def test_a_probe_that_the_budget_pays_for_costs_no_trust():
    state = Alarm()
    alarm.answer(state, was_right=False, was_paid=True)
    assert state.trust == alarm.TRUST


def test_trust_comes_back_by_one_in_a_hundred_losses():
    state = Alarm(trust=2.0)
    for count in range(100):
        alarm.average(state, 1.0, count + 1)
    assert state.trust == pytest.approx(3.0)


def test_a_strong_sign_is_believed_when_weak_ones_are_no_longer():
    rule, spent = RobustRule(), RobustState(t=50, losses=49, forwards=9999)
    spent.search, spent.alarm = Search(is_done=True), averaged(STEADY)[0]
    spent.bound.recent, spent.alarm.trust = 1.0, 3.0
    spent.alarm.last = spent.alarm.low = 0.01
    rule.notice(spent, 0.99, 0.1, Setting())  # ten times the last low one
    assert not rule.is_due(spent)
    rule.notice(spent, 11.0, 0.1, Setting())  # ten times the usual one
    assert rule.is_due(spent)


def test_a_search_on_a_new_level_may_find_any_rate():
    rule, state = RobustRule(), RobustState(t=50, losses=49, seen_scale=1e-3, vain=3)
    state.search, state.alarm = Search(is_done=True, found=1.0), averaged(STEADY)[0]
    for _ in range(3):
        rule.notice(state, 1000.0, 1e-3, Setting())
    assert rule.is_searching(state)
    assert (state.seen_scale, state.vain) == (0.0, 0)


def test_without_the_level_a_lasting_rise_begins_nothing_anew():
    rule = RobustRule(without=frozenset({"level"}))
    state, _ = trained(100.0, 100.0, 100.0, rule=rule, found=1e9)
    assert state.losses == len(STEADY) + 3
    assert not rule.is_searching(state)


def test_a_surprise_halves_a_rate_above_all_that_was_searched_at_once():
    rule = RobustRule()
    for multiplier, expected in ((1.0, 1.0), (1.5, 0.5)):
        state, scale = trained()
        assert rule.notice(state, 100.0, scale, Setting(multiplier)) == expected


def test_a_surprise_leaves_what_probes_have_said():
    (surprised, _), (quiet, _) = trained(100.0), trained(1.0)
    assert surprised.belief == quiet.belief


def test_the_probe_that_a_surprise_asks_for_does_not_wait_for_the_budget():
    rule = RobustRule()
    state, _ = trained(5.0)
    at_once, per_step = rule.budget
    state.forwards = int(at_once + per_step * state.t) + 1
    assert rule.is_due(state)
    state.forwards += int(1.5 * per_step * state.t) + 1
    assert not rule.is_due(state)


def test_without_the_reserve_that_probe_waits():
    rule = RobustRule(without=frozenset({"reserve"}))
    state, _ = trained(5.0, rule=rule)
    at_once, per_step = rule.budget
    state.forwards = int(at_once + per_step * state.t) + 1
    assert not rule.is_due(state)


@pytest.mark.parametrize(("loss", "is_due"), [(9.0, False), (11.0, True)])
def test_a_loss_ten_times_as_large_as_usual_is_probed_whatever_it_costs(loss, is_due):
    rule = RobustRule(budget=(0.0, 0.0))
    state = rule.init()
    state.search.is_done = True
    for _ in range(50):
        rule.notice(state, 1.0, 0.1, Setting())
    rule.notice(state, loss, 0.1, Setting())
    assert state.alarm.is_asking
    assert rule.is_due(state) is is_due
    without = RobustRule(budget=(0.0, 0.0), without=frozenset({"explosion"}))
    assert not without.is_due(state)
    rule.judge(
        state, Observation(Proposal(1.0, slope=0.0), 1.0)
    )  # it sees nothing, and is not repeated
    assert not rule.is_due(state)

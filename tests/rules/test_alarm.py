"""The alarm: a surprising loss halves the scale, and a false alarm gives it back."""

import math

import pytest

from probstep.rules import Observation, Proposal, RobustRule, Setting
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
    assert alarm.unsurprising(state, 1.0 + 1e-5, count) == 1.0


# The rule that composes it


def trained(*losses, scale=1.0, rule=None):
    """A state after steady losses and these, each told with the scale as it then was."""
    rule = rule or RobustRule()
    state = RobustState(
        search=Search(is_done=True), belief=Belief(cosine=1.0, steepness=1.0, probes=9)
    )
    for loss in (*STEADY, *losses):
        scale *= rule.notice(state, loss, scale, Setting())
    return state, scale


def probe(scale, loss=1.0):
    """A probe of a good step without curvature, which teaches nothing because it has no norms."""
    step = Proposal(loss, slope=scale, rate=scale)
    return Observation(step, loss_after=loss - scale)


@pytest.mark.parametrize("loss", [100.0, math.inf, math.nan, 1e150])
def test_a_surprise_halves_the_scale_and_asks_for_a_probe(loss):
    state, scale = trained(loss)
    assert scale == 0.5
    assert state.belief.variance == 1.0
    assert RobustRule().is_due(state)


def test_one_outlier_passes_neither_for_a_rise_of_the_loss_nor_for_noise():
    (with_outlier, _), (without, _) = trained(1e6), trained(1.0)
    assert with_outlier.alarm.mean < 1.05
    assert with_outlier.bound.recent == pytest.approx(without.bound.recent, rel=0.02)


def test_after_a_false_alarm_the_next_probe_gives_the_scale_back_once():
    rule = RobustRule()
    state, scale = trained(100.0, 1.0, 100.0)
    assert scale == 0.25
    decision = rule.judge(state, probe(scale, loss=0.99))
    assert decision.factor == pytest.approx(4.0)
    assert rule.judge(state, probe(1.0, loss=0.99)).factor == pytest.approx(rule.up)


def test_after_a_true_alarm_the_scale_returns_only_when_the_time_has_doubled():
    rule = RobustRule()
    state, scale = trained(100.0)
    at = state.t
    factor = rule.judge(state, probe(scale, loss=5.0)).factor  # far above the mean
    assert factor == 1.0
    state.t = 2 * at
    assert alarm.largest_scale(state.alarm, state.t) == pytest.approx(1.0)
    assert rule.judge(state, probe(scale, loss=0.5)).factor == pytest.approx(rule.up)


def test_without_the_part_only_a_loss_that_is_not_finite_sounds_the_alarm():
    rule = RobustRule(without=frozenset({"surprise"}))
    assert trained(100.0, rule=rule)[1] == 1.0
    assert trained(math.inf, rule=rule)[1] == 0.5

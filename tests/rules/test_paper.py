"""PaperRule alone: lines 18 to 22 of Algorithm 1 as a function of what a probe saw."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probstep.plain import as_plain
from probstep.rules import Observation, PaperRule, Proposal, Setting
from probstep.rules.paper import FARTHEST

moderate = st.floats(-1e6, 1e6)


def seen(loss, slope, loss_after, step_factor=1.0, resolution=0.0):
    return Observation(Proposal(loss, slope, resolution, step_factor=step_factor), loss_after)


def at_ratio(ratio):
    return seen(loss=1.0, slope=2.0, loss_after=1.0 - ratio)


@given(moderate, st.floats(1e-3, 1e6), moderate)
def test_it_votes_as_algorithm_1_prints_it(f, phi, f_plus):
    r = (f - f_plus) / (phi / 2)
    expected = 1.2 if r > 4 / 3 else 0.5 if r < 3 / 4 else 1.0
    decision = PaperRule().decide(seen(f, phi, f_plus))
    assert decision.ratio == r
    assert decision.factor == expected


@given(st.floats(), st.floats(), st.floats(), st.floats(-10, 10), st.floats(0, 1))
@pytest.mark.parametrize("taken", [False, True])
@pytest.mark.parametrize("solve", [False, True])
def test_the_factor_is_positive_and_finite_whatever_is_seen(
    taken, solve, f, phi, f_plus, s, resolution
):
    rule = PaperRule(ratio_of_step_taken=taken, solve=solve)
    decision = rule.decide(seen(f, phi, f_plus, s, resolution))
    assert 0 < decision.factor < math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("slope", [1.0, -1.0, 0.0, math.inf])
def test_a_loss_after_the_step_that_is_not_finite_counts_as_too_large(bad, slope):
    decision = PaperRule().decide(seen(loss=1.0, slope=slope, loss_after=bad))
    assert decision.factor == 0.5
    assert decision.word == "down"


@pytest.mark.parametrize(
    "step",
    [
        seen(loss=math.nan, slope=1.0, loss_after=1.0),
        seen(loss=1.0, slope=0.0, loss_after=0.0),
        seen(loss=1.0, slope=-1.0, loss_after=0.0),
        seen(loss=1.0, slope=math.nan, loss_after=0.0),
        seen(loss=1.0, slope=0.1, loss_after=0.0, resolution=0.05),
    ],
)
def test_where_algorithm_1_is_not_defined_the_scale_stays(step):
    decision = PaperRule().decide(step)
    assert decision.factor == 1.0
    assert decision.word == "uninformative"


@pytest.mark.parametrize("ratio", [-3.0, 0.0, 0.5, 1.0, 1.5, 1.75])
def test_solve_chooses_the_rate_whose_ratio_would_have_been_1(ratio):
    # On a quadratic 2 - r is proportional to the rate.
    factor = PaperRule(solve=True).decide(at_ratio(ratio)).factor
    assert factor * (2 - ratio) == pytest.approx(1.0)


def test_solve_keeps_the_factor_within_a_hundred_and_goes_up_without_curvature():
    rule = PaperRule(solve=True)
    assert rule.decide(at_ratio(-1e9)).factor == 1 / FARTHEST
    assert rule.decide(at_ratio(2 - 1e-9)).factor == FARTHEST
    assert rule.decide(seen(loss=-1e308, slope=1e-300, loss_after=1e308)).factor == 1 / FARTHEST
    for ratio in (2.0, 5.0):
        assert rule.decide(at_ratio(ratio)).factor == rule.up


def test_it_remembers_nothing_probes_every_step_and_keeps_every_step():
    rule = PaperRule()
    state = rule.init()
    for loss_after in (0.0, 1.0, math.nan):
        assert rule.is_due(state)
        assert not rule.is_searching(state)
        step = seen(loss=1.0, slope=1.0, loss_after=loss_after)
        assert rule.judge(state, step) == rule.decide(step)
        assert rule.decide(step).again is None
        assert rule.notice(state, loss_after, 1.0, Setting()) == 1.0
    assert state == rule.init()
    assert as_plain(state) == {}
    assert rule.metrics(state) == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"up": 0.9}, "up="),
        ({"up": math.inf}, "up="),
        ({"up": math.nan}, "up="),
        ({"down": 0.0}, "down="),
        ({"down": 1.5}, "down="),
        ({"above": 0.5, "below": 0.75}, "below must not exceed above"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PaperRule(**settings)

"""The belief averages what probes measure, and knows how sure that is."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probstep.plain import as_plain, restored
from probstep.rules import Norms, Observation, Proposal
from probstep.rules.robust import belief
from probstep.rules.robust.belief import Belief


def probe(rate, h=3.0, gradient=2.0, cosine=0.5, length=5.0, loss=7.0):
    """What a step sees on a quadratic of curvature h, if it has this length at rate 1."""
    slope = gradient * cosine * length * rate
    after = loss - slope + h * (length * rate) ** 2 / 2
    return Observation(
        Proposal(loss, slope, rate=rate, norms=Norms(gradient, length * rate)), after
    )


@given(st.floats(1e-3, 1e3))
def test_on_a_quadratic_the_measurements_are_those_of_a_step_at_rate_1(rate):
    news = belief.measure(probe(rate), with_curvature=True)
    expected = {
        "cosine": 0.5,
        "slope": 5.0,
        "steepness": 5.0,
        "log_gradient_per_length": math.log(2 / 5),
        "relative_slope": 5 / 7,
        "root_curvature": math.sqrt(3.0),
    }
    assert news == pytest.approx(expected, rel=1e-9)


def test_the_aim_is_the_rate_at_which_the_bend_is_the_target():
    state = Belief()
    belief.learn(state, belief.measure(probe(rate=0.1), with_curvature=True))
    rate = 0.1 * belief.aimed_factor(state, target=4 / 3, scale=0.1)
    step = probe(rate)
    ratio = 2 * (step.step.loss - step.loss_after) / step.step.slope
    assert 2 - ratio == pytest.approx(4 / 3)


def test_a_repeated_measurement_is_its_own_average():
    state, news = Belief(), belief.measure(probe(rate=0.25), with_curvature=True)
    for _ in range(20):
        belief.learn(state, news)
    assert {name: getattr(state, name) for name in news} == pytest.approx(news)


def test_each_probe_adds_one_to_the_inverse_of_the_variance():
    state = Belief()
    for k in range(1, 30):
        belief.learn(state, {})
        assert 1 / state.variance == pytest.approx(1 + k)


def test_the_size_of_the_gradients_is_averaged_over_fewer_probes():
    state = Belief()
    for _ in range(10):
        belief.learn(state, {"slope": 0.0, "log_gradient_per_length": 0.0})
    state.variance = 0.25
    belief.learn(state, {"slope": 1.0, "log_gradient_per_length": 1.0})
    assert state.slope == pytest.approx(0.2)
    assert state.log_gradient_per_length == pytest.approx(0.3)


def test_certainty_fades_with_time_at_first_quickly_and_never_below_nothing():
    state = Belief(variance=0.01)
    belief.drift(state, t=10)
    assert state.variance == pytest.approx(0.02)
    belief.drift(state, t=10**6)
    assert state.variance == pytest.approx(0.0202)
    for t in range(1, 20_000):
        belief.drift(state, t)
    assert state.variance == belief.UNKNOWN
    state.variance = 0.01
    belief.doubt(state)
    assert state.variance == belief.UNKNOWN


def test_a_curvature_a_thousand_times_the_usual_is_forgotten_after_some_probes():
    def aim_after(outliers, probes):
        state = Belief()
        for _ in range(40):
            belief.learn(state, belief.measure(probe(0.1), with_curvature=True))
            state.variance = 0.1  # as it is in the course of training
        for _ in range(outliers):
            belief.learn(state, belief.measure(probe(0.1, h=3000.0), with_curvature=True))
        for _ in range(probes):
            state.variance = 0.1
            belief.learn(state, belief.measure(probe(0.1), with_curvature=True))
        return belief.aimed_factor(state, target=1.0, scale=0.1)

    usual = aim_after(0, 0)
    assert aim_after(1, 0) < usual / 10
    assert usual / 1.5 < aim_after(1, 30) < usual


def test_momentum_that_goes_uphill_asks_for_no_other_scale():
    assert belief.aimed_factor(Belief(cosine=-0.1, root_curvature=1.0), 1.0, scale=3.0) == 1.0


def test_without_curvature_the_aim_has_no_limit():
    assert belief.aimed_factor(Belief(cosine=0.1, root_curvature=-1.0), 1.0, scale=3.0) == math.inf


def test_a_step_too_short_to_be_judged_teaches_everything_but_curvature():
    news = belief.measure(probe(rate=0.25), with_curvature=False)
    assert "root_curvature" not in news
    assert "slope" in news


def test_without_norms_nothing_is_measured():
    assert belief.measure(Observation(Proposal(1.0, 1.0), 0.5), with_curvature=True) == {}


def test_a_batch_with_hardly_any_loss_counts_as_one_with_a_tenth_of_the_usual_loss():
    for loss, counted in ((1e-9, 0.4), (0.3, 0.4), (3.0, 3.0)):
        news = belief.measure(probe(0.1, loss=loss), with_curvature=True, usual_loss=4.0)
        assert news["relative_slope"] == pytest.approx(news["slope"] / counted)


def test_a_negative_loss_has_no_relative_slope_and_the_slope_itself_is_expected():
    assert "relative_slope" not in belief.measure(probe(0.1, loss=-7.0), with_curvature=True)
    state = Belief(slope=2.0, relative_slope=3.0)
    assert belief.slope_at(state, loss=10.0) == 30.0
    assert belief.slope_at(state, loss=-10.0) == 2.0


@given(
    st.lists(
        st.tuples(st.floats(), st.floats(), st.floats(), st.floats(), st.floats()), max_size=20
    )
)
def test_whatever_is_seen_the_averages_stay_finite(steps):
    state = Belief()
    for f, phi, f_plus, gradient, length in steps:
        step = Proposal(f, phi, rate=0.1, norms=Norms(gradient, length))
        belief.learn(state, belief.measure(Observation(step, f_plus), with_curvature=True))
    assert restored(Belief, as_plain(state)) == state  # which refuses what is not finite


def test_curvatures_near_the_largest_float_do_not_make_an_average_of_nan():
    state = Belief()
    for sign in (1, -1, 1):
        step = Proposal(sign * 1e308, 1e-3, rate=1.0, norms=Norms(1.0, 1e-3))
        belief.learn(state, belief.measure(Observation(step, 0.0), with_curvature=True))
    assert math.isfinite(state.root_curvature)

"""The bound: phi promises no more than what the losses say is left to gain."""

import math
import random
import statistics

import pytest

from probstep.rules import Observation, Proposal, RobustRule, Setting
from probstep.rules.robust import bound
from probstep.rules.robust.belief import Belief
from probstep.rules.robust.bound import Bound
from probstep.rules.robust.search import Search
from probstep.rules.robust.state import RobustState

MOMENTUM = Setting(beta=0.9)


def averaged(losses):
    state = Bound()
    for count, loss in enumerate(losses, start=1):
        bound.average(state, loss, count)
    return state, count


def falling(gain, steps=4000):
    return [20 - gain * math.log(t) for t in range(1, steps + 1)]


def excess(phi, beta):
    """The excess of the loss that noise causes at a rate, N."""
    return phi / (4 * (1 - beta))


@pytest.mark.parametrize("beta", [0.0, 0.9])
@pytest.mark.parametrize("gain", [0.1, 1.0])
def test_noise_may_cost_065_of_what_an_e_fold_of_time_gains(gain, beta):
    allowed = bound.progress(*averaged(falling(gain)), Setting(beta=beta))
    assert excess(allowed, beta) == pytest.approx(0.5 * gain, rel=0.03)


def test_the_error_of_the_gain_is_just_above_its_standard_deviation():
    rng, stretch = random.Random(0), 1 / (1 / bound.SLOW - 1 / bound.FAST)
    fallen, allowed = [], []
    for _ in range(300):
        state, t = averaged(rng.gauss(5, 1) for _ in range(400))
        fallen.append(stretch * (state.older - state.recent))
        allowed.append(2 * stretch * math.sqrt(state.spread / t))
    assert 1.0 < statistics.fmean(allowed) / statistics.pstdev(fallen) < 1.4


@pytest.mark.parametrize("older", [4.0, 5.0, 5.05])
def test_a_gain_within_its_error_counts_as_much_as_the_error(older):
    state, error = Bound(recent=5.0, older=older, spread=1.0), 2 * 4 / math.sqrt(400)
    assert excess(bound.progress(state, 400, MOMENTUM), 0.9) == pytest.approx(0.5 * error)


def test_the_fewer_losses_are_known_the_weaker_is_the_bound():
    state = Bound(recent=5.0, older=5.0, spread=1.0)
    early, late = (bound.progress(state, count, Setting()) for count in (4, 400))
    assert early == pytest.approx(10 * late)


def test_progress_counts_twice_once_a_schedule_has_come_down_from_its_peak():
    state = Bound(recent=5.0, older=6.0, spread=0.5, peak=1.0)
    once = bound.progress(state, 400, Setting(1.0))
    assert bound.progress(state, 400, Setting(0.5)) == pytest.approx(2 * once)
    assert bound.progress(state, 400, Setting(3.0)) == pytest.approx(once)


def test_the_share_of_the_loss_is_polyaks_with_the_target_1_and_pays_for_momentum():
    assert bound.loss_share(5.0, 1.0, Setting()) == 5.0
    assert bound.loss_share(5.0, 1.0, MOMENTUM) == pytest.approx(5.0 * 4 * 0.1 * bound.NOISE)


def test_the_scale_is_bounded_for_the_step_as_scheduled_down_to_a_twentieth():
    allowed = [bound.largest_scale(1.0, 4.0, Setting(c)) for c in (1.0, 0.5, 0.05, 1e-9)]
    assert allowed == pytest.approx([0.25, 0.5, 5.0, 5.0])


@pytest.mark.parametrize("slope", [0.0, -1.0, 5e-324])
def test_without_a_slope_there_is_no_bound(slope):
    assert bound.largest_scale(1.0, slope, Setting(0.1)) == math.inf


def test_the_bound_lowers_the_scale_no_faster_than_the_inverse_square_of_time():
    assert bound.slowed(0.0, t=100, least=0.5) == pytest.approx(0.98)
    assert bound.slowed(0.0, t=3, least=0.5) == 0.5
    assert bound.slowed(0.99, t=100, least=0.5) == 0.99
    assert bound.slowed(7.0, t=100, least=0.5) == 1.0


# The rule that composes it


def noticed(losses, multipliers=None, relative_slope=1.0):
    """A state that has seen these losses, of steps with slope and relative slope 1 at rate 1."""
    rule = RobustRule()
    known = Belief(cosine=1.0, slope=1.0, relative_slope=relative_slope)
    state = RobustState(search=Search(is_done=True), belief=known)
    for loss, c in zip(losses, multipliers or [1.0] * len(losses), strict=True):
        rule.notice(state, loss, 1e-9, Setting(c))
    return state


def allowed_scale(state, setting=Setting()):  # noqa: B008
    """The scale to which a probe may raise a tiny one, as long as nothing but the bound limits it."""
    step = Proposal(loss=1.0, slope=1e-9, rate=1e-9 * setting.multiplier, setting=setting)
    decision = RobustRule(up=1e30).judge(state, Observation(step, loss_after=1.0 - 1e-9))
    return 1e-9 * decision.factor


def test_phi_never_promises_more_than_the_target_share_of_the_loss():
    state = noticed([math.exp(-t / 50) for t in range(1, 400)])  # the progress exceeds the loss
    phi = allowed_scale(state) * state.bound.recent
    assert phi == pytest.approx(RobustRule().target * state.bound.recent)


def test_a_negative_loss_is_bounded_by_its_progress_alone():
    state = noticed([loss - 1000 for loss in falling(1.0)])
    assert allowed_scale(state) == pytest.approx(4 * 0.5, rel=0.03)


@pytest.mark.parametrize("relative_slope", [0.0, -1.0])
def test_a_positive_loss_without_a_relative_slope_is_bounded_by_the_slope_itself(relative_slope):
    state = noticed(falling(1.0), relative_slope=relative_slope)
    assert allowed_scale(state) == pytest.approx(4 * 0.5, rel=0.03)


def test_a_schedule_that_rises_is_not_taken_for_one_that_comes_down():
    losses = falling(1.0, 400)
    constant, rising = noticed(losses), noticed(losses, [t / 400 for t in range(1, 401)])
    assert allowed_scale(rising) == pytest.approx(allowed_scale(constant))


@pytest.mark.parametrize("losses", [[1.0], [1.0, 1.0], [*[1.0] * 50, 9.0, 9.0, 9.0]])
def test_before_three_losses_of_a_level_there_is_no_bound(losses):
    assert allowed_scale(noticed(losses)) == pytest.approx(1e-9 * 1e30)


def test_from_three_losses_on_there_is_a_bound():
    assert allowed_scale(noticed([1.0] * 3)) < 1.0

"""The bound: phi promises no more than what the losses say is left to gain."""

import math
import random
import statistics

import pytest

from probstep.rules import Norms, Observation, Proposal, RobustRule, Setting
from probstep.rules.robust import bound
from probstep.rules.robust.belief import Belief
from probstep.rules.robust.bound import Allowed, Bound
from probstep.rules.robust.search import Search
from probstep.rules.robust.state import RobustState

MOMENTUM = Setting(beta=0.9)


def averaged(losses):
    state = Bound()
    for count, loss in enumerate(losses, start=1):
        bound.average(state, loss, count)
    return state, count


def falling(gain, steps=4000):
    """Losses that fall by `gain` per e-fold of the rule's time."""
    return [20 - gain * math.log(t + bound.HEAD_START) for t in range(1, steps + 1)]


def largest_scale(allowed, slope, setting):
    """The largest scale if so much is allowed."""
    return bound.largest_scales(Allowed(allowed, allowed), slope, setting).cautious


def without_errors(state, count, setting):
    """What is allowed where every loss is exactly as expected."""
    state.error = 0.0
    return bound.allowed(state, count, setting).cautious


def excess(phi, beta):
    """The excess of the loss that noise causes at a rate, N."""
    return phi / (4 * (1 - beta))


@pytest.mark.parametrize("steps", [3, 30, 3000])
@pytest.mark.parametrize("gain", [0.1, 1.0])
def test_the_gain_of_losses_that_fall_with_log_time_is_exact_from_the_third_on(gain, steps):
    assert bound.gain(*averaged(falling(gain, steps)))[0] == pytest.approx(gain)


@pytest.mark.parametrize("beta", [0.0, 0.9])
@pytest.mark.parametrize("gain", [0.1, 1.0])
def test_noise_may_cost_a_part_of_what_an_e_fold_of_time_gains(gain, beta):
    state, count = averaged(falling(gain))
    phi = without_errors(state, count, Setting(beta=beta))
    assert excess(phi, beta) == pytest.approx(bound.NOISE * bound.PAST * gain)


@pytest.mark.parametrize("steps", [5, 20, 400])
def test_the_error_of_the_gain_is_its_standard_deviation(steps):
    rng = random.Random(0)
    told = [bound.gain(*averaged(rng.gauss(5, 1) for _ in range(steps))) for _ in range(600)]
    scatter = statistics.pstdev(gain for gain, _ in told)
    assert statistics.fmean(error for _, error in told) == pytest.approx(scatter, rel=0.25)


def test_before_three_losses_nothing_is_known_of_the_gain():
    assert bound.gain(*averaged([5.0, 4.0])) == (0.0, math.inf)
    assert bound.gain(*averaged([5.0, 4.0, 3.0]))[1] < math.inf


@pytest.mark.parametrize("losses", [[2.0], [2.0, 2.0]])
def test_where_nothing_is_known_half_of_the_loss_is_there_to_gain_and_nothing_is_certain(losses):
    state, count = averaged(losses)
    phi = bound.allowed(state, count, MOMENTUM).cautious
    assert excess(phi, 0.9) == pytest.approx(bound.NOISE * bound.HOPE * 2.0)
    assert phi == pytest.approx(bound.first_slope(2.0, MOMENTUM))
    assert bound.allowed(state, count, MOMENTUM).certain == math.inf


def test_a_gain_within_its_error_counts_as_much_as_the_error():
    state, count = averaged([1000 + (-1) ** t for t in range(400)])
    gain, error = bound.gain(state, count)
    assert abs(gain) < error
    phi = bound.allowed(state, count, MOMENTUM, heeds_plateaus=False).cautious
    assert excess(phi, 0.9) == pytest.approx(bound.NOISE * error)


@pytest.mark.parametrize(("level", "swing"), [(1.0, 0.1), (1000.0, 1.0)])
def test_on_a_plateau_noise_may_cost_a_hundredth_of_the_loss_or_a_part_of_what_losses_differ_by(
    level, swing
):
    state, count = averaged([level + swing * (-1) ** t for t in range(4000)])
    deviation = bound.DEVIATIONS * state.error
    phi = bound.allowed(state, count, MOMENTUM).cautious
    least = min(0.01 * level, bound.NOISE * deviation)
    assert excess(phi, 0.9) == pytest.approx(least, rel=1e-3)


def test_of_losses_that_rise_for_certain_a_tenth_of_the_loss_is_still_hoped_for():
    state, count = averaged([1 + 0.01 * t for t in range(400)])
    assert bound.is_rising(state, count)
    assert not bound.is_rising(*averaged(falling(1.0)))
    phi = bound.allowed(state, count, MOMENTUM).certain
    assert excess(phi, 0.9) == pytest.approx(
        bound.NOISE * bound.LEAST_HOPE * state.recent, rel=1e-2
    )


@pytest.mark.parametrize("peak", [1.0, 4.0])
@pytest.mark.parametrize("multiplier", [0.999, 0.5, 0.01])
def test_under_a_decay_the_gain_counts_thrice_for_the_step_at_the_peak(multiplier, peak):
    state, count = averaged(falling(1.0))
    state.peak = peak
    setting = Setting(multiplier * peak)
    scale = largest_scale(without_errors(state, count, setting), 1.0, setting)
    assert excess(scale * peak, 0.0) == pytest.approx(3 * bound.NOISE)
    rising = Setting(3 * peak)
    assert excess(without_errors(state, count, rising), 0.0) == pytest.approx(
        bound.NOISE * bound.PAST
    )


def test_under_a_decay_the_loss_itself_counts_twice():
    state, count = averaged([math.exp(-t / 50) for t in range(400)])  # the gain exceeds the loss
    state.peak = 1.0
    once = bound.allowed(state, count, Setting(1.0)).cautious
    assert excess(once, 0.0) == pytest.approx(bound.NOISE * state.recent)
    assert bound.allowed(state, count, Setting(0.5)).cautious == pytest.approx(2 * once)


def test_early_the_loss_itself_counts_up_to_twice_and_less_where_it_falls_fast():
    for losses, most in (([5.0] * 40, 2.0), ([math.exp(-t / 5) for t in range(80)], 1.01)):
        state, count = averaged(losses)
        state.error = 1e3  # nothing is known of the gain, so that only the loss bounds it
        limits = [
            bound.allowed(state, count, Setting(), is_early=early).certain
            for early in (False, True)
        ]
        assert limits[1] / limits[0] == pytest.approx(most, rel=0.05)


def test_what_the_bound_took_it_gives_back_no_faster_than_the_square_of_time():
    state = Bound()
    bound.remember(state, 4.0, Setting())
    bound.remember(state, 3.0, Setting())  # less than before, and the largest counts
    back = [
        bound.given_back(state, scale, largest, t, Setting())
        for scale, largest, t in [(1.0, 9.0, 70), (1.0, 1.01, 70), (3.99, 9.0, 3), (4.0, 9.0, 3)]
    ]
    assert back == pytest.approx([1.02, 1.01, 4 / 3.99, 1.0])


def test_what_it_took_in_a_warm_up_is_not_given_back_at_a_longer_step():
    state = Bound()
    bound.remember(state, 4.0, Setting(0.25))
    assert bound.given_back(state, 1.0, 9.0, 2, Setting(1.0)) == 1.0
    assert bound.given_back(state, 1.0, 9.0, 10, Setting(0.125)) == pytest.approx(1.05)


def test_nothing_is_given_back_above_what_a_probe_has_shown():
    state = Bound(lowered_scale=4.0)
    bound.confine(state, 2.0)
    bound.confine(state, 3.0)
    assert bound.given_back(state, 1.99, 9.0, 1, Setting()) == 2.0 / 1.99


def test_the_scale_is_bounded_for_the_step_as_scheduled_down_to_a_twentieth():
    allowed = [largest_scale(1.0, 4.0, Setting(c)) for c in (1.0, 0.5, 0.05, 1e-9)]
    assert allowed == pytest.approx([0.25, 0.5, 5.0, 5.0])


@pytest.mark.parametrize("slope", [0.0, -1.0, 5e-324])
def test_without_a_slope_there_is_no_bound(slope):
    assert largest_scale(1.0, slope, Setting(0.1)) == math.inf


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


def test_phi_never_promises_more_than_its_share_of_the_loss():
    state = noticed([math.exp(-t / 50) for t in range(1, 400)])  # the gain exceeds the loss
    phi = allowed_scale(state) * state.bound.recent
    assert phi == pytest.approx(4 * bound.NOISE * state.bound.recent)


def test_a_negative_loss_is_bounded_by_its_gain_alone():
    state = noticed([loss - 1000 for loss in falling(1.0)])
    assert allowed_scale(state) == pytest.approx(4 * bound.NOISE * bound.PAST, rel=0.03)


def test_momentum_that_goes_uphill_is_not_bounded_by_noise():
    assert allowed_scale(noticed(falling(1.0), relative_slope=-1.0)) == pytest.approx(1e21)


def test_a_positive_loss_without_a_relative_slope_is_bounded_by_the_slope_itself():
    state = noticed(falling(1.0), relative_slope=0.0)
    assert allowed_scale(state) == pytest.approx(4 * bound.NOISE * bound.PAST, rel=0.03)


def test_a_schedule_that_rises_is_not_taken_for_one_that_comes_down():
    losses = falling(1.0, 400)
    constant, rising = noticed(losses), noticed(losses, [t / 400 for t in range(1, 401)])
    assert allowed_scale(rising) == pytest.approx(allowed_scale(constant))


def test_before_the_first_loss_there_is_no_bound():
    assert allowed_scale(noticed([])) == pytest.approx(1e-9 * 1e30)
    assert allowed_scale(noticed([1.0])) < 1.0


def test_what_is_certain_lowers_the_scale_by_half_at_a_step():
    rising = [1 + 0.01 * t for t in range(400)]
    assert RobustRule().notice(noticed(rising), 5.0, 1e9, Setting()) == 0.5
    slow = RobustRule(without=frozenset({"certain"}))
    assert slow.notice(noticed(rising), 5.0, 1e9, Setting()) > 0.99


def test_a_dip_of_the_gain_costs_no_more_than_the_time_until_it_is_over():
    """Where losses stand still for a while, the scale falls; when they fall again, it comes back."""
    rule, state = RobustRule(), noticed(falling(1.0, 600))
    scale = start = allowed_scale(noticed(falling(1.0, 600)))
    steady = state.bound.recent
    lowest = start
    for loss in [steady] * 100 + [steady - 0.01 * t for t in range(400)]:
        scale *= rule.notice(state, loss, scale, Setting())
        lowest = min(lowest, scale)
    assert lowest < 0.8 * start
    assert scale > 0.95 * start
    without = RobustRule(without=frozenset({"return"}))
    assert without.notice(noticed(falling(1.0, 600)), steady, start / 2, Setting()) == 1.0


def taken(**changes):
    """A state from whose scale the bound has taken much, and which now allows it again."""
    state = noticed(falling(1.0, 600))
    state.bound.lowered_scale = 1e-6
    for name, value in changes.items():
        setattr(state.alarm, name, value)
    return state


def test_nothing_is_given_back_before_a_probe_has_answered_a_question():
    rule, loss = RobustRule(), falling(1.0, 601)[-1]
    assert rule.notice(taken(), loss, 1e-7, Setting()) > 1.0
    assert rule.notice(taken(is_asking=True), loss, 1e-7, Setting()) == 1.0


@pytest.mark.parametrize("multiplier", [1.0, 2.0])
def test_nothing_is_given_back_after_a_surprise_has_confirmed_that_a_rate_was_too_high(multiplier):
    """Losses that were not finite before it, or a rate above all that was searched."""
    rule, state = RobustRule(), taken()
    if multiplier == 1.0:
        rule.notice(state, math.nan, 1e-7, Setting())
    rule.notice(state, 1e6, 1e-7, Setting(multiplier))
    assert state.bound.lowered_scale == 0.0


def test_nothing_is_given_back_on_another_level_of_the_loss():
    rule, state = RobustRule(), taken()
    for _ in range(3):
        rule.notice(state, 1e6, 1e-7, Setting())
    assert state.losses == 1
    assert state.bound.lowered_scale == 0.0


def test_a_probe_that_went_too_far_ends_what_is_given_back():
    step = Proposal(loss=1.0, slope=1e-9, rate=1e-9, norms=Norms(gradient=1.0, length=1e-9))
    for ratio, is_kept in ((2.0, True), (0.2, False)):
        state = taken()
        RobustRule().judge(state, Observation(step, loss_after=1.0 - ratio * step.slope / 2))
        assert (state.bound.lowered_scale == 1e-6) is is_kept
        assert is_kept or 0 < state.bound.lowered_scale <= step.rate


def rare(share, steps=300):
    """Losses of 1, so many of them; the others are 0, as of batches without a label."""
    rng = random.Random(0)
    return [float(rng.random() < share) for _ in range(steps)]


def test_less_is_hoped_for_where_losses_differ_by_more_than_their_mean():
    state, _ = averaged(rare(0.1))
    spread = bound.DEVIATIONS * state.error
    assert spread > state.recent
    hope = bound.HOPE * math.hypot(state.recent, spread) * (state.recent / spread) ** 2
    few = 2  # losses: the gain is not known
    phi = bound.allowed(state, few, MOMENTUM).cautious
    assert excess(phi, 0.9) == pytest.approx(bound.NOISE * hope)
    assert phi < bound.allowed(state, few, MOMENTUM, heeds_scatter=False).cautious


def test_losses_that_hover_about_zero_are_not_left_without_hope():
    state, _ = averaged([(-1) ** t for t in range(400)])
    state.recent, spread = 0.1, bound.DEVIATIONS * state.error  # they scatter ten times as much
    hope = bound.HOPE * bound.LEAST_SHARE * math.hypot(state.recent, spread)
    few = 2  # losses: the gain is not known
    phi = bound.allowed(state, few, MOMENTUM).cautious
    assert excess(phi, 0.9) == pytest.approx(bound.NOISE * hope)


@pytest.mark.parametrize("losses", [rare(0.9), [-value for value in rare(0.1)]])
def test_it_is_not_less_where_they_differ_little_or_have_no_zero(losses):
    state, _ = averaged(losses)
    few = 2  # losses: the gain is not known
    assert (
        bound.allowed(state, few, MOMENTUM).cautious
        == bound.allowed(state, few, MOMENTUM, heeds_scatter=False).cautious
    )

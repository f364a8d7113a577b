"""After a setback, once losses are as before, a scale that is far too low comes back."""

import math

import pytest
import torch
from torch import nn

from probstep import ProbStep, RobustRule
from probstep.rules import Norms, Observation, Proposal, Setting
from probstep.rules.robust import setback
from probstep.rules.robust.alarm import Alarm
from probstep.rules.robust.search import Search
from probstep.rules.robust.setback import Setback
from probstep.rules.robust.state import RobustState

ALARM = Alarm(mean=1.0, spread=0.04)


def after(scale, losses, beta=0.0):
    """Return what a setback from scale 1 says of each loss, all at this scale, and what is left."""
    fallen = Setback(scale=1.0, loss=1.0)
    return [setback.ends(fallen, loss, scale, beta) for loss in losses], fallen


def test_the_first_of_several_shortened_steps_is_the_one_that_is_remembered():
    fallen = Setback()
    setback.begin(fallen, 0.5, ALARM, count=100)
    setback.begin(fallen, 0.1, Alarm(mean=50.0), count=100)
    assert fallen == Setback(scale=0.5, loss=1.2)


def test_a_training_that_has_just_begun_has_nothing_to_come_back_to():
    fallen = Setback()
    setback.begin(fallen, 0.5, ALARM, count=20)
    assert fallen == Setback()


@pytest.mark.parametrize(("beta", "steps"), [(0.0, 3), (0.5, 6), (0.875, 24)])
def test_it_is_over_after_three_times_the_memory_of_momentum(beta, steps):
    said, fallen = after(0.01, [0.9] * (steps + 5), beta)
    assert said.index(True) == steps - 1
    assert said.count(True) == 1
    assert setback.is_way_back(fallen, 0.01)
    assert not setback.is_way_back(fallen, 0.5)


def test_it_is_not_over_while_half_of_the_losses_are_higher_than_before():
    said, fallen = after(0.01, [0.9, 1.1] * 50)
    assert not any(said)
    assert fallen.scale == 1.0


def test_a_hundredth_of_an_explosion_is_as_good_as_before():
    said, fallen = after(0.01, [1e8, *[2e6] * 9])
    assert not any(said)
    said, fallen = after(0.01, [1e8, *[1e6] * 9])
    assert said.index(True) == 3
    assert fallen.highest == 1e8


def test_on_the_way_back_sgd_may_wait_for_a_second_straight_probe():
    state = RobustState(t=100, losses=99, smooth=0)
    state.search, state.setback = Search(is_done=True), Setback(scale=1.0, is_over=True)
    state.bound.recent, state.bound.older, state.bound.error = 1.0, 1.0, 0.5
    factors = []
    for _ in range(2):
        step = Proposal(1.0, 1e-4, 1e-9, 0.01, Setting(builds_up=True), Norms(0.1, 0.001))
        factors.append(RobustRule().judge(state, Observation(step, 1.0 - 1e-4)).factor)
    assert factors == [1.0, 50.0]  # to half of where it was
    assert state.setback.is_over


@pytest.mark.parametrize("scale", [0.1, 0.3, 0.5, 2.0])
def test_a_scale_that_is_not_far_below_needs_no_way_back(scale):
    said, fallen = after(scale, [0.9] * 10)
    assert not any(said)
    assert fallen == Setback()


def explosion(rule, beta):
    """Return the scales before, during and 100 steps after losses and slopes that are far too high.

    They are 1 and 0.01 before and afterwards. For 15 steps they are a thousand times, and a million
    times, as high.
    """
    setting, state, scale = Setting(beta=beta, builds_up=True), rule.init(), 1.0
    scales = []
    for t in range(320):
        is_far = 200 <= t < 215
        loss, slope, bend = (1e3, 1e4, 20.0) if is_far else (1.0 - 1e-4 * t, 0.01, 0.5)
        if rule.is_due(state):
            scale = probed(rule, state, setting, scale, loss, slope, bend)
        scale *= rule.notice(state, loss, scale, setting)
        scales.append(scale)
    return scales[199], min(scales), scales[-1]


@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_after_an_explosion_the_scale_is_back_100_steps_after_the_losses_are(beta):
    before, lowest, later = explosion(RobustRule(), beta)
    assert lowest < before / 100
    assert later > before / 5


@pytest.mark.parametrize("beta", [0.0, 0.9])
def test_without_the_way_back_it_is_not(beta):
    before, _, later = explosion(RobustRule(without=frozenset({"regain"})), beta)
    assert later < before / 5


def test_the_passes_for_the_way_back_leave_a_small_budget_at_zero():
    rule, state = RobustRule(budget=(5.0, 0.0)), RobustState(t=100, losses=99, forwards=5)
    state.search, state.setback = Search(is_done=True), Setback(scale=1.0, loss=9.0, quiet=2.0)
    rule.notice(state, 1.0, 0.01, Setting())
    assert state.setback.is_over
    assert state.forwards == 0


def test_the_way_back_ends_where_something_else_limits_the_scale():
    rule, state = RobustRule(), RobustState(t=100, losses=99)
    state.search, state.setback = Search(is_done=True), Setback(scale=1.0, is_over=True)
    state.bound.recent = state.bound.older = 1.0  # nothing is gained, so noise may cost nothing
    step = Proposal(1.0, 0.9, rate=0.01, norms=Norms(1.0, 0.01))
    assert rule.judge(state, Observation(step, 0.2)).factor <= 1
    assert not state.setback.is_over


def probed(rule, state, setting, scale, loss, slope, bend):
    """Return the scale after the probe of a step with this slope and bend at rate 1."""
    is_searching = rule.is_searching(state)
    rate = 1.0 if is_searching else scale
    step = Proposal(loss, slope * rate, 1e-7 * loss, rate, setting, Norms(slope, rate))
    if is_searching:
        step = step.times(rule.first_length(step))
    for tries in range(1, 40):
        loss_after = loss - step.slope * (1 - bend * step.rate / 2)
        decision = rule.judge(state, Observation(step, loss_after, tries))
        if decision.again is None:
            return decision.factor * (step.rate if is_searching or tries > 1 else scale)
        step = step.times(decision.again)
    raise AssertionError("a probe without an end")


def test_small_nets_whose_momentum_explodes_end_at_half_the_loss_of_a_fixed_rate():
    # Which of them come back at once is chance, down to the rounding: so several are averaged.
    ours, fixed = (
        [math.log(sine_loss(seed, wraps)) for seed in range(6)] for wraps in (True, False)
    )
    assert sum(ours) / 6 < sum(fixed) / 6 + math.log(0.5)


def sine_loss(seed, wraps):
    """Train a small net on a sine, all of it in one batch, and return its last loss."""
    torch.manual_seed(seed)
    x = torch.rand(200, 1, generator=torch.Generator().manual_seed(seed)) * 6 - 3
    y = torch.sin(2 * x)
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    opt = ProbStep(opt) if wraps else opt

    def closure():
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        return loss

    for _ in range(600):
        opt.step(closure)
    return closure().item()

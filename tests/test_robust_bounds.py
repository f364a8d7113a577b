"""What bounds RobustRule's scale: the gain to come, the loss, the schedule; and what gives it back."""

import math

import pytest
import torch
from torch import nn

from probstep import ProbStep, RobustRule
from probstep.robust import DOWN, LEAST, _bound, _gain
from probstep.rules import Observation

BASES = {
    "sgd": lambda params: torch.optim.SGD(params, lr=1e-5),
    "momentum": lambda params: torch.optim.SGD(params, lr=1e-5, momentum=0.9),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=1e-5),
    "adam": lambda params: torch.optim.Adam(params, lr=1e-5),
}


def seen(multiplier=1.0, beta=0.0, **numbers):
    observation = {"loss": math.nan, "slope": math.nan, "loss_after": math.nan, **numbers}
    return Observation(**observation, multiplier=multiplier, beta=beta)


def watched(losses, multipliers=None, gradient=1.0):
    """A memory that has seen these losses, of steps with the slope 1 and the scale 1."""
    rule, factors = RobustRule(), []
    memory = {**rule.init(), "found": 1, "slope": 1.0, "relative_slope": 1.0}
    for k, loss in enumerate(losses):
        c = multipliers[k] if multipliers else 1.0
        memory, factor = rule.watch(memory, loss, gradient, 1.0, seen(c))
        factors.append(factor)
    return memory, factors


def falling(gain, steps=4000):
    return [20 - gain * math.log(t) for t in range(1, steps + 1)]


@pytest.mark.parametrize("gain", [0.1, 1.0])
def test_the_gain_of_an_e_fold_of_time_is_measured_from_the_losses(gain):
    memory, _ = watched(falling(gain))
    assert _gain(memory, seen()) == pytest.approx(gain, rel=0.03)


def test_within_its_error_the_gain_counts_as_noise_and_momentum_in_full():
    generator = torch.Generator().manual_seed(0)
    memory, _ = watched((5 + torch.randn(2000, generator=generator)).tolist())
    error = 8 * math.sqrt(memory["spread"] / memory["t"])
    assert _gain(memory, seen()) == pytest.approx(error, rel=0.5)
    assert _gain(memory, seen(beta=0.9)) == pytest.approx(0.1 * _gain(memory, seen()), rel=1)


def test_a_gain_beyond_its_error_pays_the_root_for_momentum():
    memory, _ = watched(falling(1.0))
    ratio = _gain(memory, seen(beta=0.9)) / _gain(memory, seen())
    assert ratio == pytest.approx(math.sqrt(0.1), rel=0.02)


def test_phi_never_promises_more_than_the_target_share_of_the_loss():
    memory, _ = watched([math.exp(-t / 50) for t in range(1, 400)])  # the gain exceeds the loss
    phi = _bound(memory, seen(), target=4 / 3) * memory["relative_slope"] * memory["recent"]
    assert phi == pytest.approx(4 / 3 * memory["recent"])


def test_a_negative_loss_is_bounded_by_its_gain_alone():
    memory, _ = watched([loss - 1000 for loss in falling(1.0)])
    assert _bound(memory, seen(), target=4 / 3) == pytest.approx(1.0, rel=0.03)


def test_the_gain_counts_twice_once_a_schedule_comes_down_and_not_while_it_rises():
    losses = falling(1.0, 400)
    constant, _ = watched(losses)
    rising, _ = watched(losses, [t / 400 for t in range(1, 401)])
    once = _gain(constant, seen(1.0))
    assert _gain(rising, seen(1.0)) == pytest.approx(once)
    assert _gain(constant, seen(0.5)) == pytest.approx(2 * once)


def test_a_surprise_halves_the_scale_and_the_next_good_probe_gives_it_back():
    memory, factors = watched([1.0 + 0.01 * (-1) ** t for t in range(50)] + [100.0])
    assert factors[-1] <= 0.5
    rule = RobustRule()
    memory |= {"cosine": 1.0, "curvature": 1e-6, "steepness": 1.0, "older": 100.0}
    probe = seen(loss=1.0, slope=0.5, loss_after=0.5, rate=0.5, gradient=1.0, length=0.5)
    memory, decision = rule.judge(memory, probe)
    assert decision.factor == pytest.approx(2.0)
    _, decision = rule.judge(memory, probe)
    assert decision.factor <= rule.up


def test_momentum_that_goes_uphill_leaves_the_scale_alone():
    rule = RobustRule()
    memory = {**rule.init(), "found": 1, "cosine": -1.0, "steepness": 1.0, "t": 3}
    uphill = seen(
        loss=1.0, slope=-0.1, loss_after=1.11, rate=0.1, gradient=1.0, length=0.1, beta=0.9
    )
    _, decision = rule.judge(memory, uphill)
    assert decision.again is None
    assert decision.factor == 1.0


def test_a_step_that_rises_by_far_more_than_usual_is_shortened_and_an_infinite_one_at_once_to_a_tenth():
    rule = RobustRule()
    memory = {**rule.init(), "found": 1, "cosine": 1.0, "steepness": 1.0, "probes": 9, "t": 9}
    bad = {"loss": 1.0, "slope": 0.1, "rate": 0.1, "gradient": 1.0, "length": 0.1}
    _, decision = rule.judge(memory, seen(**bad, loss_after=1.3))
    assert decision.word == "reject"
    assert LEAST <= decision.again <= DOWN
    _, decision = rule.judge(memory, seen(**bad, loss_after=math.inf))
    assert decision.again == LEAST
    _, decision = rule.judge(memory, seen(**bad, loss_after=1.1))
    assert decision.again is None


def test_the_search_closes_in_on_a_cliff_instead_of_jumping_to_and_fro():
    theta = nn.Parameter(torch.ones(1, dtype=torch.float64))
    opt = ProbStep(torch.optim.SGD([theta], lr=1.0), RobustRule())
    opt.step(lambda: torch.where(theta > 0.5, theta, torch.inf).sum())
    assert 0.5 < theta.item() < 0.8
    assert opt.metrics()["probe_forwards"] < 25


def rosenbrock(theta):
    return (1 - theta[0]) ** 2 + 100 * (theta[1] - theta[0] ** 2) ** 2


def ill_conditioned(theta):
    return (torch.logspace(0, -4, 2, dtype=theta.dtype) * theta**2).sum() / 2


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("function", [rosenbrock, ill_conditioned])
def test_without_noise_it_converges_within_the_budget_and_the_scale_does_not_collapse(
    name, function
):
    theta = nn.Parameter(torch.tensor([-1.2, 1.0], dtype=torch.float64))
    opt = ProbStep(BASES[name]([theta]), RobustRule())
    first = function(theta).item()
    rates = []
    for _ in range(1500):
        opt.step(lambda: function(theta))
        rates.append(opt.effective_lr[0])
    assert function(theta).item() < 0.01 * first
    assert min(rates[-500:]) > 1e-4 * max(rates)
    at_once, per_step = opt.rule.budget
    assert opt.metrics()["probe_forwards"] <= at_once + per_step * 1500 + 20

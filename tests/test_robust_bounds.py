"""RobustRule on functions without noise: a cliff, a curved valley, a badly conditioned bowl."""

import pytest
import torch
from torch import nn

from probstep import ProbStep, RobustRule
from probstep.rules.robust.budget import RESERVE
from probstep.rules.robust.numbers import SETTLED

BASES = {
    "sgd": lambda params: torch.optim.SGD(params, lr=1e-5),
    "momentum": lambda params: torch.optim.SGD(params, lr=1e-5, momentum=0.9),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=1e-5),
    "adam": lambda params: torch.optim.Adam(params, lr=1e-5),
}


def test_the_search_closes_in_on_a_cliff_instead_of_jumping_to_and_fro():
    theta = nn.Parameter(torch.ones(1, dtype=torch.float64))
    opt = ProbStep(torch.optim.SGD([theta], lr=1.0), RobustRule())
    opt.step(lambda: torch.where(theta > 0.5, theta, torch.inf).sum())
    assert 0.5 < 1 - opt.effective_lr[0] < 0.8  # the slope is 1
    assert opt.metrics()["probe_forwards"] < 25


def rosenbrock(theta):
    return (1 - theta[0]) ** 2 + 100 * (theta[1] - theta[0] ** 2) ** 2


def beale(theta):
    x, y = theta
    terms = ((c - x * (1 - y**k)) ** 2 for k, c in ((1, 1.5), (2, 2.25), (3, 2.625)))
    return sum(terms)


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
    reserves = RESERVE * per_step * SETTLED  # before that step only
    assert opt.metrics()["probe_forwards"] <= at_once + per_step * 1500 + reserves + 20


@pytest.mark.parametrize("name", ["sgd", "momentum", "rmsprop"])
@pytest.mark.parametrize("start", [(-1.22, 1.05), (-1.25, 0.94), (-1.23, 1.1), (-1.1, 1.8)])
def test_no_start_in_a_curved_valley_is_lost(name, start):
    theta = nn.Parameter(torch.tensor(start))
    opt = ProbStep(BASES[name]([theta]))
    for _ in range(1500):
        opt.step(lambda: rosenbrock(theta))
    assert rosenbrock(theta).item() < 0.05


@pytest.mark.parametrize(
    ("function", "start", "end"),
    [
        (rosenbrock, (-0.42, -1.01), 0.1),
        (rosenbrock, (-0.63, -0.78), 0.1),
        (beale, (0.02, -1.01), 1e-3),
        (beale, (0.12, -0.8), 1e-3),
        (beale, (-0.3, 0.45), 0.5),
        (beale, (-0.39, -1.6), 1e-3),
    ],
)
def test_a_rate_that_is_unstable_only_across_a_valley_is_seen_before_the_losses_explode(
    function, start, end
):
    """The forward passes at once are spent by then: steps along the floor had raised the rate."""
    theta = nn.Parameter(torch.tensor(start))
    opt = ProbStep(torch.optim.SGD([theta], lr=1e-3))
    highest = max(opt.step(lambda: function(theta)).item() for _ in range(1000))
    assert highest <= 2 * function(torch.tensor(start)).item()
    assert function(theta).item() < end


@pytest.mark.parametrize("seed", [4, 5])
def test_a_search_after_convergence_leaves_model_and_scale_alone(seed):
    torch.manual_seed(seed)
    x = 0.1 * torch.randn(256, 4)
    mean, log_spread = nn.Parameter(torch.ones(4)), nn.Parameter(torch.full((4,), -1.0))
    opt = ProbStep(torch.optim.Adam([mean, log_spread], lr=1e-2))

    def negative_log_likelihood():
        return (0.5 * ((x - mean) / log_spread.exp()) ** 2 + log_spread).mean()

    losses = [opt.step(negative_log_likelihood).item() for _ in range(400)]
    assert losses[-1] == pytest.approx(min(losses), abs=1e-3)
    assert 1e-4 < opt.effective_lr[0] < 1

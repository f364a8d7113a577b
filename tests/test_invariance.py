"""The unit of the loss does not matter: training is the same in another one."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from probstep import ProbStep

STEPS = 50
BASES = {
    "SGD": lambda params, unit: torch.optim.SGD(params, lr=0.1),
    "momentum": lambda params, unit: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "Adam": lambda params, unit: torch.optim.Adam(params, lr=0.1, eps=1e-8 * unit),
}


def trained(name, unit):
    """Return the losses in this unit, and the parameters after training on them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))
    inputs, rows = torch.randn(STEPS, 64, 20), torch.randn(20, 5)
    labels = (inputs @ rows).argmax(2)
    opt = ProbStep(BASES[name](model.parameters(), unit))
    losses = []
    for x, y in zip(inputs, labels, strict=True):
        loss = opt.step(lambda x=x, y=y: unit * cross_entropy(model(x), y))
        losses.append(loss.item() / unit)
    return losses, nn.utils.parameters_to_vector(model.parameters())


@pytest.mark.parametrize("exponent", [-40, -10, 10, 50])
@pytest.mark.parametrize("name", BASES)
def test_the_loss_times_a_power_of_two_trains_alike(name, exponent):
    losses, weights = trained(name, 1.0)
    others, other_weights = trained(name, 2.0**exponent)
    assert others == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(other_weights, weights, rtol=1e-5, atol=1e-6)
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


@pytest.mark.parametrize("unit", [1e-12, 1e16])
@pytest.mark.parametrize("name", BASES)
def test_tiny_and_huge_losses_train_as_well_as_others(name, unit):
    losses, _ = trained(name, unit)
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


@pytest.mark.parametrize("name", BASES)
def test_a_first_batch_without_a_gradient_leaves_the_parameters_alone(name):
    weight = nn.Parameter(torch.ones(3))
    opt = ProbStep(BASES[name]([weight], 1.0))
    opt.step(lambda: (0 * weight).sum())
    assert torch.equal(weight.detach(), torch.ones(3))
    for _ in range(20):
        loss = opt.step(lambda: weight.square().sum())
    assert loss < 1.0

"""The units of the loss and of the parameters do not matter, and the zero of the loss hardly does."""

import math

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from probstep import ProbStep

STEPS = 50
BASES = {
    "SGD": lambda params, unit: torch.optim.SGD(params, lr=0.1),
    "momentum": lambda params, unit: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "Adam": lambda params, unit: torch.optim.Adam(params, lr=0.1, eps=1e-8 * unit),
}


def trained(name, unit=1.0, zero=0.0, size=1.0):
    """Return the losses, and the weights after training on them.

    Args:
        name: Of the optimizer.
        unit: What the loss is multiplied by before it is trained on.
        zero: What is added to it.
        size: What the parameters are multiplied by to give the weights.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))
    inputs, rows = torch.randn(STEPS, 64, 20), torch.randn(20, 5)
    labels = (inputs @ rows).argmax(2)
    params = {
        name: nn.Parameter(weight.detach() / size) for name, weight in model.named_parameters()
    }

    def weights():
        return {name: size * param for name, param in params.items()}

    opt = ProbStep(BASES[name](params.values(), unit * size))
    losses = []
    for x, y in zip(inputs, labels, strict=True):

        def closure(x=x, y=y):
            return unit * cross_entropy(functional_call(model, weights(), x), y) + zero

        losses.append((opt.step(closure).item() - zero) / unit)
    return losses, nn.utils.parameters_to_vector(weights().values()).detach()


@pytest.mark.parametrize("exponent", [-40, -10, 10, 50])
@pytest.mark.parametrize("name", BASES)
def test_the_loss_times_a_power_of_two_trains_alike(name, exponent):
    losses, weights = trained(name, 1.0)
    others, other_weights = trained(name, 2.0**exponent)
    assert others == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(other_weights, weights, rtol=1e-5, atol=1e-6)
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


@pytest.mark.parametrize("exponent", [-20, 10])
@pytest.mark.parametrize("name", BASES)
def test_parameters_in_another_unit_train_alike(name, exponent):
    losses, weights = trained(name)
    others, other_weights = trained(name, size=2.0**exponent)
    assert others == pytest.approx(losses, rel=1e-5)
    torch.testing.assert_close(other_weights, weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("zero", [-10.0, -1.0, 10.0, 100.0])
@pytest.mark.parametrize("name", BASES)
def test_a_loss_with_another_zero_trains_as_well(name, zero):
    """Not alike: one bound needs a zero, and the rounding of a large loss hides the shortest steps."""
    losses, _ = trained(name, zero=zero)
    assert sum(losses[-10:]) < 0.5 * sum(losses[:10])


@pytest.mark.parametrize("unit", [1e-12, 1e16])
@pytest.mark.parametrize("name", BASES)
def test_tiny_and_huge_losses_train_as_well_as_others(name, unit):
    losses, _ = trained(name, unit)
    assert sum(losses[-10:]) < 0.8 * sum(losses[:10])


@pytest.mark.parametrize("is_sparse", [False, True])
def test_training_goes_on_where_squares_of_gradients_overflow_single_precision(is_sparse):
    """So it is after an explosion. The slope, a sum of such products, used to be no number."""
    table = nn.Embedding(4, 2, sparse=is_sparse)
    nn.init.constant_(table.weight, 1e18)
    optimizer = torch.optim.SGD(table.parameters(), lr=1.0)
    opt, rows = ProbStep(optimizer), torch.tensor([0, 1, 1])
    losses = [opt.step(lambda: 10 * table(rows).square().sum()).item() for _ in range(30)]
    assert math.isfinite(opt.last_probe.slope)
    assert losses[-1] < 1e-3 * losses[0]


@pytest.mark.parametrize("name", BASES)
def test_a_first_batch_without_a_gradient_leaves_the_parameters_alone(name):
    weight = nn.Parameter(torch.ones(3))
    opt = ProbStep(BASES[name]([weight], 1.0))
    opt.step(lambda: (0 * weight).sum())
    assert torch.equal(weight.detach(), torch.ones(3))
    for _ in range(20):
        loss = opt.step(lambda: weight.square().sum())
    assert loss < 1.0

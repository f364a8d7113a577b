"""Parameters that begin to move in the middle of a training call for a new search of the rate."""

import pytest
import torch
from torch import nn

import probstep


def make(frozen):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    model[0].requires_grad_(not frozen)
    return model


def train(model, opt, steps):
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def closure():
        opt.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(steps):
        opt.step(closure)


def searches(opt):
    return opt.metrics()["probes/search"]


def test_layers_that_are_unfrozen_are_searched_for():
    model = make(frozen=True)
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=0.1))
    train(model, opt, 30)
    assert searches(opt) == 1
    model.requires_grad_(True)
    train(model, opt, 30)
    assert searches(opt) == 2


def test_a_group_that_is_added_is_searched_for():
    model = make(frozen=False)
    opt = probstep.ProbStep(torch.optim.SGD(model[2].parameters(), lr=0.1))
    train(model, opt, 30)
    opt.add_param_group({"params": list(model[0].parameters())})
    train(model, opt, 30)
    assert searches(opt) == 2


def test_a_group_whose_rate_is_zero_does_not_move_until_it_is_raised():
    model = make(frozen=False)
    groups = [{"params": model[2].parameters()}, {"params": model[0].parameters(), "lr": 0.0}]
    opt = probstep.ProbStep(torch.optim.SGD(groups, lr=0.1))
    train(model, opt, 30)
    opt.param_groups[1]["lr"] = 0.1
    train(model, opt, 30)
    assert searches(opt) == 2


@pytest.mark.parametrize("again", [True, False])
def test_layers_that_are_frozen_and_unfrozen_again_are_known(again):
    model = make(frozen=False)
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=0.1))
    train(model, opt, 20)
    model[0].requires_grad_(False)
    model.zero_grad()
    train(model, opt, 20)
    model[0].requires_grad_(again)
    train(model, opt, 20)
    assert searches(opt) == 1


def test_a_checkpoint_knows_what_moved():
    model = make(frozen=True)
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=0.1))
    train(model, opt, 20)
    other = make(frozen=True)
    resumed = probstep.ProbStep(torch.optim.SGD(other.parameters(), lr=0.1))
    resumed.load_state_dict(opt.state_dict())
    train(other, resumed, 5)
    assert searches(resumed) == 1
    other.requires_grad_(True)
    train(other, resumed, 5)
    assert searches(resumed) == 2

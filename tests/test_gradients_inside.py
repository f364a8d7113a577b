"""Losses that compute gradients inside: a probe evaluates them, and others stay without a graph."""

import pytest
import torch
from torch import nn

from probstep import ProbStep

from .cases import FROZEN, batches, for_every_rule, loss_of, plain_network


def pinn(model, x):
    """The residual of u' = -u, by autograd."""
    x = x.clone().requires_grad_()
    u = model(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return ((du[:, :3] + u) ** 2).mean()


def gradient_penalty(model, x):
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()


def watched(model, x):
    """Hooks on something inside, as visualisers do."""
    hidden = model[0](x)
    hidden.register_hook(lambda grad: grad)
    return model[2](model[1](hidden)).square().mean()


LOSSES = {"pinn": pinn, "gradient penalty": gradient_penalty, "watched": watched}


def step(opt, loss, form):
    if form == "closure":
        return opt.step(loss).detach()
    opt.zero_grad()
    first = loss()
    first.backward()
    opt.step(loss=first, reevaluate=loss)
    return first.detach()


@pytest.mark.parametrize("form", ["closure", "loss and reevaluate"])
@pytest.mark.parametrize("name", LOSSES)
def test_training_is_the_bare_optimizers(name, form):
    ends = []
    for is_adapted in (False, True):
        torch.manual_seed(0)
        model = plain_network()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        opt = ProbStep(opt, FROZEN) if is_adapted else opt
        for x, _ in batches(4):
            if is_adapted:
                step(opt, lambda x=x, model=model: LOSSES[name](model, x), form)
            else:
                opt.zero_grad()
                LOSSES[name](model, x).backward()
                opt.step()
        ends.append([(p.detach(), p.grad) for p in model.parameters()])
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0)


@for_every_rule
@pytest.mark.parametrize("name", LOSSES)
def test_they_fall_under_adaptation(name, rule):
    torch.manual_seed(0)
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    ((x, _),) = batches(1)
    losses = [opt.step(lambda: LOSSES[name](model, x)).item() for _ in range(30)]
    assert losses[-1] < losses[0]


def test_only_the_first_probe_is_tried_without_gradients():
    modes = []

    def loss(x):
        modes.append(torch.is_grad_enabled())
        return pinn(model, x)

    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), FROZEN)
    for x, _ in batches(3):
        opt.step(lambda x=x: loss(x))
    # A pass; the loss again, tried without and then with gradients; a probe. Then a pass and a probe.
    assert modes == [True, False, True, True, True, True, True, True]
    assert opt.metrics()["probe_forwards"] == 5


def test_a_loss_that_needs_no_gradients_inside_is_probed_without():
    modes = []

    def loss(batch):
        modes.append(torch.is_grad_enabled())
        return loss_of(model, batch)

    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), FROZEN)
    for batch in batches(2):
        opt.step(lambda batch=batch: loss(batch))
    assert modes == [True, False, False, True, False]  # the first step proves its loss


def test_any_other_error_is_raised_at_once():
    calls = []

    def loss():
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("no data")
        return w.square().sum()

    w = nn.Parameter(torch.ones(2))
    opt = ProbStep(torch.optim.SGD([w], lr=0.1), FROZEN)
    with pytest.raises(RuntimeError, match="no data"):
        opt.step(loss)
    assert len(calls) == 2
    assert w.tolist() == [1.0, 1.0]

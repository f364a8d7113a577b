"""Weight decay is never dropped: coupled, it is part of the objective; decoupled, of the step."""

import pytest
import torch
from torch import nn, optim

import probstep
from probstep import PaperRule

from .cases import FICKLE


class MySGD(optim.SGD):
    """A subclass decays as its parent does."""


class Decoupling(optim.Adam):
    """A subclass that decays by itself, before its parent's step."""

    @torch.no_grad()
    def step(self, closure=None):
        (group,) = self.param_groups
        for p in group["params"]:
            p.mul_(1 - group["lr"] * group["weight_decay"])
        with_decay, group["weight_decay"] = group["weight_decay"], 0.0
        super().step()
        group["weight_decay"] = with_decay


class Lars(optim.SGD):
    """A subclass whose step depends on the parameters."""

    @torch.no_grad()
    def step(self, closure=None):
        (group,) = self.param_groups
        for p in group["params"]:
            p.sub_(group["lr"] * p.norm() / p.grad.norm() * p.grad)


def own_step(params, **settings):
    """An instance of SGD that was given the step of `Decoupling`."""
    base = optim.SGD(params, **settings)

    @torch.no_grad()
    def step():
        (group,) = base.param_groups
        for p in group["params"]:
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.sub_(group["lr"] * p.grad)

    base.step = step
    return base


def scheduled(params, **settings):
    """A scheduler that was made for the inner optimizer gives it a step of its own."""
    base = optim.SGD(params, **settings)
    optim.lr_scheduler.ConstantLR(base, factor=1.0)
    return base


def compiled(params, **settings):
    base = optim.SGD(params, **settings)
    base.step = torch.compile(base.step, backend="eager")
    return base


COUPLED = {
    "scheduled": (scheduled, {}),
    "compiled": (compiled, {}),
    "subclass": (MySGD, {}),
    "sgd": (optim.SGD, {}),
    "momentum": (optim.SGD, {"momentum": 0.9}),
    "nesterov": (optim.SGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (optim.Adam, {}),
    "adamax": (optim.Adamax, {}),
    "adagrad": (optim.Adagrad, {}),
    "adadelta": (optim.Adadelta, {}),
    "rmsprop": (optim.RMSprop, {}),
    "nadam": (optim.NAdam, {}),
    "radam": (optim.RAdam, {}),
}
DECOUPLED = {
    "adamw": (optim.AdamW, {}),
    "nadam": (optim.NAdam, {"decoupled_weight_decay": True}),
    "radam": (optim.RAdam, {"decoupled_weight_decay": True}),
    "adafactor": (optim.Adafactor, {}),
    "subclass": (Decoupling, {}),
    "own step": (own_step, {}),
}
DECAY = 0.3


PROBED = pytest.mark.parametrize("rule", [PaperRule(), FICKLE], ids=["once", "often"])


def parameters():
    torch.manual_seed(0)
    return [nn.Parameter(torch.randn(4, 3, dtype=torch.float64)) for _ in range(2)]


def quartic(params):
    return sum((p**4).sum() for p in params)


@pytest.mark.parametrize("name", COUPLED)
def test_coupled_decay_equals_the_penalty_written_into_the_loss(name):
    kind, settings = COUPLED[name]
    probes = []
    for in_loss in (False, True):
        params = parameters()
        base = kind(params, lr=1e-3, weight_decay=0.0 if in_loss else DECAY, **settings)
        opt = probstep.ProbStep(base, PaperRule())

        def loss(params=params, in_loss=in_loss):
            penalty = DECAY / 2 * sum((p**2).sum() for p in params)
            return quartic(params) + penalty if in_loss else quartic(params)

        for _ in range(3):
            opt.step(loss)
        probes.append(opt.last_probe)
    for name in ("loss", "slope", "loss_after", "ratio", "scale"):
        assert getattr(probes[0], name) == pytest.approx(getattr(probes[1], name), rel=1e-9)


def objective(params, decay):
    return (quartic(params) + decay / 2 * sum((p**2).sum() for p in params)).item()


def assert_probed(opt, before, params, decay):
    """The last probe saw the objective before and after, and its slope along the step that was kept."""
    pairs = list(zip(before, params, strict=True))
    slope = sum(((4 * b**3 + decay * b) * (b - p.detach())).sum().item() for b, p in pairs)
    assert opt.last_probe.slope == pytest.approx(slope, rel=1e-9)
    assert opt.last_probe.loss == pytest.approx(objective(before, decay), rel=1e-14)
    assert opt.last_probe.loss_after == pytest.approx(objective(params, decay), rel=1e-14)


@PROBED
@pytest.mark.parametrize("name", COUPLED)
def test_coupled_decay_counts_in_slope_and_losses(name, rule):
    kind, settings = COUPLED[name]
    params = parameters()
    opt = probstep.ProbStep(kind(params, lr=1e-3, weight_decay=DECAY, **settings), rule)
    for _ in range(3):
        before = [p.detach().clone() for p in params]
        opt.step(lambda: quartic(params))
        assert_probed(opt, before, params, DECAY)


@PROBED
@pytest.mark.parametrize("name", DECOUPLED)
def test_decoupled_decay_counts_in_the_displacement_and_not_in_the_losses(name, rule):
    kind, settings = DECOUPLED[name]
    params = parameters()
    opt = probstep.ProbStep(kind(params, lr=1e-4, weight_decay=DECAY, **settings), rule)
    for _ in range(3):
        before = [p.detach().clone() for p in params]
        opt.step(lambda: quartic(params))
        assert_probed(opt, before, params, 0.0)


@pytest.mark.parametrize("name", DECOUPLED)
def test_decoupled_decay_counts_in_the_ratio(name):
    kind, settings = DECOUPLED[name]
    params = parameters()
    opt = probstep.ProbStep(kind(params, lr=1e-4, weight_decay=DECAY, **settings), PaperRule())
    before = [p.detach().clone() for p in params]
    opt.step(lambda: quartic(params))
    assert opt.last_probe.loss == quartic(before).item()
    assert opt.last_probe.loss_after == quartic(params).item()
    # A short step sees no curvature. (With the decay left out of the slope: 4.35.)
    assert opt.last_probe.ratio == pytest.approx(2.0, abs=0.1)


def test_a_subclass_whose_step_depends_on_the_parameters_learns_with_a_bound():
    params = parameters()
    opt = probstep.ProbStep(Lars(params, lr=1e-2), PaperRule(), lower_bound=0.0)
    begun = quartic(params).item()
    for _ in range(10):
        opt.step(lambda: quartic(params))
    assert quartic(params).item() < 0.1 * begun


@PROBED
def test_groups_decay_each_by_their_own(rule):
    a, b = parameters()
    base = optim.SGD([{"params": [a], "weight_decay": DECAY}, {"params": [b]}], lr=1e-3)
    opt = probstep.ProbStep(base, rule)
    expected = quartic([a, b]).item() + DECAY / 2 * (a**2).sum().item()
    opt.step(lambda: quartic([a, b]))
    assert opt.last_probe.loss == pytest.approx(expected)


def test_clipping_scales_the_gradient_of_the_loss_but_not_the_decay():
    (a, _) = parameters()
    opt = probstep.ProbStep(optim.SGD([a], lr=1e-6, weight_decay=DECAY), PaperRule())
    loss = quartic([a])
    loss.backward()
    opt.clip_grad_norm_(0.1)
    opt.step(loss=loss, reevaluate=lambda: quartic([a]))
    assert opt.last_probe.ratio == pytest.approx(2.0, abs=1e-3)

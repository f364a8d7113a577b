"""A batch that is not finite: its step is skipped where that is known in time."""

import math

import pytest
import torch
from torch import nn

import probstep
from probstep import PaperRule, ProbStep, RobustRule

from .cases import FORMS, batches, plain_network

BASES = {
    "sgd": lambda params: torch.optim.SGD(params, lr=1e-3, momentum=0.9),
    "adam": lambda params: torch.optim.Adam(params),
    "fused": lambda params: torch.optim.Adam(params, fused=True),
}
SETTINGS = {
    "paper": {"rule": PaperRule(), "probe": probstep.Every(100)},
    "stretched": {"rule": PaperRule(), "probe": probstep.Every(100), "lower_bound": 0.0},
    "robust": {"rule": RobustRule(budget=(1.0, 0.0))},
}


def snapshot(model, opt):
    moments = [v for state in opt.state.values() for v in state.values()]
    tensors = [*model.parameters(), *(v for v in moments if isinstance(v, torch.Tensor))]
    return [t.detach().clone() for t in tensors]


def bad(batch):
    x, y = batch
    return x.clone().fill_(torch.nan), y


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("setting", SETTINGS)
def test_on_the_host_parameters_and_moments_are_untouched(setting, base, form):
    torch.manual_seed(0)
    model = plain_network()
    opt = ProbStep(BASES[base](model.parameters()), **SETTINGS[setting])
    data = batches(5)
    for batch in data[:3]:
        FORMS[form](opt, model, batch)
    before = snapshot(model, opt)
    with pytest.warns(RuntimeWarning, match="the step was skipped"):
        FORMS[form](opt, model, bad(data[3]))
    assert all(torch.equal(a, b) for a, b in zip(before, snapshot(model, opt), strict=True))
    assert opt.metrics()["probes/skipped"] == 1
    FORMS[form](opt, model, data[4])
    assert all(p.isfinite().all() for p in model.parameters())
    assert not torch.equal(before[0], next(model.parameters()))


@pytest.mark.filterwarnings("ignore:.*the step was skipped")
@pytest.mark.parametrize("base", ["sgd", "adam"])
def test_a_rate_outlives_batches_of_which_one_in_ten_is_not_finite(base):
    torch.manual_seed(0)
    model = plain_network()
    opt = ProbStep(BASES[base](model.parameters()))
    data = batches(400)
    for k, batch in enumerate(data):
        FORMS["closure"](opt, model, bad(batch) if k % 10 == 5 else batch)
    skipped = opt.metrics()["probes/skipped"]
    torch.manual_seed(0)
    model = plain_network()
    undisturbed = ProbStep(BASES[base](model.parameters()))
    for k, batch in enumerate(data):
        if k % 10 != 5:
            FORMS["closure"](undisturbed, model, batch)
    assert skipped == 40
    assert 1 / 3 < opt.scale / undisturbed.scale < 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("size", [3, 1 << 16])
def test_a_gradient_that_is_not_finite_is_seen_in_every_format(dtype, size):
    theta = nn.Parameter(torch.ones(size, dtype=dtype))
    base = torch.optim.SGD([theta], lr=1e-3)
    opt = ProbStep(base, PaperRule(), probe=probstep.Every(100), check=False)
    for k in range(2):
        opt.zero_grad()
        theta.grad = torch.ones_like(theta)
        theta.grad[-1] = math.inf if k else 1.0
        before = theta.detach().clone()
        if k:
            with pytest.warns(RuntimeWarning, match="the step was skipped"):
                opt.step(loss=torch.ones(()), reevaluate=lambda: torch.ones(()))
        else:
            opt.step(loss=torch.ones(()), reevaluate=lambda: torch.ones(()))
    assert torch.equal(theta, before)


def test_large_finite_gradients_whose_sum_overflows_are_no_reason_to_skip():
    theta = nn.Parameter(torch.ones(1 << 16))
    opt = ProbStep(torch.optim.SGD([theta], lr=1e-30), PaperRule(), probe=probstep.Every(100))
    for size in (1.0, 3e38):
        opt.zero_grad()
        theta.grad = torch.full_like(theta, size)
        opt.step(loss=torch.ones(()), reevaluate=lambda: torch.ones(()))
    assert opt.metrics()["probes/skipped"] == 0


@pytest.mark.parametrize("is_on_host", [True, False])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_probed_step_is_skipped_on_any_device(value, is_on_host, monkeypatch):
    monkeypatch.setattr("probstep.step.adapt.is_on_host", lambda _: is_on_host)
    torch.manual_seed(0)
    model = plain_network()
    opt = ProbStep(BASES["adam"](model.parameters()), probe=probstep.EveryStep())
    data = batches(4)
    for x, y in data[:3]:
        opt.step(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y))
    before = snapshot(model, opt)
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(data[3][0]), data[3][1])
    loss.backward()
    next(model.parameters()).grad.view(-1)[-1] = value
    with pytest.warns(RuntimeWarning, match="the step was skipped"):
        opt.step(
            loss=loss, reevaluate=lambda: nn.functional.cross_entropy(model(data[3][0]), data[3][1])
        )
    assert opt.last_probe.decision == "skipped"
    assert all(torch.equal(a, b) for a, b in zip(before, snapshot(model, opt), strict=True))


def trained_elsewhere(monkeypatch, base):
    """Three steps, the third with a bad batch, as if the parameters were on another device."""
    monkeypatch.setattr("probstep.step.unprobed.is_on_host", lambda _: False)
    torch.manual_seed(0)
    model = plain_network()
    opt = ProbStep(BASES[base](model.parameters()), RobustRule(budget=(1.0, 0.0)))
    data = batches(4)
    for batch in data[:2]:
        FORMS["closure"](opt, model, batch)
    before = snapshot(model, opt)
    FORMS["closure"](opt, model, bad(data[2]))
    return model, opt, before, data[3]


def test_on_another_device_a_fused_optimizer_skips_the_step_and_it_is_said_a_step_later(
    monkeypatch,
):
    model, opt, before, batch = trained_elsewhere(monkeypatch, "fused")
    assert all(torch.equal(a, b) for a, b in zip(before, snapshot(model, opt), strict=True))
    with pytest.warns(RuntimeWarning, match="the step was skipped"):
        FORMS["closure"](opt, model, batch)
    assert opt.metrics()["probes/skipped"] == 1


def test_on_another_device_any_other_optimizer_has_stepped_and_that_is_said(monkeypatch):
    model, opt, _, batch = trained_elsewhere(monkeypatch, "adam")
    assert all(p.isnan().any() for p in model.parameters())
    with pytest.warns(RuntimeWarning, match="Adam has taken that step"):
        FORMS["closure"](opt, model, batch)


@pytest.mark.parametrize("error", [torch.linalg.LinAlgError, ZeroDivisionError])
@pytest.mark.parametrize("base", [torch.optim.SGD, torch.optim.RMSprop])
def test_a_loss_that_raises_only_where_a_probe_goes_is_infinite_there(base, error):
    w = nn.Parameter(torch.tensor(1.0))
    opt, raised = ProbStep(base([w])), []

    def loss():
        if w.item() < 0.2:  # as of a matrix that has no Cholesky factor there
            raised.append(w.item())
            raise error
        return 1 + ((w - 0.6) ** 2 + 0.01).sqrt()  # straight, until the minimum is near

    for _ in range(30):
        opt.step(loss)
    assert raised
    assert 0.4 <= w.item() < 0.8

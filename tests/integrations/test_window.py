"""A window repeats the micro-batches of a step as they were, whoever runs them."""

import importlib
import sys

import pytest
import torch
from torch import nn

from probstep import PaperRule, ProbStep, RobustRule
from probstep.integrations.window import Window

FROZEN = PaperRule(up=1, down=1)
PACKAGES = {
    "lightning": "lightning.pytorch",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "tensorboard": "torch.utils.tensorboard",
}


def parts(count=3):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 5, generator=generator) for _ in range(count)]


def make(lr=1e-4, rule=FROZEN):
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 1)).double()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=lr), rule)
    return model, opt, Window(opt, weight=1 / 3)


def accumulate(model, window):
    for x in parts():
        torch.rand(1)  # a data loader draws between micro-batches
        loss = window.run(lambda x=x: model(x.double()).square().mean())
        (loss / 3).backward()


def test_dropout_is_replayed_though_others_draw_between_micro_batches():
    model, opt, window = make()
    for _ in range(3):
        accumulate(model, window)
        opt.step()
        opt.zero_grad()
        assert opt.last_probe.ratio == pytest.approx(2, abs=0.01)
    assert opt.metrics()["probes/unpaired"] == 0


@pytest.mark.parametrize("rule", [PaperRule(), RobustRule()], ids=["paper", "robust"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_run_is_called_with_is_bound_as_a_closure_over_each_part_would_bind_it(count, rule):
    def train(run):
        torch.manual_seed(0)
        model, opt, _ = make(rule=rule)
        window = Window(opt, weight=1 / count)
        for _ in range(4):
            for x in parts(count):
                (run(window, model, x.double()) / count).backward()
            opt.step()
            opt.zero_grad()
        return opt.metrics(), [p.tolist() for p in model.parameters()]

    def square(model, x, *, power):
        return model(x).pow(power).mean()

    given = train(lambda window, model, x: window.run(square, model, x=x, power=2))
    closed_over = train(lambda window, model, x: window.run(lambda: model(x).pow(2).mean()))
    assert given == closed_over
    assert given[0]["probes/unpaired"] == 0


def test_a_loops_variable_may_move_on_before_the_step():
    model, opt, window = make()
    for x in parts():
        (window.run(lambda x: model(x.double()).square().mean(), x) / 3).backward()
    opt.step()
    assert opt.last_probe.ratio == pytest.approx(2, abs=0.01)


def test_a_skipped_step_leaves_nothing_behind():
    model, opt, window = make()
    accumulate(model, window)
    opt.zero_grad()  # a scaler found an overflow
    window.clear()
    accumulate(model, window)
    opt.step()
    assert opt.last_probe.ratio == pytest.approx(2, abs=0.01)


def test_the_factor_of_clipping_is_handed_over():
    model, opt, window = make()
    accumulate(model, window)
    for p in model.parameters():
        p.grad.mul_(0.01)
    window.grad_scale = 0.01
    opt.step()
    assert opt.last_probe.ratio == pytest.approx(2, abs=0.01)


def test_a_trainers_closure_hands_over_from_inside():
    model, opt, window = make()

    def closure():
        accumulate(model, window)
        window.hand_over()
        return torch.tensor(123.0)  # its own idea of the loss

    opt.step(closure)
    assert opt.last_probe.ratio == pytest.approx(2, abs=0.01)


def test_a_trainers_closure_may_skip_its_batch():
    model, opt, _ = make()
    before = [p.clone() for p in model.parameters()]
    assert opt.step(lambda: None) is None
    assert all(torch.equal(a, p) for a, p in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("rule", [PaperRule(), RobustRule()], ids=["paper", "robust"])
def test_a_skipped_batch_teaches_nothing_though_old_gradients_are_in_place(rule):
    model, opt, window = make(rule=rule)
    for _ in range(3):
        opt.zero_grad()
        accumulate(model, window)
        opt.step()
    opt.step(lambda: None)  # here RobustRule hears of the step before
    before = opt.metrics()
    for _ in range(2):
        assert opt.step(lambda: None) is None
    assert opt.metrics() == {**before, "steps": 6}


def test_every_probe_of_a_searched_step_replays_all_micro_batches():
    model, opt, window = make(rule=RobustRule())
    for _ in range(5):
        accumulate(model, window)
        opt.step()
        opt.zero_grad()
    assert opt.metrics()["probes/unpaired"] == 0
    assert opt.metrics()["probe_forwards"] > 5
    assert opt.last_probe.loss_after < opt.last_probe.loss


@pytest.mark.parametrize("extra", PACKAGES)
def test_a_missing_package_is_named_with_its_extra(extra, monkeypatch):
    module = f"probstep.integrations.{extra}"
    monkeypatch.setitem(sys.modules, PACKAGES[extra], None)
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=rf"pip install 'probstep\[{extra}\]'"):
        importlib.import_module(module)

"""What users get wrong is named, what they may set holds, and what is shown is true."""

import copy
import math
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from probstep import ProbStep, RobustRule

from .cases import (
    FROZEN,
    RULES,
    batches,
    for_every_rule,
    loss_of,
    plain_network,
    step_with_closure,
    train_bare,
)


def start(rule=None, lr=1e-3, **settings):
    torch.manual_seed(0)
    model = plain_network()
    return model, ProbStep(torch.optim.Adam(model.parameters(), lr=lr), rule, **settings)


def run(model, opt, data):
    return [step_with_closure(opt, model, batch).item() for batch in data]


# Mistakes


@for_every_rule
def test_no_gradients_at_all_are_told_once(rule):
    _, opt = start(rule)
    stranger = plain_network()
    with pytest.warns(
        RuntimeWarning, match="No parameter of the optimizer has a gradient"
    ) as caught:
        for batch in batches(3):
            loss = loss_of(stranger, batch)
            loss.backward()
            opt.step(loss=loss, reevaluate=lambda batch=batch: loss_of(stranger, batch))
    assert len(caught) == 1
    assert opt.scale == 1.0


@for_every_rule
def test_a_rate_of_zero_is_told_once(rule):
    model, opt = start(rule, lr=0.0)
    with pytest.warns(RuntimeWarning, match="lr is 0 in every group") as caught:
        run(model, opt, batches(3))
    assert len(caught) == 1


@for_every_rule
def test_a_rate_of_zero_that_a_schedule_or_a_user_will_raise_is_no_mistake(rule):
    model, opt = start(rule)
    lr_scheduler.LambdaLR(opt, lambda k: k / 10)
    run(model, opt, batches(1))
    model, opt = start(rule)
    opt.param_groups[0]["lr"] = 0.0
    run(model, opt, batches(1))
    assert opt.scale == 1.0


@for_every_rule
def test_a_step_of_the_base_alone_is_told_once_and_our_own_never(rule):
    model, opt = start(rule)
    run(model, opt, batches(3))
    with pytest.warns(RuntimeWarning, match=r"Adam.step\(\) was called directly") as caught:
        opt.base.step()
        opt.base.step()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    run(model, opt, batches(3))


def test_an_optimizer_that_has_another_probstep_around_it_says_nothing():
    model, old = start(FROZEN)
    new = ProbStep(old.base, FROZEN)
    run(model, new, batches(2))
    assert new.metrics()["steps"] == 2


@pytest.mark.parametrize("wrong", [torch.ones(()), 0.5, "loss"])
def test_a_loss_in_the_closures_place_is_named(wrong):
    _, opt = start()
    with pytest.raises(TypeError, match="takes a function that computes the loss, not a"):
        opt.step(wrong)


def piling(opt, model, batch):
    def closure():
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    opt.step(closure)


@for_every_rule
def test_gradients_that_nobody_clears_are_told_once(rule):
    model, opt = start(rule)
    with pytest.warns(RuntimeWarning, match="they pile up") as caught:
        for batch in batches(6):
            piling(opt, model, batch)
    assert len([w for w in caught if "pile up" in str(w.message)]) == 1


def clear_in_place(opt, model):
    opt.zero_grad(set_to_none=False)


CLEARED = {
    "by the optimizer": lambda opt, model: opt.zero_grad(),
    "in place": clear_in_place,
    "by the model": lambda opt, model: model.zero_grad(),
    "one by one": lambda opt, model: [
        p.grad.zero_() for p in model.parameters() if p.grad is not None
    ],
}


@for_every_rule
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("how", CLEARED)
def test_gradients_that_somebody_clears_are_no_mistake(rule, inside, how):
    model, opt = start(rule)
    for batch in batches(5):

        def closure(batch=batch):
            if inside:
                CLEARED[how](opt, model)
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        if not inside:
            CLEARED[how](opt, model)
        opt.step(closure)


def test_micro_batches_before_the_closure_are_no_mistake():
    model, opt = start(FROZEN)
    for batch in batches(4):
        opt.zero_grad()
        loss_of(model, batch).backward()
        piling(opt, model, batch)


@pytest.mark.parametrize("shift", [-5.0, -50.0])
def test_a_loss_that_starts_below_zero_starts_about_as_another_does(shift):
    def train(shift):
        torch.manual_seed(0)
        model = plain_network()
        opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))
        losses = [
            opt.step(lambda batch=batch: loss_of(model, batch) + shift).item() - shift
            for batch in batches(100)
        ]
        return losses, opt

    expected, usual = train(0.0)
    losses, opt = train(shift)
    assert max(losses) < 1.5 * max(expected)
    assert sum(losses[-20:]) < 1.5 * sum(expected[-20:])
    assert usual.scale / 5 < opt.scale < 5 * usual.scale


# A CUDA graph


def test_a_step_inside_a_graph_capture_is_refused_and_changes_nothing(monkeypatch):
    model, opt = start()
    before = copy.deepcopy(model.state_dict())
    monkeypatch.setattr("probstep.optimizer.CAN_CAPTURE", True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="CUDA graph"):
        run(model, opt, batches(1))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


@for_every_rule
def test_a_capturable_optimizer_is_adapted_like_any_other(rule, monkeypatch):
    # torch itself takes the option on accelerators alone.
    adam = sys.modules[torch.optim.Adam.__module__]
    monkeypatch.setattr(adam, "_get_capturable_supported_devices", lambda *_, **__: ["cpu"])
    losses = []
    for capturable in (False, True):
        torch.manual_seed(0)
        model = plain_network()
        base = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=capturable, foreach=False)
        losses.append(run(model, ProbStep(base, rule), batches(8)))
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


# A largest rate


@for_every_rule
@pytest.mark.parametrize("warm_up", [False, True])
def test_no_step_uses_a_rate_above_max_lr(rule, warm_up):
    rates = []
    model, opt = start(rule, max_lr=2e-3)
    opt.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 5e-4})
    scheduler = lr_scheduler.LambdaLR(opt, lambda k: min(4.0, (k + 1) / 5) if warm_up else 1.0)
    opt.base.register_step_pre_hook(
        lambda base, *_: rates.append([group["lr"] for group in base.param_groups])
    )
    for batch in batches(30):
        before = copy.deepcopy(list(model.parameters()))
        step_with_closure(opt, model, batch)
        moved = max(
            (b - p).abs().max().item() for b, p in zip(before, model.parameters(), strict=True)
        )
        assert moved < 2 * 2e-3  # of Adam no step of a few is much longer than its rate
        assert max(opt.effective_lr) <= 2e-3 * (1 + 1e-12)
        scheduler.step()
    searched = 1 if rule is RULES["robust"] else 0  # which looks beyond it and does not stay there
    assert max(max(pair) for pair in rates[searched:]) <= 2e-3 * (1 + 1e-12)
    assert max(opt.effective_lr) == pytest.approx(2e-3)


def test_a_max_lr_that_is_never_reached_changes_nothing():
    runs = []
    for max_lr in (None, 1e9):
        model, opt = start(max_lr=max_lr)
        runs.append(run(model, opt, batches(20)))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("max_lr", [0.0, -1.0, math.nan, math.inf, "a"])
def test_a_max_lr_that_is_no_rate_is_refused(max_lr):
    with pytest.raises(ValueError, match="max_lr must be positive and finite"):
        start(max_lr=max_lr)
    _, opt = start(max_lr=0.5)
    with pytest.raises(ValueError, match="max_lr must be positive and finite"):
        opt.max_lr = max_lr
    assert opt.max_lr == 0.5


@for_every_rule
@pytest.mark.parametrize("taken", [0, 10])
def test_a_max_lr_that_is_set_later_holds_as_one_that_was_given(taken, rule):
    seen = []
    for way in ("given", "set", "copied"):
        model, opt = start(rule, max_lr=2e-3 if way == "given" and not taken else None)
        run(model, opt, batches(taken))
        if taken or way != "given":
            opt.max_lr = 2e-3
        if way == "copied":
            model, opt = copy.deepcopy((model, opt))
        losses = run(model, opt, batches(20))
        seen.append((losses, opt.effective_lr))
        assert max(opt.effective_lr) <= 2e-3 * (1 + 1e-12)
    assert seen[1:] == seen[:1] * 2


@pytest.mark.parametrize(
    ("name", "value"),
    {"rule": RobustRule(), "check": False, "model": None, "stateful": (), "noise": 1.0}.items(),
)
def test_a_setting_that_no_later_step_would_obey_is_refused(name, value):
    _, opt = start()
    before = getattr(opt, name)
    with pytest.raises(AttributeError, match=f"{name} is set when a ProbStep is made"):
        setattr(opt, name, value)
    assert getattr(opt, name) is before


def test_a_copy_keeps_max_lr():
    _, opt = start(max_lr=0.5)
    assert copy.deepcopy(opt).max_lr == 0.5


# A scale that is held


@for_every_rule
def test_frozen_from_the_start_it_is_the_bare_optimizer_without_probes(rule):
    model, opt = start(rule)
    opt.freeze()
    losses = run(model, opt, batches(10))
    torch.manual_seed(0)
    bare = plain_network()
    expected = train_bare(bare, torch.optim.Adam(bare.parameters(), lr=1e-3), batches(10))
    assert losses == [loss.item() for loss in expected]
    assert opt.metrics()["probe_forwards"] == 0


@for_every_rule
def test_a_frozen_scale_stays_and_an_unfrozen_one_moves_again(rule):
    model, opt = start(rule)
    data = batches(60)
    run(model, opt, data[:10])
    opt.freeze()
    scale, probes = opt.scale, opt.metrics()["probe_forwards"]
    run(model, opt, data[10:20])
    opt.reevaluate_with(lambda: loss_of(model, data[0]))
    opt.step()
    assert (opt.scale, opt.metrics()["probe_forwards"]) == (scale, probes)
    opt.unfreeze()
    run(model, opt, data[20:])
    assert opt.scale != scale


def test_a_checkpoint_knows_that_the_scale_is_frozen():
    _, opt = start()
    opt.freeze()
    _, again = start()
    again.load_state_dict(opt.state_dict())
    assert again.is_frozen
    assert not start()[1].is_frozen


# What is shown


def test_the_repr_is_one_short_line_of_what_matters():
    model, opt = start(RobustRule(up=1.5), lr=0.01)
    assert repr(opt) == "ProbStep(Adam, rule=RobustRule(up=1.5), scale=1, effective_lr=[0.01])"
    for _ in range(9):
        opt.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 0.5})
    run(model, opt, batches(3))
    assert "\n" not in repr(opt)
    assert len(repr(opt)) < 100


def test_the_groups_are_printed_without_the_memory():
    model, opt = start()
    run(model, opt, batches(3))
    for text in (repr(opt.base), repr(opt.param_groups[0]["probstep"])):
        assert "<scale" in text
        assert "decisions" not in text
    assert type(opt.state_dict()["param_groups"][0]["probstep"]) is dict
    assert type(opt.base.state_dict()["param_groups"][0]["probstep"]) is dict


def test_the_effective_rate_has_one_name_per_group():
    _, opt = start(lr=0.5)
    assert opt.effective_lr == [0.5]
    assert opt.metrics()["effective_lr"] == 0.5
    opt.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 0.25})
    rates = {k: v for k, v in opt.metrics().items() if k.startswith("effective_lr")}
    assert opt.effective_lr == [0.5, 0.25]
    assert rates == {"effective_lr/0": 0.5, "effective_lr/1": 0.25}


# Old names


def test_importing_the_package_warns_of_nothing():
    code = "import probstep, probstep.theory.inference, probstep.theory.covariance"
    subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:probstep", "-c", code], check=True
    )

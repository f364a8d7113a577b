"""A ProbStep is an optimizer like any other to Accelerate, and a window follows its accumulation."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from probstep import PaperRule, ProbStep, RobustRule

pytest.importorskip("accelerate")

from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer

from probstep.integrations.accelerate import track

BATCHES = 7  # odd, so that the last window of two is cut short
FROZEN = PaperRule(up=1, down=1)
for_every_rule = pytest.mark.parametrize("rule", [PaperRule(), None], ids=["paper", "default"])


@pytest.fixture(autouse=True)
def _forget_the_last_accelerator():
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def network(dropout=0.2):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 3)
    )


def loader():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(8 * BATCHES, 6, generator=generator)
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=8)


def prepared(accelerator, rule=None, lr=1e-3, dropout=0.2):
    model = network(dropout)
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=lr), rule)
    return accelerator.prepare(model, opt, loader())


def train(accelerator, model, opt, batches, *, epochs=2, clip=None):
    window = track(accelerator, opt)

    def loss_of(x, y):
        return nn.functional.cross_entropy(model(x), y)

    for _ in range(epochs):
        for x, y in batches:
            with accelerator.accumulate(model):
                loss = window.run(loss_of, x, y)
                accelerator.backward(loss)
                if clip is not None and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), clip)
                opt.step()
                opt.zero_grad()
    return opt.optimizer


def test_a_closure_given_positionally_adapts():
    accelerator = Accelerator(cpu=True)
    model, opt, batches = prepared(accelerator, PaperRule())
    for x, y in batches:
        opt.step(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y))
    assert opt.optimizer.metrics()["probe_forwards"] == BATCHES + 1  # the first proves the loss
    assert opt.optimizer.scale > 1


def test_the_default_is_the_robust_rule_and_every_probe_is_paired():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    opt = train(accelerator, *prepared(accelerator), clip=0.1)
    assert opt.rule == RobustRule()
    assert opt.metrics()["probes/search"] == 1
    assert opt.metrics()["probes/unpaired"] == 0


@pytest.mark.parametrize("accumulate", [1, 2, 3])
@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_step_too_small_to_bend_shows_the_ratio_two(accumulate, clip, precision):
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=accumulate, mixed_precision=precision
    )
    lr = 1e-5 if precision == "no" else 1e-3
    opt = train(accelerator, *prepared(accelerator, FROZEN, lr=lr), epochs=1, clip=clip)
    assert opt.metrics()["steps"] == -(-BATCHES // accumulate)
    assert opt.metrics()["probes/unpaired"] == 0
    assert opt.last_probe.ratio == pytest.approx(2, abs=0.05 if precision == "no" else 0.4)


@for_every_rule
@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_it_equals_a_plain_loop_over_the_same_windows(rule, accumulate):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate)
    model, opt, batches = prepared(accelerator, rule, dropout=0.0)
    ours = train(accelerator, model, opt, batches, epochs=1, clip=0.1)
    plain = network(dropout=0.0)
    expected = ProbStep(torch.optim.Adam(plain.parameters(), lr=1e-3), rule, model=plain)
    parts = list(loader())
    for start in range(0, BATCHES, accumulate):
        window = parts[start : start + accumulate]

        def loss_of(window=window):
            return sum(nn.functional.cross_entropy(plain(x), y) / accumulate for x, y in window)

        expected.zero_grad()
        loss = loss_of()
        loss.backward()
        expected.clip_grad_norm_(0.1)
        expected.step(loss=loss, reevaluate=loss_of)
    assert ours.scale == pytest.approx(expected.scale, rel=1e-5)
    assert ours.metrics().keys() == expected.metrics().keys()
    assert expected.scale > 1


@for_every_rule
def test_save_state_and_load_state_resume_bit_for_bit(tmp_path, rule):
    def run(epochs, load=None, save=None):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        parts = prepared(accelerator, rule)
        if load is not None:
            accelerator.load_state(load)
        opt = train(accelerator, *parts, epochs=epochs)
        if save is not None:
            accelerator.save_state(save)
        return opt.metrics(), [p.clone() for p in parts[0].parameters()]

    expected, weights = run(4)
    run(2, save=str(tmp_path))
    resumed, same_weights = run(2, load=str(tmp_path))
    assert resumed == expected
    assert all(torch.equal(a, b) for a, b in zip(same_weights, weights, strict=True))


def test_a_prepared_schedule_composes():
    accelerator = Accelerator(cpu=True, step_scheduler_with_optimizer=False)
    model, opt, batches = prepared(accelerator)
    schedule = accelerator.prepare(torch.optim.lr_scheduler.ExponentialLR(opt, 0.5))
    train(accelerator, model, opt, batches, epochs=1)
    schedule.step()
    assert opt.param_groups[0]["lr"] == pytest.approx(5e-4)
    assert opt.effective_lr[0] == pytest.approx(5e-4 * opt.scale)


def test_a_tracked_optimizer_shows_what_its_probstep_shows():
    accelerator = Accelerator(cpu=True)
    model, opt, batches = prepared(accelerator)
    inner = train(accelerator, model, opt, batches, epochs=1)
    assert isinstance(opt, AcceleratedOptimizer)
    assert (opt.scale, opt.effective_lr) == (inner.scale, inner.effective_lr)
    assert opt.metrics().keys() == inner.metrics().keys()
    assert opt.last_probe is inner.last_probe
    opt.freeze()
    assert inner.is_frozen
    assert not hasattr(opt, "nothing")


def test_an_optimizer_that_is_not_adapted_is_refused_with_advice():
    accelerator = Accelerator(cpu=True)
    opt = accelerator.prepare(torch.optim.SGD(network().parameters()))
    with pytest.raises(TypeError, match="ProbStep"):
        track(accelerator, opt)

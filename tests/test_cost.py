"""What a step costs: no host read without a probe, few with one, nothing kept of the model's size."""

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import probstep
from probstep import PaperRule, ProbStep, RobustRule

from .cases import FICKLE, batches, for_every_rule, loss_of, plain_network, step_with_closure


class CountReads(TorchDispatchMode):
    """Counts what would make the host wait for an accelerator."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default):
            # Comparing two random states reads host memory only: generators keep them there.
            self.reads += args[0].dtype != torch.uint8
        return function(*args, **(kwargs or {}))


SETTINGS = {
    "plain": {},
    "bound": {"lower_bound": 0.0},
    "interpolation": {"lower_bound": probstep.Interpolation()},
    "noise": {"noise": lambda f: 0.05 * f},
    "sample noise": {"noise": probstep.SampleNoise()},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_an_unprobed_step_reads_nothing_from_a_device_other_than_the_cpu(setting, monkeypatch):
    monkeypatch.setattr("probstep.step.unprobed.is_on_host", lambda _: False)
    model = plain_network()
    base = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    opt = ProbStep(base, PaperRule(), probe=probstep.Every(100), **SETTINGS[setting])
    reduction = "none" if setting == "sample noise" else "mean"
    first, second = batches(2)

    def loss(batch):
        return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction=reduction)

    opt.step(lambda: loss(first))
    monkeypatch.setattr(torch.Tensor, "tolist", pytest.fail)
    with CountReads() as count:
        opt.step(lambda: loss(second))
    assert count.reads == 0


def on_a_device(monkeypatch):
    """Let a probed step do what it does where reading has a price."""
    monkeypatch.setattr("probstep.step.adapt.is_on_host", lambda _: False)
    monkeypatch.setattr("probstep.step.unprobed.is_on_host", lambda _: False)
    monkeypatch.setattr("probstep.step.ranks.are_on_host", lambda _: False)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_probed_step_reads_before_and_after_and_the_first_also_compares(setting, monkeypatch):
    on_a_device(monkeypatch)
    model = plain_network()
    base = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    opt = ProbStep(base, PaperRule(), **SETTINGS[setting])
    reduction = "none" if setting == "sample noise" else "mean"
    transfers = []
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda t: transfers.append(t.shape) or tolist(t))
    for x, y in batches(2):
        with CountReads() as count:
            opt.step(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y, reduction=reduction))
        is_first = opt.metrics()["steps"] == 1
        assert count.reads == 0  # one more, on the first step, with a base that is not familiar
        # Before the step and after it; at first also where the loss is proved the same.
        assert len(transfers) == 2 + is_first
        transfers.clear()


def test_a_step_taken_back_reads_once_more_for_every_length(monkeypatch):
    on_a_device(monkeypatch)
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), FICKLE)
    first, second = batches(2)
    step_with_closure(opt, model, first)
    rejects, transfers = opt.metrics()["probes/reject"], []
    tolist = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", lambda t: transfers.append(t.shape) or tolist(t))
    with CountReads() as count:
        step_with_closure(opt, model, second)
    lengths = opt.metrics()["probes/reject"] - rejects + 1
    assert count.reads == 1  # what the step before left
    # What is known before the step; then each length's loss.
    assert len(transfers) == 1 + lengths


def tensors_alive():
    gc.collect()
    return sum(t.numel() for t in gc.get_objects() if issubclass(type(t), torch.Tensor))


KEPT = {
    "stretched": {"rule": PaperRule(), "lower_bound": 0.0},
    "searched and taken back": {"rule": FICKLE},
}


@pytest.mark.parametrize("how", KEPT)
def test_nothing_of_the_models_size_is_kept_between_steps(how):
    model = nn.Linear(300, 300)
    x = torch.randn(2, 300)
    unstepped = tensors_alive() + sum(p.numel() for p in model.parameters())  # the gradients
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), **KEPT[how])
    opt.step(lambda: model(x).square().mean())
    before = tensors_alive()
    assert before - unstepped < 5000
    opt.step(lambda: model(x).square().mean())
    assert tensors_alive() - before < 5000


def test_probing_every_kth_step_calls_the_closure_once_more_every_kth_step():
    model = plain_network()
    opt = ProbStep(
        torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule(), probe=probstep.Every(4)
    )
    calls = []
    for batch in batches(8):
        opt.step(lambda batch=batch: calls.append(1) or loss_of(model, batch))
    # Two probes, and one pass more at the first, to prove that the loss is the same.
    assert len(calls) == 8 + 2 + 1
    assert opt.metrics()["probe_forwards"] == 2 + 1


@pytest.mark.parametrize("rule", [PaperRule(), RobustRule(), FICKLE])
def test_the_closure_is_called_once_per_step_and_once_per_probe(rule):
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), rule)
    calls = []
    for batch in batches(8):
        opt.step(lambda batch=batch: calls.append(1) or loss_of(model, batch))
    assert len(calls) == 8 + opt.metrics()["probe_forwards"]


def test_gradients_that_a_closure_drops_are_not_kept_while_it_makes_new_ones():
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=0.1), RobustRule(budget=(1.0, 0.0)))
    kept = []

    def closure(batch):
        old = [weakref.ref(p.grad) for p in model.parameters() if p.grad is not None]
        opt.zero_grad()
        kept.append(sum(ref() is not None for ref in old))
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    for batch in batches(10):
        opt.step(lambda batch=batch: closure(batch))
    assert kept[-3:] == [0, 0, 0]


@pytest.mark.parametrize("runs_backward", [False, True])
def test_a_closure_leaves_nothing_on_the_parameters_that_backward_looks_into(runs_backward):
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3))

    def closure(batch):
        if not runs_backward:
            return loss_of(model, batch)
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    for batch in batches(6):
        opt.step(lambda batch=batch: closure(batch))
    assert all(p._post_accumulate_grad_hooks is None for p in model.parameters())
    assert all(p._backward_hooks is None for p in model.parameters())


def test_doubling_epochs_probe_epochs_one_two_four_and_eight():
    schedule = probstep.DoublingEpochs(steps_per_epoch=10)
    probed = {step // 10 + 1 for step in range(100) if schedule.is_due(step)}
    assert probed == {1, 2, 4, 8}
    assert all(schedule.is_due(step) for step in range(30, 40))


@for_every_rule
@pytest.mark.parametrize("compiled", ["model", "module.compile", "base step"])
def test_compiled_models_and_steps_train_as_eager_ones(compiled, rule):
    losses = []
    for compile_it in (False, True):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = plain_network()
        base = torch.optim.SGD(model.parameters(), lr=torch.tensor(1e-2))
        if compile_it and compiled == "base step":
            base.step = torch.compile(base.step, backend="eager")
        if compile_it and compiled == "module.compile":
            model.compile(backend="eager")
        used = (
            torch.compile(model, backend="eager") if compile_it and compiled == "model" else model
        )
        opt = ProbStep(base, rule, model=used)
        losses.append([step_with_closure(opt, used, batch).item() for batch in batches(4)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert opt.scale > 1


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
@pytest.mark.parametrize("in_place", [False, True])
def test_a_compiled_model_that_was_not_passed_is_named(in_place):
    model = plain_network()
    if in_place:
        model.compile(backend="eager")
    used = model if in_place else torch.compile(model, backend="eager")
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3))
    with pytest.raises(RuntimeError, match="model=model"):
        step_with_closure(opt, used, batches(1)[0])


def test_a_compiled_model_with_dropout_is_replayed_without_recompiling():
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    used = torch.compile(model, backend="eager")
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-30), PaperRule(), model=used)
    data = batches(6)
    for batch in data[:2]:
        step_with_closure(opt, used, batch)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch in data[2:]:
            step_with_closure(opt, used, batch)
            assert opt.last_probe.loss == opt.last_probe.loss_after


def test_a_compiled_model_is_searched_and_its_steps_taken_back_without_recompiling():
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    used = torch.compile(model, backend="eager")
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), FICKLE, model=used)
    first, *others = batches(4)
    step_with_closure(opt, used, first)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for batch in others:
            step_with_closure(opt, used, batch)
    assert opt.metrics()["probes/unpaired"] == 0


class Masked(nn.Module):
    """Adds up what it sees in buffers: one that a version shows, and one that is written behind it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mask", torch.ones(512, 512))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("hidden", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        self.hidden.data += 1  # as in many quantizers: the version of the tensor stays
        return self.layer(x) * (1 + 0.1 * self.count + 0.01 * self.hidden)


def copies_of_mask(opt):
    """The copies that lie on the tape."""
    held = [h for taken in opt._tape._passes for h in taken.buffers._seen.values() if "mask" in h]
    return {h["mask"][1].data_ptr() for h in held}, len(held)


def test_passes_share_one_copy_of_a_buffer_that_stays_as_it_is():
    model = Masked()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule(), model=model)
    data = batches(20)
    for batch in data:
        (loss_of(model, batch) / len(data)).backward()
    copies, passes = copies_of_mask(opt)
    assert (len(copies), passes) == (1, len(data))


def test_each_pass_is_replayed_with_its_own_buffers_however_they_were_written():
    model = Masked()
    base = torch.optim.SGD(model.parameters(), lr=1e-3)
    opt = ProbStep(base, PaperRule(), model=model, probe=probstep.Every(1))
    data, seen = batches(4), []

    def loss():
        seen.clear()
        total = torch.zeros(())
        for batch in data:
            total = total + loss_of(model, batch)
            seen.append((model.count.item(), model.hidden.item()))
        return total

    opt.zero_grad()
    first = loss()
    first.backward()
    once = list(seen)
    with torch.no_grad():
        model.mask[0, 0] = 2.0
    again, is_paired = opt._tape.again(loss, list(model.parameters()))
    assert (seen, again.item(), is_paired) == (once, first.item(), True)
    assert (model.count, model.hidden, model.mask[0, 0]) == (len(data), len(data), 2.0)

"""A probe leaves no trace: with a rule that never moves the scale, training is the bare optimizer's.

With one that tries many lengths of a step, all is the bare optimizer's but the length.
"""

import contextlib
import random
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

import probstep
from probstep.step.randomness import RandomState

from .cases import (
    FICKLE,
    FORMS,
    FROZEN,
    OPTIMIZERS,
    SEARCHING,
    batches,
    for_every_probe,
    for_every_rule,
    loss_of,
    network,
    train_bare,
)

VOTES = ("up", "keep", "down")  # of probes that saw the same function as the first pass


def everything(model, optimizer):
    """All that training can change, bit for bit."""
    return {
        "parameters": [p.detach().clone() for p in model.parameters()],
        "gradients": [p.grad.clone() for p in model.parameters()],
        "buffers": [b.clone() for b in model.buffers()],
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),  # noqa: NPY002
        "rates": [float(group["lr"]) for group in optimizer.param_groups],
        "moments": [
            value.clone()
            for p in model.parameters()
            for value in optimizer.state[p].values()
            if isinstance(value, torch.Tensor)
        ],
    }


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def adapted(case, net, *, rule=FROZEN, **settings):
    with warnings.catch_warnings() if case.warns else contextlib.nullcontext():
        if case.warns:
            warnings.simplefilter("ignore")
        return probstep.ProbStep(case.make(net.parameters()), rule, **settings)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_bit_for_bit_the_bare_optimizers(name):
    data = batches(6)
    torch.manual_seed(3)
    bare_model = network()
    bare = OPTIMIZERS[name].make(bare_model.parameters())
    losses = train_bare(bare_model, bare, data)
    expected = everything(bare_model, bare)

    torch.manual_seed(3)
    model = network()
    opt = adapted(OPTIMIZERS[name], model)
    assert [FORMS["closure"](opt, model, batch) for batch in data] == losses
    same(everything(model, opt), expected)
    assert (opt.last_probe is None) == opt.is_frozen == OPTIMIZERS[name].warns
    assert opt.metrics()["probes/unpaired"] == 0


def assert_same_but_for_the_length(name, form, *, with_model=False):
    """Take steps that are searched and taken back, each from where a bare twin begins as well."""
    torch.manual_seed(3)
    model, twin = network(), network()
    case = OPTIMIZERS[name]
    bare = case.make(twin.parameters())
    opt = probstep.ProbStep(
        case.make(model.parameters()), FICKLE, model=model if with_model else None
    )
    for batch in batches(4):
        before = nn.utils.parameters_to_vector(model.parameters()).detach()
        twin.load_state_dict(model.state_dict())
        start = torch.get_rng_state()
        (loss,) = train_bare(twin, bare, [batch])
        expected = everything(twin, bare)
        torch.set_rng_state(start)
        assert FORMS[form](opt, model, batch) == loss
        seen = everything(model, opt)
        moved, expected_move = (
            before - torch.cat([p.flatten() for p in values.pop("parameters")])
            for values in (seen, expected)
        )
        same(seen, expected)
        assert torch.cosine_similarity(moved, expected_move, dim=0) > 0.999
    assert opt.metrics()["probes/search"] == 1
    assert opt.metrics()["probes/reject"] >= 2 * 3
    assert opt.metrics()["probes/unpaired"] == 0


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if not OPTIMIZERS[name].warns])
def test_a_step_tried_at_many_lengths_is_the_bare_optimizers_but_for_its_length(name):
    assert_same_but_for_the_length(name, "closure")


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if not OPTIMIZERS[name].warns])
def test_the_step_after_a_search_is_bit_for_bit_the_bare_optimizers_at_the_rate_found(name):
    data, case = batches(1), OPTIMIZERS[name]
    torch.manual_seed(3)
    model = network()
    opt = adapted(case, model, rule=SEARCHING)
    FORMS["closure"](opt, model, data[0])
    assert opt.last_probe.decision == "search"
    seen = everything(model, opt)

    torch.manual_seed(3)
    bare_model = network()
    bare = case.make(bare_model.parameters())
    rate = bare.param_groups[0]["lr"]
    bare.param_groups[0]["lr"] = rate * opt.scale
    train_bare(bare_model, bare, data)
    bare.param_groups[0]["lr"] = rate
    same(seen, everything(bare_model, bare))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_model", [False, True])
def test_so_it_is_however_the_loss_arrives(form, with_model):
    assert_same_but_for_the_length("adam", form, with_model=with_model)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_model", [False, True])
def test_training_is_the_bare_optimizers_however_the_loss_arrives(form, with_model):
    data = batches(6)
    torch.manual_seed(3)
    bare_model = network()
    bare = OPTIMIZERS["adam"].make(bare_model.parameters())
    losses = train_bare(bare_model, bare, data)
    expected = everything(bare_model, bare)

    torch.manual_seed(3)
    model = network()
    opt = adapted(OPTIMIZERS["adam"], model, model=model if with_model else None)
    assert [FORMS[form](opt, model, batch) for batch in data] == losses
    same(everything(model, opt), expected)
    assert opt.last_probe.decision in VOTES


@pytest.mark.parametrize("form", ["closure", "closure with backward", "loss and reevaluate"])
@pytest.mark.parametrize("with_model", [False, True])
def test_a_step_of_no_length_is_probed_to_the_first_loss_bit_for_bit(form, with_model):
    model = network()
    base = torch.optim.SGD(model.parameters(), lr=1e-30)
    opt = probstep.ProbStep(base, FROZEN, model=model if with_model else None)
    for batch in batches(3):
        loss = FORMS[form](opt, model, batch)
        assert opt.last_probe.loss == opt.last_probe.loss_after == loss.item()


@for_every_probe
@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm1d(4),
        nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
        spectral_norm(nn.Linear(4, 4)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_buffers_are_what_one_forward_pass_makes_them(layer, rule):
    x = torch.randn(5, 4, 4) if isinstance(layer, nn.InstanceNorm1d) else torch.randn(5, 4)
    opt = probstep.ProbStep(torch.optim.SGD(layer.parameters(), lr=0.1), rule)
    state = {name: b.clone() for name, b in layer.named_buffers()}
    layer(x)
    once = {name: b.clone() for name, b in layer.named_buffers()}
    for name, b in layer.named_buffers():
        b.copy_(state[name])
    opt.step(lambda: layer(x).square().mean())
    same(dict(layer.named_buffers()), once)


def test_a_model_that_draws_from_python_and_numpy_is_replayed_too():
    w = nn.Parameter(torch.ones(1))

    def closure():
        return (w * (random.random() + np.random.rand())).sum()  # noqa: NPY002

    opt = probstep.ProbStep(torch.optim.SGD([w], lr=1e-30), FROZEN)
    opt.step(closure)
    assert opt.last_probe.loss == opt.last_probe.loss_after


def test_every_length_is_tried_with_the_same_numbers_from_python_and_numpy():
    w = nn.Parameter(torch.ones(1))
    opt = probstep.ProbStep(torch.optim.SGD([w], lr=0.1), FICKLE)
    for _ in range(3):
        opt.step(lambda: (w * (random.random() + np.random.rand())).square().sum())  # noqa: NPY002
    assert opt.metrics()["probes/unpaired"] == 0
    assert opt.metrics()["probes/reject"] >= 4


STREAMS = {
    "torch": lambda: torch.rand(1),
    "python": random.random,
    "numpy": lambda: np.random.rand(),  # noqa: NPY002
}


@pytest.mark.parametrize("stream", STREAMS)
def test_a_look_at_the_streams_shares_what_has_not_moved_and_sees_what_has(stream):
    np.random.seed(0)  # noqa: NPY002
    before = RandomState()
    unmoved = RandomState(since=before.host)
    assert unmoved == before
    assert unmoved.host.numpy is before.host.numpy
    assert unmoved.host.python is before.host.python
    STREAMS[stream]()
    moved = RandomState(since=before.host)
    assert moved != before
    before.restore(moved)
    assert RandomState(since=moved.host) == before


def test_a_normal_number_that_numpy_has_kept_is_seen_to_be_drawn():
    np.random.seed(0)  # noqa: NPY002
    np.random.randn()  # noqa: NPY002
    before = RandomState()
    np.random.randn()  # noqa: NPY002  # the one that was kept
    assert RandomState(since=before.host) != before


def test_a_normal_number_that_python_has_kept_is_seen_to_be_drawn():
    random.gauss(0.0, 1.0)
    before = RandomState()
    random.gauss(0.0, 1.0)  # the one that was kept, or a new pair
    assert RandomState(since=before.host) != before


def test_a_stream_of_python_whose_bytes_are_not_found_is_read_as_python_says_it(monkeypatch):
    monkeypatch.setattr("probstep.step.randomness._address_in_python", lambda _: None)
    before = RandomState()
    unmoved = RandomState(since=before.host)
    assert unmoved == before
    random.random()
    assert RandomState(since=unmoved.host) != before


def test_a_closure_that_draws_before_it_calls_the_model_is_replayed_from_its_beginning():
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    (batch,) = batches(1)

    def closure():
        return loss_of(model, (batch[0] + torch.rand(6), batch[1]))

    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-30), FROZEN, model=model)
    opt.step(closure)
    assert opt.last_probe.loss == opt.last_probe.loss_after
    assert opt.last_probe.decision == "uninformative"


def dropped(model, batch, opt, *, zero_first=True):
    if zero_first:
        opt.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch))
    return opt.last_probe.decision


def test_without_recording_the_pass_is_taken_to_begin_at_zero_grad_or_at_the_last_steps_end():
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), FROZEN)
    first, second = batches(2)
    assert dropped(model, first, opt) in VOTES
    assert dropped(model, second, opt, zero_first=False) in VOTES


@for_every_rule
def test_random_numbers_drawn_in_between_leave_the_probe_unpaired_with_a_remedy(rule):
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), rule)
    (batch,) = batches(1)
    opt.zero_grad()
    torch.rand(1)  # an augmentation, say
    loss = loss_of(model, batch)
    loss.backward()
    before = torch.get_rng_state()
    with pytest.warns(RuntimeWarning, match="forward_pass"):
        opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch))
    assert opt.last_probe.decision == "unpaired"
    assert opt.scale == 1.0
    same(torch.get_rng_state(), before)


def test_a_probe_that_draws_nothing_needs_no_start():
    model = nn.Linear(6, 3)
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), FROZEN)
    (batch,) = batches(1)
    opt.zero_grad()
    torch.rand(1)
    loss = loss_of(model, batch)
    loss.backward()
    torch.rand(1)
    opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch))
    assert opt.last_probe.decision in VOTES


@pytest.mark.parametrize("with_model", [False, True])
def test_micro_batches_are_replayed_each_from_its_own_beginning(with_model):
    model = network()
    opt = probstep.ProbStep(
        torch.optim.SGD(model.parameters(), lr=1e-30), FROZEN, model=model if with_model else None
    )
    parts = batches(3)

    def total():
        losses = []
        for part in parts:
            with contextlib.nullcontext() if with_model else opt.forward_pass():
                losses.append(loss_of(model, part))
        return sum(losses) / len(losses)

    opt.zero_grad()
    loss = torch.zeros(())
    for part in parts:
        torch.rand(1)  # the data loader shuffles, augments, ...
        with contextlib.nullcontext() if with_model else opt.forward_pass():
            share = loss_of(model, part) / len(parts)
        share.backward()
        loss += share.detach()
    opt.step(loss=loss, reevaluate=total)
    assert opt.last_probe.loss_after == pytest.approx(opt.last_probe.loss, rel=1e-6)
    assert opt.last_probe.decision != "unpaired"


def test_evaluating_the_model_between_steps_does_not_disturb_the_record():
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), FROZEN, model=model)
    (batch,) = batches(1)
    model.eval()
    model(batch[0])
    model.train()
    torch.rand(3)
    assert dropped(model, batch, opt) in VOTES


@for_every_probe
def test_gradients_that_the_user_reads_after_the_step_are_those_of_the_batch(rule):
    model = network()
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=0.1), rule)
    (batch,) = batches(1)

    def closure():
        for p in model.parameters():  # a closure that zeroes in place must not zero what we keep
            if p.grad is not None:
                p.grad.zero_()
        return loss_of(model, batch)

    opt.step(closure)
    assert all(p.grad.abs().sum() > 0 for name, p in model.named_parameters() if "4" in name)


@for_every_probe
def test_inside_autocast_the_probe_sees_the_new_weights(rule):
    model = nn.Linear(64, 64)
    x = torch.randn(32, 64)
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1.0), rule)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        opt.step(lambda: model(x).float().square().mean())
    assert opt.last_probe.loss_after != opt.last_probe.loss


def unpaired(model, opt, first, again):
    opt.zero_grad()
    loss = first()
    loss.backward()
    with pytest.warns(RuntimeWarning, match="other random numbers"):
        opt.step(loss=loss, reevaluate=again)
    return opt.last_probe.decision == "unpaired"


def test_noise_that_is_drawn_outside_the_model_is_replayed_from_zero_grad_or_unpaired():
    model = nn.Linear(6, 6)
    (x, _), *_ = batches(1)

    def loss():
        noise = torch.randn_like(x)
        return nn.functional.mse_loss(model(x + noise), noise)

    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-30), FROZEN, model=model)
    opt.zero_grad()
    first = loss()
    first.backward()
    opt.step(loss=first, reevaluate=loss)
    assert opt.last_probe.loss_after == opt.last_probe.loss

    def augmented():
        torch.rand(1)
        return loss()

    assert unpaired(model, opt, augmented, loss)


def test_a_pass_that_led_to_no_step_is_forgotten():
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    (batch,) = batches(1)
    for settings in ({}, {"model": model}):
        opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-30), FROZEN, **settings)
        for _ in range(2):  # the first time without a step, as after a GradScaler's overflow
            opt.zero_grad()
            torch.rand(1)
            with opt.forward_pass():
                loss = loss_of(model, batch)
            loss.backward()
        opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch))
        assert opt.last_probe.loss_after == opt.last_probe.loss
        assert opt.last_probe.decision != "unpaired"


def test_a_pass_that_raised_is_forgotten():
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    (batch,) = batches(1)
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-30), FROZEN)
    with pytest.raises(ZeroDivisionError), opt.forward_pass():
        loss_of(model, batch)
        raise ZeroDivisionError
    with opt.forward_pass():
        loss = loss_of(model, batch)
    loss.backward()
    opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch))
    assert opt.last_probe.loss_after == opt.last_probe.loss


@for_every_probe
def test_a_probe_that_covers_half_of_the_micro_batches_is_unpaired(rule):
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    first, second = batches(2)
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), rule, model=model)
    assert unpaired(
        model,
        opt,
        lambda: loss_of(model, first) + loss_of(model, second),
        lambda: loss_of(model, first),
    )


@for_every_probe
def test_the_gradients_of_another_optimizers_parameters_are_left_alone(rule):
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    (batch,) = batches(1)
    opt = probstep.ProbStep(torch.optim.SGD(model[0].parameters(), lr=0.5), rule)
    other = torch.optim.SGD(model[2].parameters(), lr=0.5)

    def closure():
        opt.zero_grad()
        other.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    expected = torch.autograd.grad(loss_of(model, batch), model[2].weight)[0]
    opt.step(closure)
    same(model[2].weight.grad, expected)


@for_every_probe
def test_buffers_beside_the_model_are_left_alone_too(rule):
    model, head = nn.Linear(6, 4), nn.BatchNorm1d(4)
    (x, _), *_ = batches(1)
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=0.1), rule, model=model)
    opt.step(lambda: head(model(x)).square().mean())
    assert head.num_batches_tracked.item() == 1


class Odd(nn.Module):
    """A module with buffers that cannot be written into, or whose graph waits for its backward."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.register_buffer("constant", torch.ones(6))
        self.register_buffer("expanded", torch.ones(1).expand(6))

    def forward(self, x):
        return self.linear(x) * self.constant * self.expanded


@for_every_probe
def test_a_graph_that_waits_for_its_backward_is_left_alone(rule):
    model = Odd()
    (x, _), *_ = batches(1)
    shared = nn.Parameter(torch.ones(6))
    waiting = (shared * model.constant * model.expanded).square().sum()
    opt = probstep.ProbStep(torch.optim.SGD(model.linear.parameters(), lr=0.1), rule)
    opt.step(lambda: model(x).square().mean())
    waiting.backward()  # autograd would raise if the buffers it saved had been written to
    same(shared.grad, torch.full((6,), 2.0))


@for_every_probe
def test_lazy_modules_are_no_obstacle(rule):
    model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d())
    (x, _), *_ = batches(1)
    model[0](x)
    opt = probstep.ProbStep(torch.optim.SGD(model[0].parameters(), lr=0.1), rule)
    opt.step(lambda: model(x).square().mean())
    assert model[1].num_batches_tracked.item() == 1

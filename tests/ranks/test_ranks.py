"""On many ranks all decide alike: the same bits as each other, the same numbers as one process."""

import copy
import functools
import os
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import probstep

from ..cases import FICKLE
from .spawn import on_ranks

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)
STEPS, SIZE = 6, 8
PAPER = {"rule": probstep.PaperRule()}
SETTINGS = {
    "plain": PAPER,
    "bound and noise": {**PAPER, "lower_bound": 0.1, "noise": 0.01},
    "running minimum": {
        **PAPER,
        "lower_bound": probstep.RunningMinimum(),
        "probe": probstep.Every(2),
    },
    "sample noise": {**PAPER, "noise": probstep.SampleNoise()},
    "default": {},
    "searched and taken back": {"rule": FICKLE},
    "watched": {"rule": probstep.WatchRule()},
}
OPTIMIZERS = {
    "sgd": functools.partial(torch.optim.SGD, lr=1e-3, momentum=0.5, weight_decay=0.01),
    "adam": functools.partial(torch.optim.Adam, lr=1e-4, betas=(0.5, 0.999)),
    "adamw": functools.partial(torch.optim.AdamW, lr=1e-4, weight_decay=0.1),
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4)).double()


def data(step, size=4 * SIZE):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(size, 6, generator=generator, dtype=torch.float64)
    return x, (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()


def part_of(step, rank, ranks):
    return tuple(t.chunk(ranks)[rank] for t in data(step))


def train(model, opt, batch_of, reduction="mean", steps=STEPS):
    """Train and return the scale and the last probe after each step."""
    seen = []
    for step in range(steps):
        x, y = batch_of(step)
        opt.step(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y, reduction=reduction))
        seen.append((opt.scale, opt.last_probe.ratio, opt.last_probe.slope))
    return seen


def reduction_of(setting):
    return "none" if setting == "sample noise" else "mean"


def parameters_of(model):
    tensors = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return torch.cat([t.detach().flatten() for t in tensors])


def wrap_ddp(model, ranks):
    return DistributedDataParallel(model)


def wrap_fsdp(model, ranks):
    for layer in (model[0], model[2]):
        fully_shard(layer)
    return fully_shard(model)


def wrap_hybrid(model, ranks):
    mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicate", "shard"))
    return fully_shard(model, mesh=mesh)


WRAPS = {"ddp": wrap_ddp, "fsdp": wrap_fsdp, "hybrid": wrap_hybrid}


def run(rank, ranks, *, wrap, optimizer, setting):
    model = WRAPS[wrap](network(), ranks)
    base = OPTIMIZERS[optimizer](model.parameters())
    opt = probstep.ProbStep(base, **SETTINGS[setting])
    seen = train(model, opt, lambda step: part_of(step, rank, ranks), reduction_of(setting))
    return seen, parameters_of(model), opt.metrics()


@functools.cache
def alone(optimizer, setting):
    model = network()
    base = OPTIMIZERS[optimizer](model.parameters())
    opt = probstep.ProbStep(base, **SETTINGS[setting])
    return train(model, opt, data, reduction_of(setting)), parameters_of(model)


def tensor_parallel(rank, ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(network(), mesh, plan)
    opt = probstep.ProbStep(OPTIMIZERS["adam"](model.parameters()), probstep.PaperRule())
    return train(model, opt, data), parameters_of(model)


def zero(rank, ranks):
    model = DistributedDataParallel(network())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        base = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.Adam, lr=1e-4, betas=(0.5, 0.999)
        )
    opt = probstep.ProbStep(base, probstep.PaperRule())
    seen = train(model, opt, lambda step: part_of(step, rank, ranks))
    base.consolidate_state_dict(to=0)
    saved = opt.state_dict()["param_groups"][0]["probstep"]["scale"] if rank == 0 else None
    return seen, parameters_of(model), saved


def uneven(rank, ranks):
    model = DistributedDataParallel(network())
    opt = probstep.ProbStep(OPTIMIZERS["sgd"](model.parameters()), probstep.PaperRule())
    seen = train(model, opt, lambda step: tuple(t[: 2 + 5 * rank] for t in data(step)))
    return seen, parameters_of(model)


def one_rank_is_nan(rank, ranks, *, when):
    model = DistributedDataParallel(network())
    opt = probstep.ProbStep(OPTIMIZERS["sgd"](model.parameters()), probstep.PaperRule())
    calls = []

    def closure():
        calls.append(1)
        x, y = part_of(0, rank, ranks)
        bad = rank == 1 and len(calls) == when
        return nn.functional.cross_entropy(model(x), y) * (torch.nan if bad else 1.0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opt.step(closure)
    return opt.last_probe.decision, opt.scale, parameters_of(model)


def unpaired_on_one(rank, ranks):
    model = DistributedDataParallel(nn.Sequential(network(), nn.Dropout(0.5)))
    opt = probstep.ProbStep(OPTIMIZERS["sgd"](model.parameters()), probstep.PaperRule())
    x, y = part_of(0, rank, ranks)
    opt.zero_grad()
    if rank == 1:
        torch.rand(1)
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opt.step(loss=loss, reevaluate=lambda: nn.functional.cross_entropy(model(x), y))
    return opt.last_probe.decision, opt.scale


def another_loss_on_one(rank, ranks):
    model = DistributedDataParallel(network())
    opt = probstep.ProbStep(OPTIMIZERS["sgd"](model.parameters()))
    steps = iter(range(9))

    def closure():
        x, y = part_of(next(steps) if rank == 1 else 0, rank, ranks)
        return nn.functional.cross_entropy(model(x), y)

    before = parameters_of(model)
    try:
        opt.step(closure)
    except probstep.NotTheSameLoss as error:
        return str(error), torch.equal(parameters_of(model), before)


def accumulate(rank, ranks):
    model = DistributedDataParallel(network())
    opt = probstep.ProbStep(OPTIMIZERS["sgd"](model.parameters()), probstep.PaperRule())
    seen = []
    for step in range(STEPS):
        x, y = part_of(step, rank, ranks)
        halves = list(zip(x.chunk(2), y.chunk(2), strict=True))

        def part(pair, model=model):
            return nn.functional.cross_entropy(model(pair[0]), pair[1]) / 2

        opt.zero_grad()
        with model.no_sync():
            first = part(halves[0])
            first.backward()
        second = part(halves[1])
        second.backward()
        total = (first + second).detach()
        opt.step(loss=total, reevaluate=lambda h=halves, part=part: part(h[0]) + part(h[1]))
        seen.append((opt.scale, opt.last_probe.ratio, opt.last_probe.slope))
    return seen, parameters_of(model)


def one_dies(rank, ranks):
    # Not DDP: its own all-reduce would be the first to notice.
    model = network()
    opt = probstep.ProbStep(OPTIMIZERS["sgd"](model.parameters()), probstep.PaperRule())
    x, y = part_of(0, rank, ranks)
    if rank == 1:
        os._exit(0)
    opt.step(lambda: nn.functional.cross_entropy(model(x), y))


def alone_among_others(rank, ranks):
    model = network()
    base = torch.optim.SGD(model.parameters(), lr=1e-3 * 1e4**rank)
    opt = probstep.ProbStep(base, probstep.PaperRule(), process_group=False)
    train(model, opt, data)
    return opt.scale


CASES = [
    (2, "ddp", "sgd", "plain"),
    (2, "ddp", "adam", "bound and noise"),
    (2, "ddp", "adamw", "running minimum"),
    (2, "fsdp", "sgd", "plain"),
    (2, "fsdp", "adam", "bound and noise"),
    (2, "ddp", "adam", "default"),
    (2, "fsdp", "sgd", "default"),
    (2, "fsdp", "adam", "searched and taken back"),
    (2, "ddp", "sgd", "watched"),
    (4, "ddp", "adam", "plain"),
    (4, "hybrid", "adam", "default"),
    (4, "hybrid", "sgd", "searched and taken back"),
    (4, "fsdp", "adamw", "running minimum"),
    (4, "hybrid", "adam", "plain"),
    (4, "hybrid", "sgd", "bound and noise"),
]


@functools.cache
def results(ranks):
    """All that is run on so many ranks, started once."""
    functions = {
        str(case): functools.partial(run, wrap=case[1], optimizer=case[2], setting=case[3])
        for case in CASES
        if case[0] == ranks
    }
    if ranks == 2:
        functions |= {
            "tensor parallel": tensor_parallel,
            "zero": zero,
            "uneven": uneven,
            "nan before": functools.partial(one_rank_is_nan, when=1),
            "nan after": functools.partial(one_rank_is_nan, when=3),  # after the proof
            "another loss": another_loss_on_one,
            "unpaired": unpaired_on_one,
            "accumulate": accumulate,
            "apart": alone_among_others,
        }
    return on_ranks(ranks, functions)


def assert_same(seen, parameters, optimizer, setting):
    expected, expected_parameters = alone(optimizer, setting)
    torch.testing.assert_close(torch.tensor(seen), torch.tensor(expected), rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(parameters, expected_parameters, rtol=1e-8, atol=1e-10)
    assert (seen[-1][0] != 1.0) == (setting != "watched")  # the scale moved


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_ranks_agree_bitwise_and_equal_one_process_on_the_joined_batch(case):
    (seen, parameters, metrics), *others = results(case[0])[str(case)]
    for other_seen, other_parameters, other_metrics in others:
        assert other_seen == seen
        assert torch.equal(other_parameters, parameters)
        assert other_metrics == metrics
    assert_same(seen, parameters, *case[2:])


def test_tensor_parallel_ranks_equal_one_process():
    first, second = results(2)["tensor parallel"]
    assert first[0] == second[0]
    assert_same(*first, "adam", "plain")


def test_zero_ranks_equal_one_process_and_consolidate():
    first, second = results(2)["zero"]
    assert first[0] == second[0]
    assert torch.equal(first[1], second[1])
    assert_same(*first[:2], "adam", "plain")
    assert first[2] == first[0][-1][0]


def test_uneven_batches_keep_ranks_together_as_plain_means():
    first, second = results(2)["uneven"]
    assert first[0] == second[0]
    assert torch.equal(first[1], second[1])


@pytest.mark.parametrize(("when", "decision"), [("before", "skipped"), ("after", "down")])
def test_a_nan_on_one_rank_is_decided_alike_by_all(when, decision):
    first, second = results(2)[f"nan {when}"]
    assert first[:2] == second[:2]
    assert first[0] == decision
    assert torch.equal(first[2], second[2])
    assert torch.isfinite(first[2]).all()


def test_a_probe_that_is_unpaired_on_one_rank_is_unpaired_on_all():
    assert results(2)["unpaired"] == [("unpaired", 1.0)] * 2


def test_another_loss_on_one_rank_is_refused_by_all_in_the_same_words():
    first, second = results(2)["another loss"]
    assert first == second
    assert "1. it draws a new batch" in first[0]
    assert first[1]  # nothing moved


def test_no_sync_accumulation_equals_one_process():
    first, second = results(2)["accumulate"]
    assert first[0] == second[0]
    assert_same(*first, "sgd", "plain")


def test_processes_that_train_apart_are_left_apart():
    first, second = results(2)["apart"]
    assert first > second


def test_a_rank_that_dies_leaves_the_others_with_a_clear_error_in_time():
    error, nothing = on_ranks(2, {"dies": one_dies})["dies"]
    assert nothing is None
    assert "Not all of the 2 ranks answered" in error


def test_a_copy_has_the_same_process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        group = dist.new_group([0])
        w = nn.Parameter(torch.ones(2))
        opt = probstep.ProbStep(torch.optim.SGD([w], lr=0.1), process_group=group)
        opt.step(lambda: w.square().sum())
        model, twin = copy.deepcopy(([w], opt))
        assert twin.process_group is group
        twin.step(lambda: model[0].square().sum())
        opt.step(lambda: w.square().sum())
    finally:
        dist.destroy_process_group()
    assert (model[0].tolist(), twin.scale) == (w.tolist(), opt.scale)

"""A distributed checkpoint saved on 2 ranks goes on, as if nothing had happened, on 1 and on 4."""

import functools
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

import probstep

from .spawn import on_ranks
from .test_ranks import OPTIMIZERS, STEPS, WRAPS, network, parameters_of, part_of, train

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)
WRAP_OPTIMIZERS = [("fsdp", "adam"), ("ddp", "sgd")]
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)


def begin(wrap, optimizer, ranks):
    model = WRAPS[wrap](network(), ranks)
    base = OPTIMIZERS[optimizer](model.parameters())
    return model, probstep.ProbStep(base, probstep.PaperRule(), probe=probstep.Every(2))


def go_on(model, opt, rank, ranks, *, start, steps=STEPS):
    return train(model, opt, lambda step: part_of(start + step, rank, ranks), steps=steps)


def save(rank, ranks, *, folder, wrap, optimizer):
    model, opt = begin(wrap, optimizer, ranks)
    go_on(model, opt, rank, ranks, start=0)
    weights, state = get_state_dict(model, opt, options=OPTIONS)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)


def load(rank, ranks, *, folder, wrap, optimizer):
    """Load, and return the scale as loaded and what training on shows."""
    model, opt = begin(wrap, optimizer, ranks)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weights, state = get_state_dict(model, opt, options=OPTIONS)
        dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder)
        set_state_dict(
            model, opt, model_state_dict=weights, optim_state_dict=state, options=OPTIONS
        )
    loaded = opt.scale
    return loaded, go_on(model, opt, rank, ranks, start=STEPS), parameters_of(model)


@functools.cache
def uninterrupted(optimizer):
    model, opt = begin_alone(optimizer)
    before = go_on(model, opt, 0, 1, start=0)
    return before[-1][0], go_on(model, opt, 0, 1, start=STEPS), parameters_of(model)


def begin_alone(optimizer):
    model = network()
    base = OPTIMIZERS[optimizer](model.parameters())
    return model, probstep.ProbStep(base, probstep.PaperRule(), probe=probstep.Every(2))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Checkpoints written by 2 ranks."""
    made = {case: str(tmp_path_factory.mktemp("-".join(case))) for case in WRAP_OPTIMIZERS}
    saves = {
        str(case): functools.partial(save, folder=folder, wrap=case[0], optimizer=case[1])
        for case, folder in made.items()
    }
    assert on_ranks(2, saves) == {name: [None, None] for name in saves}
    return made


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_checkpoint_of_two_ranks_goes_on_with_any_number(folders, ranks):
    loads = {
        str(case): functools.partial(load, folder=folder, wrap=case[0], optimizer=case[1])
        for case, folder in folders.items()
    }
    results = on_ranks(ranks, loads)
    for case in WRAP_OPTIMIZERS:
        (scale, seen, parameters), *others = results[str(case)]
        for other_scale, other_seen, other_parameters in others:
            assert (other_scale, other_seen) == (scale, seen)
            assert torch.equal(other_parameters, parameters)
        expected_scale, expected_seen, expected_parameters = uninterrupted(case[1])
        assert scale == expected_scale != 1.0
        torch.testing.assert_close(
            torch.tensor(seen), torch.tensor(expected_seen), rtol=1e-6, atol=1e-9
        )
        torch.testing.assert_close(parameters, expected_parameters, rtol=1e-8, atol=1e-10)

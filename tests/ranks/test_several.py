"""Several optimizers on two ranks: the bits of each other, the numbers of one process, checkpoints."""

import functools

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

import probstep

from .spawn import on_ranks
from .test_ranks import STEPS, WRAPS, data, network, parameters_of, part_of, train

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
WRAPPED = ("ddp", "fsdp")


def begin(wrap=None, ranks=1, rates=(1e-6, 10.0)):
    model = network()
    model = model if wrap is None else WRAPS[wrap](model, ranks)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim == 1]
    bases = [
        torch.optim.SGD(matrices, lr=rates[0], momentum=0.5),
        torch.optim.AdamW(vectors, lr=rates[1], betas=(0.5, 0.999)),
    ]
    return model, probstep.ProbStep(bases)


def run(rank, ranks, *, wrap):
    """Train, save, go on; load what was saved, go on again."""
    model, opt = begin(wrap, ranks)
    seen = train(model, opt, lambda step: part_of(step, rank, ranks))
    rates = list(opt.effective_lr)
    trained = parameters_of(model)
    weights, state = get_state_dict(model, opt, options=FLAT)
    weights = {name: value.clone() for name, value in weights.items()}
    state = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}
    on = train(model, opt, lambda step: part_of(STEPS + step, rank, ranks))
    model, opt = begin(wrap, ranks, rates=(1.0, 1.0))
    set_state_dict(model, opt, model_state_dict=weights, optim_state_dict=state, options=FLAT)
    again = train(model, opt, lambda step: part_of(STEPS + step, rank, ranks))
    return seen, rates, trained, on, again


@pytest.fixture(scope="module")
def results():
    return on_ranks(2, {wrap: functools.partial(run, wrap=wrap) for wrap in WRAPPED})


@pytest.mark.parametrize("wrap", WRAPPED)
def test_ranks_agree_with_each_other_and_with_one_process(wrap, results):
    (seen, rates, trained, *_), other = results[wrap]
    assert (seen, rates) == (other[0], other[1])
    model, opt = begin()
    alone = train(model, opt, data)
    assert seen == [pytest.approx(numbers, rel=1e-6) for numbers in alone]
    assert rates == pytest.approx(list(opt.effective_lr), rel=1e-6)
    torch.testing.assert_close(trained, parameters_of(model))


@pytest.mark.parametrize("wrap", WRAPPED)
def test_a_distributed_checkpoint_goes_on_bit_for_bit(wrap, results):
    for *_, on, again in results[wrap]:
        assert again == on

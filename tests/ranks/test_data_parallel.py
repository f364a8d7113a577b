"""DistributedDataParallel's own ways: gradients that are views of its buckets, and uneven inputs."""

import functools
import itertools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import probstep

from ..cases import FORMS, FROZEN, batches, loss_of, plain_network, train_bare
from .spawn import on_ranks

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)
STEPS = 5
NETS = {"plain": plain_network, "one tensor": lambda: nn.Linear(6, 3, bias=False)}


def part(rank, ranks):
    return [tuple(t.chunk(ranks)[rank] for t in batch) for batch in batches(STEPS)]


def parallel(net):
    torch.manual_seed(0)
    return DistributedDataParallel(NETS[net](), gradient_as_bucket_view=True)


def numbers_of(model):
    return [p.detach().tolist() for p in model.parameters()]


def bare(rank, ranks, *, net):
    model = parallel(net)
    train_bare(model, torch.optim.Adam(model.parameters(), lr=1e-2), part(rank, ranks))
    return numbers_of(model)


def adapted(rank, ranks, *, net, form, rule=FROZEN, with_model=False):
    model = parallel(net)
    base = torch.optim.Adam(model.parameters(), lr=1e-2)
    opt = probstep.ProbStep(base, rule, model=model if with_model else None)
    for batch in part(rank, ranks):
        FORMS[form](opt, model, batch)
    return numbers_of(model)


def keeping_gradients(rank, ranks):
    """A closure that zeroes in place, as `set_to_none=False` does."""
    model = parallel("plain")
    opt = probstep.ProbStep(torch.optim.Adam(model.parameters(), lr=1e-2), FROZEN)

    def closure(batch):
        opt.zero_grad(set_to_none=False)
        loss = loss_of(model, batch)
        loss.backward()
        return loss

    for batch in part(rank, ranks):
        opt.step(functools.partial(closure, batch))
    return numbers_of(model)


def joined(rank, ranks, *, with_model):
    model = parallel("plain")
    base = torch.optim.SGD(model.parameters(), lr=1e-2)
    opt = probstep.ProbStep(base, model=model if with_model else None)
    before = numbers_of(model)
    try:
        with model.join():
            for batch in part(rank, ranks)[: 2 + rank]:
                FORMS["closure"](opt, model, batch)
    except RuntimeError as error:
        return str(error), numbers_of(model) == before
    return "no error", False


GRID = list(itertools.product(NETS, FORMS))
ROBUST = probstep.RobustRule()


@functools.cache
def results():
    functions = {f"bare {net}": functools.partial(bare, net=net) for net in NETS}
    functions |= {
        f"{net}, {form}": functools.partial(adapted, net=net, form=form) for net, form in GRID
    }
    functions |= {
        f"robust, {form}": functools.partial(adapted, net="plain", form=form, rule=ROBUST)
        for form in FORMS
    }
    functions["zeroed in place"] = keeping_gradients
    functions |= {f"joined {told}": functools.partial(joined, with_model=told) for told in (0, 1)}
    return on_ranks(2, functions)


@pytest.mark.parametrize(("net", "form"), GRID)
def test_with_gradients_in_buckets_training_is_the_bare_optimizers(net, form):
    assert results()[f"{net}, {form}"] == results()[f"bare {net}"]


def test_so_it_is_with_gradients_that_are_zeroed_in_place():
    assert results()["zeroed in place"] == results()["bare plain"]


def test_a_search_ends_alike_however_the_loss_arrives():
    ends = [results()[f"robust, {form}"] for form in FORMS if form != "registered"]
    assert ends[0] == ends[1] == ends[2]
    assert ends[0][0] == ends[0][1]


@pytest.mark.parametrize("told", [0, 1], ids=["found", "told"])
def test_join_is_refused_on_all_ranks_before_anything_moves(told):
    for message, is_unmoved in results()[f"joined {told}"]:
        assert "cannot step inside DistributedDataParallel.join()" in message
        assert is_unmoved

"""Averages of the weights on two ranks: the bits of each other, the numbers of one process."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

import probstep

from .spawn import on_ranks
from .test_ranks import data, network, parameters_of, part_of

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch was built without gloo"
)
STEPS = 20


def averaged(model, batch_of):
    """Return the average of the weights of a training, and the last ones."""
    average = AveragedModel(model, multi_avg_fn=probstep.polynomial_average(8))
    opt = probstep.AdamW(model.parameters())
    for step in range(STEPS):
        x, y = batch_of(step)
        opt.step(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y))
        average.update_parameters(model)
    return parameters_of(average), parameters_of(model)


def run(rank, ranks):
    model = DistributedDataParallel(network())
    return averaged(model, lambda step: part_of(step, rank, ranks))


def test_ranks_agree_on_an_average_with_each_other_and_with_one_process():
    (mine, last), (other, _) = on_ranks(2, {"ddp": run})["ddp"]
    assert torch.equal(mine, other)
    assert not torch.equal(mine, last)
    torch.testing.assert_close(mine, averaged(network(), data)[0])

"""A task on another device; torch's `meta` device stands for one that is not here."""

import pytest

from probstep.bench.problems import get_problem

PROBLEMS = ["digits_conv", "digits_attention", "digits_autoencoder", "regression"]


def devices(tensors):
    return {tensor.device.type for tensor in tensors}


@pytest.mark.parametrize("name", PROBLEMS)
def test_batches_go_where_the_model_went(name):
    task = get_problem(name).ready(seed=0)
    task.to("meta")
    batch = next(task.batches())
    assert devices(task.params) == devices(batch) == {"meta"}
    assert task.loss(batch).device.type == "meta"

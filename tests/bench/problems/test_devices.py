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


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_task_at_home_draws_the_same_batches_after_it_was_told_so(name):
    task, other = get_problem(name).ready(seed=0), get_problem(name).ready(seed=0)
    other.to("cpu")
    for (x, y), (other_x, other_y) in zip(task.batches(), other.batches(), strict=True):
        assert x.equal(other_x)
        assert y.equal(other_y)

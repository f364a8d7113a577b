"""Evaluation sets are those of the paper or the clean ones, and measuring leaves no trace."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from probstep.bench.problems import PROBLEMS, Problem
from probstep.bench.problems.sources import Source
from probstep.bench.problems.splits import Dataset, Samples, carve_validation

TRAIN, TEST = 600, 110


class Recorder(nn.Module):
    """Remembers what it was shown; answers with it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, inputs):
        self.seen += inputs.flatten().tolist()
        return inputs


def numbered(counts):
    return [Samples(torch.arange(n)[:, None].float(), torch.zeros(n)) for n in counts]


def mark(inputs, generator):
    """An augmentation that can be recognised: half a unit is added."""
    return inputs + 0.5


def split(dataset, **settings):
    return carve_validation(dataset, share=(1, 6), **settings)


def ready(evaluation):
    source = Source("numbers", lambda _: Dataset(*numbered((TRAIN, TEST))), split, augmented=mark)
    problem = Problem("numbers", source, Recorder, lambda out, _: out[:, 0], None, 32, 1)
    return problem.ready(seed=0, evaluation=evaluation)


def shown(task, name):
    task.model.seen.clear()
    task.evaluate(name)
    return list(task.model.seen)


def rows(task, name):
    return set(task._splits.get(name).rows.tolist())


def test_clean_training_samples_are_fixed_plain_and_never_for_validation():
    task = ready("clean")
    first = shown(task, "train")
    assert len(first) == len(set(first)) == 100
    assert set(first) <= rows(task, "train")
    assert shown(task, "train") == first


@pytest.mark.parametrize("name", ["valid", "test"])
def test_clean_evaluation_uses_every_sample_once(name):
    task = ready("clean")
    assert sorted(shown(task, name)) == sorted(rows(task, name))


def test_the_papers_training_samples_are_fresh_augmented_and_partly_for_validation():
    task = ready("paper")
    first, second = shown(task, "train"), shown(task, "train")
    assert len(first) == len(set(first)) == 96  # whole batches of 32 out of 100
    assert first != second
    plain = {value - 0.5 for value in first + second}
    assert plain <= set(range(TRAIN))
    assert plain & rows(task, "valid")
    assert plain & rows(task, "train")


def test_the_papers_other_samples_are_plain_and_of_whole_batches():
    task = ready("paper")
    valid, test = shown(task, "valid"), shown(task, "test")
    assert len(valid) == 96
    assert set(valid) < rows(task, "valid")
    assert test == list(range(96))


def test_the_loss_is_the_mean_over_the_samples_that_were_shown():
    task = ready("paper")
    assert task.evaluate("test").loss == sum(range(96)) / 96


def test_an_evaluation_does_not_change_what_is_trained_on():
    undisturbed, disturbed = ready("paper"), ready("paper")
    disturbed.evaluate("train")
    first, second = ([b[0].tolist() for b in task.batches()] for task in (undisturbed, disturbed))
    assert first == second


@pytest.mark.parametrize("evaluation", ["paper", "clean"])
@pytest.mark.parametrize("name", ["digits_batchnorm", "digits_attention"])
def test_an_evaluation_leaves_modes_buffers_and_the_global_generator(name, evaluation):
    task = PROBLEMS[name].ready(seed=0, evaluation=evaluation)
    list(task.model.children())[1].eval()
    modes = [module.training for module in task.model.modules()]
    buffers = {key: value.clone() for key, value in task.model.state_dict().items()}
    state = torch.get_rng_state()
    task.evaluate("valid")
    assert [module.training for module in task.model.modules()] == modes
    assert all(torch.equal(buffers[key], value) for key, value in task.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


def test_an_evaluation_that_fails_leaves_modes_and_the_global_generator():
    task = PROBLEMS["digits_mlp"].ready(seed=0)
    state = torch.get_rng_state()
    task.problem = replace(task.problem, losses=lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        task.evaluate("test")
    assert task.model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_a_model_in_evaluation_mode_drops_nothing():
    task = PROBLEMS["digits_attention"].ready(seed=0)
    assert task.evaluate("test") == task.evaluate("test")


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match=r"no split 'tst'\. Choose from train, valid, test"):
        ready("clean").evaluate("tst")


def test_a_diverged_model_is_measured_as_such():
    task = PROBLEMS["digits_mlp"].ready(seed=0)
    with torch.no_grad():
        for p in task.params:
            p.fill_(float("nan"))
    found = task.evaluate("test")
    assert found.loss != found.loss
    assert 0 <= found.accuracy <= 1


def train(task, epochs):
    optimizer = torch.optim.SGD(task.params, lr=0.05)
    losses = []
    for _ in range(epochs):
        for batch in task.batches():
            optimizer.zero_grad()
            loss = task.loss(batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        losses.append(task.evaluate("train").loss)
    return losses


@pytest.mark.parametrize("name", ["digits_mlp", "digits_attention"])
def test_a_resumed_task_equals_an_uninterrupted_one(name, tmp_path):
    ready = PROBLEMS[name].ready
    whole = train(ready(seed=0, evaluation="paper"), 2)
    task = ready(seed=0, evaluation="paper")
    begun = train(task, 1)
    state = {"task": task.state_dict(), "model": task.model.state_dict()}
    torch.save({**state, "rng": torch.get_rng_state()}, tmp_path / "state")
    again = ready(seed=0, evaluation="paper")
    state = torch.load(tmp_path / "state", weights_only=True)
    again.load_state_dict(state["task"])
    again.model.load_state_dict(state["model"])
    torch.set_rng_state(state["rng"])
    assert begun + train(again, 1) == whole


def test_the_seed_decides_everything():
    one, two, other = (train(PROBLEMS["digits_attention"].ready(seed=k), 1) for k in (0, 0, 1))
    assert one == two != other

"""Splits and steps per epoch are DeepOBS's, and keep their proportions for any subset."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from probstep.bench.problems import PROBLEMS
from probstep.bench.problems.splits import Dataset, Samples

from ..standard_files import draw, idx_bytes, write_idx, write_text


def ready_with(name, train, test, **settings):
    """The problem on as many samples as asked for, each of which is its own number."""
    row = PROBLEMS[name]
    samples = [Samples(torch.arange(n)[:, None], torch.arange(n)) for n in (train, test)]
    source = replace(row.source, load=lambda _: Dataset(*samples))
    problem = replace(row, source=source, make_model=nn.Identity)
    return problem.ready(seed=0, **settings)


TRAIN_TEST_SIZES_STEPS = {
    "mnist_mlp": (60_000, 10_000, (50_000, 10_000, 10_000), 390),
    "fmnist_2c2d": (60_000, 10_000, (50_000, 10_000, 10_000), 390),
    "fmnist_vae": (60_000, 10_000, (50_000, 10_000, 10_000), 781),
    "cifar10_3c3d": (50_000, 10_000, (40_000, 10_000, 10_000), 312),
    "cifar100_wrn164": (50_000, 10_000, (40_000, 10_000, 10_000), 312),
    "cifar100_allcnnc": (50_000, 10_000, (40_000, 10_000, 10_000), 156),
    "svhn_wrn164": (73_257, 26_032, (47_225, 26_032, 26_032), 368),
}


@pytest.mark.parametrize("name", TRAIN_TEST_SIZES_STEPS)
def test_complete_files_are_split_as_by_deepobs(name):
    train, test, sizes, steps = TRAIN_TEST_SIZES_STEPS[name]
    task = ready_with(name, train, test)
    assert tuple(task.sizes.values()) == sizes
    assert task.steps_per_epoch == steps


def test_the_quadratic_has_a_thousand_points_of_each_kind_and_seven_steps():
    task = PROBLEMS["quadratic_deep"].ready(seed=0)
    assert task.sizes == {"train": 1000, "valid": 1000, "test": 1000}
    assert task.steps_per_epoch == 7


@pytest.mark.parametrize(
    ("name", "train", "test", "sizes"),
    [
        ("svhn_3c3d", 8_000, 2_000, (5_157, 2_843, 2_000)),
        ("cifar100_3c3d", 6_000, 2_000, (4_800, 1_200, 2_000)),
    ],
)
def test_a_file_that_is_a_subset_is_split_in_proportion(name, train, test, sizes):
    assert tuple(ready_with(name, train, test).sizes.values()) == sizes


def test_a_subset_cuts_every_split_in_proportion():
    task = ready_with("fmnist_mlp", 60_000, 10_000, subset=6_000)
    assert task.sizes == {"train": 5_000, "valid": 1_000, "test": 1_000}
    assert task.steps_per_epoch == 39


def rows_of(task, split):
    return set(task._splits.get(split).rows.tolist())


def test_training_and_validation_share_no_sample_and_leave_none_out():
    task = ready_with("fmnist_mlp", 6_000, 1_000)
    assert rows_of(task, "train") | rows_of(task, "valid") == set(range(6_000))
    assert not rows_of(task, "train") & rows_of(task, "valid")


def test_the_seed_decides_the_split_but_not_the_test_samples_of_a_subset():
    one, two = (ready_with("fmnist_mlp", 6_000, 1_000, subset=600) for _ in range(2))
    problem = one.problem
    other = problem.ready(seed=1, subset=600)
    assert rows_of(one, "valid") == rows_of(two, "valid") != rows_of(other, "valid")
    assert rows_of(one, "test") == rows_of(other, "test")


def test_an_epoch_visits_each_sample_once_in_a_new_order_and_drops_the_rest():
    task = ready_with("fmnist_mlp", 1_200, 200)
    first, second = ([batch[1].tolist() for batch in task.batches()] for _ in range(2))
    assert [len(batch) for batch in first] == [128] * 7 == [128] * task.steps_per_epoch
    visited = [row for batch in first for row in batch]
    assert len(set(visited)) == len(visited)
    assert set(visited) < rows_of(task, "train")
    assert first != second


def test_the_order_of_an_epoch_does_not_touch_the_global_generator():
    task = ready_with("fmnist_mlp", 1_200, 200)
    before = torch.get_rng_state()
    list(task.batches())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("subset", [0, -1, 1201, 10**9])
def test_an_impossible_subset_is_refused(subset):
    with pytest.raises(ValueError, match=f"subset={subset} is not possible.*1200 samples"):
        ready_with("fmnist_mlp", 1_200, 200, subset=subset)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 is not possible.*128"),
        ({"batch_size": 1_001}, "1000 training samples here, fewer than one batch of 1001"),
        ({"subset": 100}, "83 training samples here, fewer than one batch of 128"),
        ({"evaluation": "papr"}, "evaluation='papr' is not known"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ready_with("fmnist_mlp", 1_200, 200, **settings)


def test_a_text_is_split_in_order_into_validation_training_and_test(tmp_path):
    write_text(tmp_path / "text", characters=60_000)
    task = PROBLEMS["tolstoi_char_rnn"].ready(seed=0, data_dir=tmp_path)
    text = task.problem.source.load(tmp_path)
    assert (len(text.train.inputs), len(text.test.inputs)) == (48_000, 12_000)
    first = {name: task._splits.get(name).samples.inputs[0] for name in ("train", "valid", "test")}
    assert torch.equal(first["valid"], text.train.inputs[:50])
    assert torch.equal(first["train"], text.train.inputs[12_000:12_050])
    assert torch.equal(first["test"], text.test.inputs[:50])
    assert task.steps_per_epoch == (36_000 - 1) // (50 * 50)


def test_a_subset_of_a_text_is_its_beginning(tmp_path):
    write_text(tmp_path / "text", characters=60_000)
    task = PROBLEMS["tolstoi_char_rnn"].ready(
        seed=0, data_dir=tmp_path, subset=16_000, batch_size=5
    )
    assert task.sizes == {"train": 47 * 5, "valid": 15 * 5, "test": 15 * 5}


def test_a_text_too_short_for_one_batch_is_refused(tmp_path):
    write_text(tmp_path / "text", characters=60_000)
    with pytest.raises(ValueError, match="too few for one batch of 50 sequences of 50"):
        PROBLEMS["tolstoi_char_rnn"].ready(seed=0, data_dir=tmp_path, subset=3_000)


def test_a_text_with_too_many_kinds_of_characters_is_refused(tmp_path):
    (tmp_path / "text").mkdir()
    path = tmp_path / "text/war_and_peace.txt"
    path.write_text("".join(chr(500 + k) for k in range(90)), encoding="utf-8")
    with pytest.raises(ValueError, match="90 different characters, but the model knows 83"):
        PROBLEMS["tolstoi_char_rnn"].ready(seed=0, data_dir=tmp_path)


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    folder = write_idx(tmp_path / "MNIST/raw")
    (folder / "train-labels-idx1-ubyte.gz").unlink()
    (folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(draw((59,), 10)))
    with pytest.raises(ValueError, match="60 images but 59 labels"):
        PROBLEMS["mnist_mlp"].ready(seed=0, data_dir=tmp_path)


def test_a_problem_without_its_files_says_what_is_missing_and_how_to_get_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"data_batch_1.*python -m probstep\.bench\.data"):
        PROBLEMS["cifar10_3c3d"].ready(seed=0, data_dir=tmp_path)

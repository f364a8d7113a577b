"""On real data every problem's loss falls. Needs a data directory: see PROBSTEP_DATA below.

The quick ones run whenever their files are there; the large networks only with PROBSTEP_SLOW=1.
"""

import os
from statistics import mean

import pytest
import torch

from probstep.bench.data import find_folder, get_files
from probstep.bench.problems import PROBLEMS

QUICK = {
    "mnist_logreg": 100,
    "mnist_mlp": 60,
    "fmnist_logreg": 100,
    "fmnist_mlp": 60,
    "fmnist_2c2d": 20,
    "cifar10_3c3d": 25,
    "tolstoi_char_rnn": 25,
}
SLOW = {
    "mnist_2c2d": 40,
    "mnist_vae": 60,
    "fmnist_vae": 60,
    "svhn_3c3d": 200,
    "svhn_wrn164": 100,
    "cifar100_allcnnc": 200,  # leaves the level of chance slowly
    "cifar100_3c3d": 100,
    "cifar100_wrn164": 100,
    "cifar100_resnet18": 100,
}
SMALL_BATCHES = {"cifar100_allcnnc": 32}
needs_patience = pytest.mark.skipif(
    not os.environ.get("PROBSTEP_SLOW"), reason="takes minutes: set PROBSTEP_SLOW=1 to run it"
)
CASES = [pytest.param(name, steps) for name, steps in QUICK.items()] + [
    pytest.param(name, steps, marks=needs_patience) for name, steps in SLOW.items()
]


def ready_or_skip(name, **settings):
    row = PROBLEMS[name]
    try:
        find_folder(get_files(row.source.name))
    except FileNotFoundError as error:
        pytest.skip(str(error))
    return row.ready(seed=0, **settings)


def train(task, steps):
    """The training losses of some steps with Adam, going on into new epochs."""
    optimizer = torch.optim.Adam(task.params, lr=1e-3)
    losses = []
    while len(losses) < steps:
        for batch, _ in zip(task.batches(), range(steps - len(losses)), strict=False):
            optimizer.zero_grad()
            loss = task.losses(batch).mean()
            (loss + task.penalty()).backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("name", "steps"), CASES)
def test_the_loss_falls_on_real_data(name, steps):
    losses = train(ready_or_skip(name, batch_size=SMALL_BATCHES.get(name)), steps)
    assert mean(losses[-10:]) < 0.99 * mean(losses[:5])


@pytest.mark.parametrize("name", ["mnist_mlp", "fmnist_mlp", "cifar10_3c3d"])
def test_complete_files_give_deepobs_splits(name):
    task = ready_or_skip(name)
    train = 40_000 if "cifar" in name else 50_000
    assert task.sizes == {"train": train, "valid": 10_000, "test": 10_000}
    assert task.problem.source.load(None).train.targets.bincount().max() < 7_000


def test_normalised_images_have_mean_zero_and_variance_one():
    task = ready_or_skip("cifar10_3c3d")
    stored = task.problem.source.load(None).train.inputs[::10]
    shown = task.problem.source.plain(stored, torch.Generator())
    assert shown.mean(dim=(0, 2, 3)).abs().max() < 0.02
    assert (shown.std(dim=(0, 2, 3)) - 1).abs().max() < 0.02

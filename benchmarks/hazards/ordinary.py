"""Ordinary trainings: small real problems, three optimizers, three schedules, short runs, batch sizes.

They need MNIST, Fashion-MNIST, CIFAR-10 and War and Peace in a directory in the usual layout:
MNIST/raw/*.gz, FashionMNIST/raw/*.gz, cifar-10-batches-py/, text/war_and_peace.txt.
"""

import gzip
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from .batches import wrong_labels
from .data import Batch, digits, generator, regression, sampler, windows
from .hazard import Half, Hazard, Training
from .models import Factors
from .nets import GPT, Encoder, Loss, Reader, accuracy, conv, mean_loss, mlp, of_symbols, supervised

STEPS = 1000
SHORT = (100, 200)
MEASURED = 2000  # samples of the training data by which a run is judged
RATES = {"momentum": 0.03, "adam": 1e-3, "adamw": 1e-3}
SIZES = {1: 3000, 2: 3000, 4: 2000, 16: 1000, 128: 1000}  # batch size: steps


@dataclass(frozen=True)
class Problem:
    """Data, a net for them and a loss.

    Args:
        train: What is learnt.
        test: What its accuracy is measured on; None where there is none.
        make: The net.
        loss: The loss of the net's output and the target.
        size: The batch size.
    """

    train: Batch
    test: Batch | None
    make: Callable[[], nn.Module]
    loss: Loss = F.cross_entropy
    size: int = 64


# Real data


@cache
def fashion(data: Path) -> tuple[Batch, Batch]:
    """Return Fashion-MNIST, pixels between 0 and 1."""
    folder = data / "FashionMNIST" / "raw"
    return images_of(folder, "train"), images_of(folder, "t10k")


@cache
def mnist(data: Path) -> Batch:
    """Return the training images of MNIST, pixels between 0 and 1."""
    return images_of(data / "MNIST" / "raw", "train")


def images_of(folder: Path, part: str) -> Batch:
    images = gzip.decompress((folder / f"{part}-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / f"{part}-labels-idx1-ubyte.gz").read_bytes())
    x = torch.frombuffer(bytearray(images), dtype=torch.uint8)[16:].view(-1, 784)
    y = torch.frombuffer(bytearray(labels), dtype=torch.uint8)[8:]
    return x / 255.0, y.long()


@cache
def cifar(data: Path) -> tuple[Batch, Batch]:
    """Return CIFAR-10 at 16 x 16, two batches for training and 2,000 images for testing."""
    folder = data / "cifar-10-batches-py"
    parts = [cifar_part(folder / name) for name in ("data_batch_1", "data_batch_2", "test_batch")]
    train = tuple(torch.cat(both) for both in zip(parts[0], parts[1], strict=True))
    return (train[0], train[1]), (parts[2][0][:2000], parts[2][1][:2000])


def cifar_part(path: Path) -> Batch:
    with path.open("rb") as file:
        content = pickle.load(file, encoding="bytes")
    x = torch.tensor(np.asarray(content[b"data"])).view(-1, 3, 32, 32) / 127.5 - 1
    return F.avg_pool2d(x, 2), torch.tensor(content[b"labels"])


@cache
def letters(data: Path) -> tuple[Tensor, int]:
    """Return the first 300,000 characters of War and Peace as numbers, and how many there are."""
    text = (data / "text" / "war_and_peace.txt").read_text(encoding="utf-8")[:300_000]
    known = {letter: k for k, letter in enumerate(sorted(set(text)))}
    return torch.tensor([known[letter] for letter in text]), len(known)


# Problems


def cifar_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(24 * 16, 10),
    )  # fmt: skip


def narrow_2c2d() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 12, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(12 * 49, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def of_images(make: Callable[[], nn.Module], data: Path, size: int = 64) -> Problem:
    train, test = fashion(data)
    return Problem(train, test, make, size=size)


def fmnist_mlp(data: Path) -> Problem:
    return of_images(lambda: mlp(784, 64, 10), data)


def fmnist_logreg(data: Path) -> Problem:
    return of_images(lambda: mlp(784, 10), data)


def fmnist_2c2d(data: Path) -> Problem:
    return of_images(narrow_2c2d, data, 32)


def fmnist_autoencoder(data: Path) -> Problem:
    (x, _), _ = fashion(data)
    return Problem((x, x), None, lambda: mlp(784, 64, 16, 64, 784), F.mse_loss)


def mnist_autoencoder(data: Path) -> Problem:
    x, _ = mnist(data)
    return Problem((x, x), None, lambda: mlp(784, 128, 32, 128, 784), F.mse_loss)


def cifar_autoencoder(data: Path) -> Problem:
    """Standardised images: the net begins on a plateau, and many rates destroy it at the edge."""
    (x, _), _ = cifar(data)
    x = (x.flatten(1) - x.mean()) / x.std()
    return Problem((x, x), None, lambda: mlp(768, 128, 32, 128, 768), F.mse_loss)


def cifar_batch_norm(data: Path) -> Problem:
    train, test = cifar(data)
    return Problem(train, test, cifar_net)


def in_windows(data: Path, length: int) -> Batch:
    text, _ = letters(data)
    return windows(text, length, 20_000, 31)(0)


def char_gru(data: Path) -> Problem:
    _, symbols = letters(data)
    make = lambda: Reader(symbols, 64)  # noqa: E731
    return Problem(in_windows(data, 24), None, make, of_symbols, 16)


def char_gpt(data: Path) -> Problem:
    _, symbols = letters(data)
    return Problem(in_windows(data, 24), None, lambda: GPT(symbols), of_symbols, 16)


def noisy_attention(_: Path) -> Problem:
    (x, y), test = digits()
    return Problem((x, wrong_labels(0.1)(y)), test, lambda: Encoder(pre_norm=True), size=32)


def digits_conv(_: Path) -> Problem:
    train, test = digits()
    return Problem(train, test, conv, size=32)


def digits_autoencoder(_: Path) -> Problem:
    (x, _), _ = digits()
    return Problem((x, x), None, lambda: mlp(64, 48, 12, 48, 64, act=nn.Tanh), F.mse_loss, 32)


def low_rank(_: Path) -> Problem:
    """Return 40 % of the cells of a matrix of rank three, with little noise."""
    stream = generator(34)
    left, right = torch.randn(150, 3, generator=stream), torch.randn(120, 3, generator=stream)
    cells = (torch.rand(150, 120, generator=stream) < 0.4).nonzero()
    values = (left @ right.T)[cells[:, 0], cells[:, 1]]
    noisy = values + 0.1 * torch.randn(len(values), generator=stream)
    return Problem((cells, noisy), None, lambda: Factors(150, 120, 5, False, 0.2), F.mse_loss, 64)


def two_decades(_: Path) -> Problem:
    return Problem(regression(32), None, lambda: mlp(20, 64, 1), F.mse_loss, 32)


def recommender(_: Path) -> Problem:
    """Return ratings by 300 people of 200 things, of rank four and with noise."""
    stream = generator(33)
    tastes, things = torch.randn(300, 4, generator=stream), torch.randn(200, 4, generator=stream)
    cells = (torch.rand(300, 200, generator=stream) < 0.3).nonzero()
    ratings = (tastes @ things.T / 2)[cells[:, 0], cells[:, 1]]
    noisy = ratings + 0.3 * torch.randn(len(ratings), generator=stream)
    return Problem((cells, noisy), None, lambda: Factors(300, 200, 8, False, 0.3), F.mse_loss, 128)


PROBLEMS: dict[str, tuple[Callable[[Path], Problem], Half]] = {
    "cifar_batch_norm": (cifar_batch_norm, "tuning"),
    "char_gru": (char_gru, "tuning"),
    "fmnist_mlp": (fmnist_mlp, "tuning"),
    "fmnist_logreg": (fmnist_logreg, "tuning"),
    "noisy_attention": (noisy_attention, "tuning"),
    "two_decades": (two_decades, "tuning"),
    "digits_autoencoder": (digits_autoencoder, "tuning"),
    "low_rank": (low_rank, "tuning"),
    "mnist_autoencoder": (mnist_autoencoder, "tuning"),
    "cifar_autoencoder": (cifar_autoencoder, "tuning"),
    "char_gpt": (char_gpt, "kept"),
    "fmnist_autoencoder": (fmnist_autoencoder, "kept"),
    "fmnist_2c2d": (fmnist_2c2d, "kept"),
    "digits_conv": (digits_conv, "kept"),
    "recommender": (recommender, "kept"),
}


# Schedules


def linear(steps: int, t: int) -> float:
    return max(0.0, 1 - t / steps)


def warm_up_cosine(steps: int, t: int) -> float:
    length = steps // 10
    if t < length:
        return (t + 1) / length
    return 0.5 * (1 + np.cos(np.pi * min(1.0, (t - length) / (steps - length))))


SCHEDULES: dict[str, Callable[[int, int], float] | None] = {
    "constant": None,
    "linear": linear,
    "warm-up-cosine": warm_up_cosine,
}


def scheduled(schedule: str, steps: int) -> Callable[[Optimizer], Any] | None:
    factor = SCHEDULES[schedule]
    return None if factor is None else lambda optimizer: LambdaLR(optimizer, partial(factor, steps))


# Rows


def train_problem(
    seed: int,
    problem: Callable[[Path], Problem],
    data: Path,
    schedule: str,
    steps: int,
    size: int | None,
) -> Training:
    """Build the training of a problem for a seed."""
    found = problem(data)
    net = found.make()
    some = (found.train[0][:MEASURED], found.train[1][:MEASURED])
    training = supervised(
        net,
        sampler(*found.train, size or found.size, seed),
        steps,
        mean_loss(net, some, found.loss),
        found.loss,
        schedule=scheduled(schedule, steps),
    )
    return training if found.test is None else replace(training, score=accuracy(net, found.test))


def ordinary(data: Path) -> tuple[Hazard, ...]:
    """Return all rows, for data in a directory."""
    return (*whole_runs(data), *short_runs(data), *batch_sizes(data))


def whole_runs(data: Path) -> list[Hazard]:
    return [
        row(f"{name}-{base}-{schedule}", name, data, base, schedule, family=f"ordinary, {schedule}")
        for name in PROBLEMS
        for base in RATES
        for schedule in SCHEDULES
    ]


def short_runs(data: Path) -> list[Hazard]:
    return [
        row(
            f"{name}-{base}-{steps}-steps",
            name,
            data,
            base,
            steps=steps,
            family=f"short, {steps} steps",
        )
        for name in PROBLEMS
        for base in RATES
        for steps in SHORT
    ]


def batch_sizes(data: Path) -> list[Hazard]:
    return [
        row(
            f"fmnist_mlp-{base}-batch-{size}",
            "fmnist_mlp",
            data,
            base,
            steps=steps,
            size=size,
            family=f"batch {size}",
        )
        for base in ("momentum", "adam")
        for size, steps in SIZES.items()
    ]


def row(
    name: str,
    problem: str,
    data: Path,
    base: str,
    schedule: str = "constant",
    steps: int = STEPS,
    size: int | None = None,
    family: str = "",
) -> Hazard:
    """Return a row of this suite; its half is its problem's."""
    make, half = PROBLEMS[problem]
    build = partial(
        train_problem, problem=make, data=data, schedule=schedule, steps=steps, size=size
    )
    return Hazard(name, build, base, RATES[base], family=family, half=half)

"""Where batches come from: scikit-learn's bundled digits, and data made from a seed. No downloads."""

from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

Batch = tuple[Tensor, Tensor]
Draw = Callable[[int], Batch]
SYMBOLS = 12  # of a random language


@cache
def digits() -> tuple[Batch, Batch]:
    """Return the digits for training (1,437) and for testing (360), pixels between 0 and 1."""
    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x = torch.tensor(pixels[order] / 16.0, dtype=torch.float32)
    y = torch.tensor(labels[order], dtype=torch.int64)
    return (x[:1437], y[:1437]), (x[1437:], y[1437:])


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def sampler(x: Tensor, y: Tensor, size: int, seed: int) -> Draw:
    """Return what draws batches with replacement."""
    stream = generator(seed)

    def draw(_: int) -> Batch:
        chosen = torch.randint(len(x), (size,), generator=stream)
        return x[chosen], y[chosen]

    return draw


def then(first: Draw, second: Draw, at: int) -> Draw:
    """Return what draws from the first until a step, and from the second after."""
    return lambda t: first(t) if t < at else second(t)


def regression(seed: int, features: int = 20, noise: float = 0.1, count: int = 2000) -> Batch:
    """Return inputs whose scales span two decades, and a smooth function of them with noise."""
    stream = generator(seed)
    scales = torch.logspace(-1, 1, features)
    x = torch.randn(count, features, generator=stream)
    w = torch.randn(features, 3, generator=stream) / features**0.5
    y = torch.tanh(x @ w).sum(1, keepdim=True)
    return x * scales, y + noise * torch.randn(count, 1, generator=stream)


def blobs(seed: int, classes: int = 10, features: int = 32, count: int = 2000) -> Batch:
    """Return overlapping clouds of points, and to which each belongs."""
    stream = generator(seed)
    centres = torch.randn(classes, features, generator=stream)
    y = torch.randint(classes, (count,), generator=stream)
    return centres[y] + 1.2 * torch.randn(count, features, generator=stream), y


def corpus(seed: int, symbols: int = SYMBOLS, length: int = 20_000) -> Tensor:
    """Return a text of a random language: after every two symbols three can follow, one most often."""
    random = np.random.default_rng(seed)
    follow = random.integers(symbols, size=(symbols, symbols, 3))
    text = [0, 1]
    for pick in random.choice(3, size=length, p=(0.7, 0.2, 0.1)):
        text.append(int(follow[text[-2], text[-1], pick]))
    return torch.tensor(text)


def windows(text: Tensor, length: int, size: int, seed: int) -> Draw:
    """Return what draws pieces of a text, and the same pieces one symbol further."""
    stream = generator(seed)
    offsets = torch.arange(length)

    def draw(_: int) -> Batch:
        start = torch.randint(len(text) - length - 1, (size, 1), generator=stream)
        return text[start + offsets], text[start + offsets + 1]

    return draw

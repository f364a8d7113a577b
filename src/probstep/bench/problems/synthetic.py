"""Samples that are drawn here, from fixed seeds: every run sees the same ones."""

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from probstep.bench.problems.sources import Source
from probstep.bench.problems.splits import Dataset, Samples, keep_validation

SEEDS = (42, 43, 44)  # DeepOBS's seeds of the training, test and validation samples


def gaussian_points(dimensions: int, noise: float, count: int = 1000) -> Source:
    """Points around zero in DeepOBS's draws: the noise of a quadratic.

    >>> gaussian_points(3, noise=0.6).load(None).train.inputs.shape
    torch.Size([1000, 3])
    """
    return Source("gaussian", partial(_load_points, dimensions, noise, count), keep_validation)


def _load_points(dimensions: int, noise: float, count: int, _: Path | str | None) -> Dataset:
    train, test, valid = (_draw_points(seed, dimensions, noise, count) for seed in SEEDS)
    return Dataset(train, test, valid)


def _draw_points(seed: int, dimensions: int, noise: float, count: int) -> Samples:
    points = np.random.RandomState(seed).normal(0.0, noise, (count, dimensions))
    return Samples(torch.from_numpy(points).float(), torch.zeros(count))


def noisy_wave(noise: float = 0.3, count: int = 1000) -> Source:
    """A wave seen through noise: x uniform in [-1, 1], y = sin(5 x) + noise.

    >>> noisy_wave().load(None).test.targets.shape
    torch.Size([1000, 1])
    """
    return Source("wave", partial(_load_wave, noise, count), keep_validation)


def _load_wave(noise: float, count: int, _: Path | str | None) -> Dataset:
    train, test, valid = (_draw_wave(seed, noise, count) for seed in SEEDS)
    return Dataset(train, test, valid)


def _draw_wave(seed: int, noise: float, count: int) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    x: Tensor = 2 * torch.rand(count, 1, generator=generator) - 1
    return Samples(x, torch.sin(5 * x) + noise * torch.randn(count, 1, generator=generator))

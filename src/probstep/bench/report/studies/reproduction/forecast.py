"""What the plan at full size would take on one GPU: arithmetic, not a measurement."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from probstep.bench.methods import METHODS
from probstep.bench.plans import list_runs, read_plan
from probstep.bench.problems import PROBLEMS
from probstep.bench.records import Run

GPU, PEAK = "NVIDIA A100", 19.5e12  # single precision, from its data sheet
SHARE_OF_PEAK = 0.25  # what a convolutional net reaches of it, assumed
LEAST_SECONDS = 2e-3  # of a step: launching its kernels, assumed
# Inputs and training samples, with the validation samples taken out as DeepOBS does.
INPUTS = {
    "fmnist": ((1, 28, 28), 50_000),
    "cifar10": ((3, 32, 32), 40_000),
    "cifar100": ((3, 32, 32), 40_000),
    "svhn": ((3, 32, 32), 47_257),
}


@dataclass(frozen=True)
class Forecast:
    """Runs and hours of a plan on one GPU."""

    runs: int
    hours: float


def forecast(plan: str) -> Forecast:
    """Count the plan's work; a forward pass is a third of a step, a probe another one."""
    runs = list_runs(read_plan(plan))
    return Forecast(len(runs), sum(map(_seconds, runs)) / 3600)


def _seconds(run: Run) -> float:
    _, samples = INPUTS[run.problem.split("_")[0]]
    batch = run.batch_size or PROBLEMS[run.problem].batch_size
    forward = 2.0 * count_products(run.problem) * batch / (SHARE_OF_PEAK * PEAK)
    passes = 4 if METHODS[run.method].needs.closure else 3
    return run.epochs * (samples // batch) * max(passes * forward, LEAST_SECONDS)


@cache
def count_products(problem: str) -> int:
    """Multiplications of a forward pass of one sample, in convolutions and dense layers.

    >>> count_products("fmnist_logreg")
    7840
    """
    shape, _ = INPUTS[problem.split("_")[0]]
    total = 0

    def count(module: nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        nonlocal total
        del inputs
        weight: torch.Tensor = module.weight  # type: ignore[assignment]
        total += output[0].numel() * weight[0].numel()

    with torch.random.fork_rng(devices=()):
        net = PROBLEMS[problem].make_model().eval()
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    with torch.no_grad():
        net(torch.zeros(1, *shape))
    return total

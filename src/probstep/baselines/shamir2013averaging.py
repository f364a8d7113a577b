"""Polynomial-decay averaging: evaluate a running average of the weights.

Reference: O. Shamir, T. Zhang. Stochastic gradient descent for non-smooth optimization: convergence
results and optimal averaging schemes. ICML 2013, arXiv:1212.1824. DoG and LDoG (Ivgi et al., 2023,
arXiv:2302.12022) ask for it, with gamma = 8; the numbers equal those of the averager in their package.

    average = (1 - w) average + w weights,    w = (gamma + 1) / (gamma + t),    in step t = 1, 2, ...

Floating buffers (running statistics) are averaged too, others copied. The average is kept as plain
data, so that a checkpoint of the optimizer can carry it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

GAMMA = 8.0


@torch.no_grad()
def update_average(memory: dict[str, Any], model: nn.Module, gamma: float = GAMMA) -> None:
    """Take the model's weights into the average.

    >>> model, memory = nn.Linear(1, 1, bias=False), {}
    >>> for value in (1.0, 11.0):
    ...     _ = nn.init.constant_(model.weight, value)
    ...     update_average(memory, model)
    >>> memory["average"]["weight"]  # 0.1 * 1 + 0.9 * 11
    tensor([[10.]])
    """
    memory["count"] = memory.get("count", 0) + 1
    average = memory.setdefault("average", {})
    share = (gamma + 1) / (gamma + memory["count"])
    for name, tensor in model.state_dict().items():
        if name in average and tensor.is_floating_point():
            # a checkpoint may have been loaded onto another device
            held = average[name] = average[name].to(tensor.device)
            held.mul_(1 - share).add_(tensor, alpha=share)
        else:
            average[name] = tensor.clone()


@contextmanager
def averaged(memory: dict[str, Any], model: nn.Module) -> Iterator[None]:
    """Lend the average to the model; afterwards it has its own weights again."""
    own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    _copy(memory.get("average", own), model)
    try:
        yield
    finally:
        _copy(own, model)


@torch.no_grad()
def _copy(source: dict[str, Tensor], model: nn.Module) -> None:
    for name, tensor in model.state_dict().items():
        tensor.copy_(source[name])

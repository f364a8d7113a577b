"""What the recipes share: a small network with dropout, and batches that it can learn."""

from collections.abc import Iterator

import torch
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 3))


def samples() -> Batch:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 10, generator=generator)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def batches(epochs: int = 8, size: int = 100) -> Iterator[Batch]:
    x, y = samples()
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(epoch)
        for rows in torch.randperm(len(x), generator=generator).split(size):
            yield x[rows], y[rows]


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    x, y = batch
    return nn.functional.cross_entropy(model(x), y)


def report(model: nn.Module, rate: float) -> float:
    """Print and return the loss of the whole training set."""
    model.eval()
    with torch.no_grad():
        loss = loss_of(model, samples()).item()
    print(f"loss {loss:.3f}, rate {rate:.2e}")
    return loss

"""Two small tasks for the contracts: a convex and a non-convex one, with dropout and BatchNorm."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


def linear_model() -> nn.Module:
    return nn.Linear(5, 1)


def small_net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))


def noisy_net() -> nn.Module:
    """A net with all that a second pass could disturb, and all that a checkpoint must hold."""
    return nn.Sequential(
        nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 1)
    )


def data(dtype: torch.dtype) -> Batch:
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(96, 5, generator=generator, dtype=torch.float64).to(dtype)
    return inputs, (inputs[:, :2].sum(1, keepdim=True) > 0).to(dtype)


@dataclass
class ToyTask:
    """Logistic regression or a small net on two classes."""

    model: nn.Module
    l2: float = 1e-3
    dtype: torch.dtype = torch.float32
    batch_size: int = 16

    @property
    def steps_per_epoch(self) -> int:
        return 6

    def batches(self) -> Iterator[Batch]:
        inputs, targets = data(self.dtype)
        size = self.batch_size
        for i in range(self.steps_per_epoch):
            yield inputs[i * size : (i + 1) * size], targets[i * size : (i + 1) * size]

    def losses(self, batch: Batch) -> Tensor:
        logits = self.model(batch[0])
        return nn.functional.binary_cross_entropy_with_logits(
            logits, batch[1], reduction="none"
        ).squeeze(1)

    def penalty(self) -> Tensor:
        return 0.5 * self.l2 * sum(p.square().sum() for p in self.model.parameters())

    def loss(self, batch: Batch) -> Tensor:
        return self.losses(batch).mean() + self.penalty()

    def total_loss(self) -> float:
        """The loss of all data, in evaluation mode."""
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            with torch.no_grad():
                return self.loss(data(self.dtype)).item()
        finally:
            for module, mode in modes:
                module.training = mode


def toy_task(
    make_model: Callable[[], nn.Module], dtype: torch.dtype = torch.float32, seed: int = 0
) -> ToyTask:
    torch.manual_seed(seed)
    return ToyTask(make_model().to(dtype), dtype=dtype)


TOYS = {"convex": linear_model, "non-convex": small_net}

"""Momentum contrast (He et al. 2020, arXiv 1911.05722): `forward` moves a second encoder.

The queue is a buffer, which ProbStep puts back by itself. The key encoder's weights are parameters that
nobody trains: the model says by two methods that they change, and ProbStep finds these.

python examples/18_moco.py
"""

import copy

import torch
from torch import Tensor, nn
from toy import batches

import probstep

QUEUE, MOMENTUM, TEMPERATURE = 128, 0.99, 0.2


class MoCo(nn.Module):
    """Two encoders, one of which follows the other, and a queue of what it has seen."""

    queue: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 16))
        self.key_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.register_buffer("queue", nn.functional.normalize(torch.randn(QUEUE, 16), dim=1))

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """Return how alike the two views are, and how alike one is to what the queue holds."""
        query = nn.functional.normalize(self.encoder(one), dim=1)
        with torch.no_grad():
            self._follow()
            key = nn.functional.normalize(self.key_encoder(other), dim=1)
        positive = (query * key).sum(1, keepdim=True)
        logits = torch.cat([positive, query @ self.queue.T], dim=1)
        self.queue = torch.cat([key, self.queue])[:QUEUE]
        return logits / TEMPERATURE

    def _follow(self) -> None:
        pairs = zip(self.key_encoder.parameters(), self.encoder.parameters(), strict=True)
        for key, query in pairs:
            key.lerp_(query, 1 - MOMENTUM)

    def save_for_probe(self) -> dict[str, Tensor]:
        """Return the weights that `forward` moves."""
        return copy.deepcopy(self.key_encoder.state_dict())

    def restore_after_probe(self, saved: dict[str, Tensor]) -> None:
        """Put them back."""
        self.key_encoder.load_state_dict(saved)


def contrast(model: MoCo, x: Tensor, noise: Tensor) -> Tensor:
    """Tell each sample, seen twice with noise, from all in the queue."""
    logits = model(x + noise[0], x + noise[1])
    return nn.functional.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))


def main() -> float:
    torch.manual_seed(0)
    model = MoCo()
    opt = probstep.ProbStep(torch.optim.Adam(model.encoder.parameters(), lr=1e-3))
    losses = []
    for x, _ in batches():
        noise = 0.1 * torch.randn(2, *x.shape)
        losses.append(opt.step(lambda x=x, noise=noise: contrast(model, x, noise)).item())
    last = sum(losses[-10:]) / 10
    print(f"loss {last:.3f}, rate {opt.effective_lr[0]:.2e}")
    return last


if __name__ == "__main__":
    main()

"""A recurrent net that carries its hidden state from batch to batch: say which attribute it is.

A probe runs the batch again, so the hidden state must begin where it began, and end where it ended.

python examples/17_stateful_rnn.py
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

import probstep

STREAMS, LENGTH = 32, 10  # so many series side by side, cut into pieces of that length


class Recurrent(nn.Module):
    """Goes on with the hidden state that the batch before has left."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(4, 32), nn.Linear(32, 3)
        self.hidden: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of every moment."""
        before = None if self.hidden is None else self.hidden.detach()
        y, self.hidden = self.gru(x, before)
        logits: Tensor = self.out(y)
        return logits.flatten(0, 1)


def pieces(count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Give long series piece by piece; the class of a moment depends on the moments before."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(count * LENGTH, STREAMS, 4, generator=generator)
    signs = (x[..., 0] > 0).long()
    y = signs + torch.cat([signs[-3:], signs[:-3]])  # now, and three moments ago
    return zip(x.split(LENGTH), y.split(LENGTH), strict=True)


def main() -> float:
    torch.manual_seed(0)
    model = Recurrent()
    opt = probstep.ProbStep(
        torch.optim.Adam(model.parameters(), lr=1e-3), stateful=probstep.stateful(model, "hidden")
    )
    losses = []
    for x, y in pieces(120):
        loss = opt.step(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y.flatten()))
        losses.append(loss.item())
    last = sum(losses[-10:]) / 10
    print(f"loss {last:.3f}, rate {opt.effective_lr[0]:.2e}")
    return last


if __name__ == "__main__":
    main()

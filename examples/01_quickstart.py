"""Wrap an optimizer, start from a rate that is far too small, train once. Needs torch and nothing else.

python examples/01_quickstart.py
"""

import torch
from torch import nn

import probstep


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(2000, 10)
    y = torch.sin(x[:, :3].sum(dim=1, keepdim=True))
    model = nn.Sequential(nn.Linear(10, 64), nn.Tanh(), nn.Linear(64, 1))

    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-5))
    for epoch in range(10):
        for rows in torch.randperm(len(x)).split(100):
            loss = opt.step(lambda rows=rows: nn.functional.mse_loss(model(x[rows]), y[rows]))
        print(f"epoch {epoch + 1:2d}  loss {loss.item():.4f}  rate {opt.effective_lr[0]:.2e}")


if __name__ == "__main__":
    main()

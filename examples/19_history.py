"""Look at a run: loss, rate, what limited the rate, probes and events; here the task changes midway.

python examples/19_history.py           # prints a summary
python examples/19_history.py run.pt    # and saves a checkpoint: probstep plot run.pt
"""

import sys

import torch
from torch import nn
from toy import network

import probstep

STEPS, SIZE = 600, 32


def main(to: str | None = None) -> float:
    torch.manual_seed(0)
    model = network()
    opt = probstep.ProbStep(torch.optim.Adam(model.parameters(), lr=1e-7))
    loss = torch.tensor(0.0)
    for step in range(STEPS):
        x = torch.randn(SIZE, 10)
        y = x[:, :3].argmax(1)
        if step >= STEPS // 2:
            y = (y + 1) % 3  # another task: every class has another name
        loss = opt.step(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y))
    print(opt.history())
    if to is not None:
        torch.save(opt.state_dict(), to)
    return loss.item()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Gradient accumulation: the probe covers all micro-batches of the step.

python examples/11_accumulation.py
"""

import torch
from toy import batches, loss_of, network, report

import probstep
from probstep.integrations.window import Window

PARTS = 4


def main() -> float:
    model = network()
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3))
    window = Window(opt, weight=1 / PARTS)
    for step, batch in enumerate(batches(epochs=24, size=50), start=1):
        loss = window.run(loss_of, model, batch)
        (loss / PARTS).backward()
        if step % PARTS == 0:
            opt.step()
            opt.zero_grad()
    return report(model, opt.effective_lr[0])


if __name__ == "__main__":
    main()

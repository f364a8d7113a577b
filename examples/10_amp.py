"""Automatic mixed precision with a GradScaler: hand over the loss and how to compute it again.

    python examples/10_amp.py

The probe runs under the same autocast, forward only, on unscaled numbers. A step that the scaler skips
is a step that ProbStep never sees.
"""

import torch
from toy import batches, loss_of, network, report

import probstep

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def main() -> float:
    model = network().to(DEVICE)
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3))
    scaler = torch.amp.GradScaler(DEVICE)
    for x, y in batches():
        batch = x.to(DEVICE), y.to(DEVICE)

        def forward(batch=batch) -> torch.Tensor:
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                return loss_of(model, batch)

        opt.zero_grad()
        with opt.forward_pass():
            loss = forward()
        scaler.scale(loss).backward()
        scaler.step(opt, loss=loss, reevaluate=forward)
        scaler.update()
    return report(model.cpu(), opt.effective_lr[0])


if __name__ == "__main__":
    main()

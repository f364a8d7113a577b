"""Clip the gradient norm through the optimizer, which then knows by how much.

    python examples/12_clipping.py

Whoever clips by other means passes the factor: `opt.step(..., grad_scale=factor)`.
"""

import torch
from toy import batches, loss_of, network, report

import probstep


def main() -> float:
    model = network()
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3))
    for batch in batches():
        opt.zero_grad()
        with opt.forward_pass():
            loss = loss_of(model, batch)
        loss.backward()
        opt.clip_grad_norm_(0.5)
        opt.step(loss=loss, reevaluate=lambda batch=batch: loss_of(model, batch))
    return report(model, opt.effective_lr[0])


if __name__ == "__main__":
    main()

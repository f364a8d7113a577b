"""Several parameter groups: one adapted scale, and the ratios of the groups' rates stay.

python examples/13_groups.py
"""

import torch
from toy import batches, loss_of, network, report

import probstep


def main() -> float:
    model = network()
    body, head = model[0], model[3]
    groups = [
        {"params": body.parameters(), "weight_decay": 1e-4},
        {"params": head.parameters(), "lr": 1e-4},  # a tenth of the others'
    ]
    opt = probstep.ProbStep(torch.optim.SGD(groups, lr=1e-3))
    for batch in batches():
        opt.step(lambda batch=batch: loss_of(model, batch))
    print("rates of the groups:", ", ".join(f"{rate:.2e}" for rate in opt.effective_lr))
    return report(model, opt.effective_lr[0])


if __name__ == "__main__":
    main()

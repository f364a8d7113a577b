"""Warm-up and cosine decay: the schedule writes `lr`, ProbStep multiplies it by its own scale.

python examples/16_schedules.py
"""

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from toy import batches, loss_of, network, report

import probstep

STEPS, WARM_UP = 80, 10


def main() -> float:
    model = network()
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-2))
    warm_up = LinearLR(opt, start_factor=0.1, total_iters=WARM_UP)
    decay = CosineAnnealingLR(opt, T_max=STEPS - WARM_UP)
    schedule = SequentialLR(opt, [warm_up, decay], milestones=[WARM_UP])
    for step, batch in enumerate(batches(), start=1):
        opt.step(lambda batch=batch: loss_of(model, batch))
        schedule.step()
        if step % 20 == 0:
            lr = opt.param_groups[0]["lr"]
            print(f"step {step}: scheduled {lr:.2e} x scale {opt.scale:.3g}")
    return report(model, opt.effective_lr[0])


if __name__ == "__main__":
    main()

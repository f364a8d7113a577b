"""TensorBoard: two lines write the rate, the ratio and the counts after every step. Needs the extra.

python examples/23_tensorboard.py [FOLDER] && tensorboard --logdir FOLDER
"""

import sys

import torch
from torch.utils.tensorboard import SummaryWriter
from toy import batches, loss_of, network, report

import probstep
from probstep.integrations.tensorboard import record


def main(folder: str = "runs/tensorboard") -> float:
    model = network()
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3))
    with SummaryWriter(folder) as writer:
        record(opt, writer)
        for batch in batches():
            opt.step(lambda batch=batch: loss_of(model, batch))
    return report(model, opt.effective_lr[0])


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A compiled model: pass it, because in compiled code no hook finds buffers.

python examples/14_compile.py [BACKEND]
"""

import sys

import torch
from toy import batches, loss_of, network, report

import probstep


def main(backend: str = "inductor") -> float:
    model = torch.compile(network(), backend=backend)
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), model=model)
    for batch in batches():
        opt.step(lambda batch=batch: loss_of(model, batch))
    return report(model, opt.effective_lr[0])


if __name__ == "__main__":
    main(*sys.argv[1:])

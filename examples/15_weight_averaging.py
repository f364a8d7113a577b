"""An exponential moving average of the weights, by torch.optim.swa_utils: nothing to do.

python examples/15_weight_averaging.py
"""

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from toy import batches, loss_of, network, report

import probstep


def main() -> float:
    model = network()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3))
    for batch in batches():
        opt.step(lambda batch=batch: loss_of(model, batch))
        average.update_parameters(model)
    return report(average, opt.effective_lr[0])


if __name__ == "__main__":
    main()

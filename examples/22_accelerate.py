"""Accelerate: prepare a ProbStep, and let a window follow the accumulation. Needs the extra.

python examples/22_accelerate.py        # or: accelerate launch examples/22_accelerate.py
"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from toy import loss_of, network, report, samples

import probstep
from probstep.integrations.accelerate import track


def main() -> float:
    accelerator = Accelerator(gradient_accumulation_steps=2, cpu=True)
    model = network()
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3))
    loader = DataLoader(TensorDataset(*samples()), batch_size=50)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    window = track(accelerator, opt)
    for _ in range(8):
        for batch in loader:
            with accelerator.accumulate(model):
                loss = window.run(loss_of, model, batch)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                opt.zero_grad()
    return report(accelerator.unwrap_model(model), opt.effective_lr[0])


if __name__ == "__main__":
    main()

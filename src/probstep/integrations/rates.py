"""What every trainer logs of an optimizer: its rates and its scale."""

from ..optimizer import ProbStep


def rates_of(optimizer: ProbStep) -> dict[str, float]:
    """Return the effective rates under the names of `metrics()`, and the scale as `lr_scale`.

    >>> import torch
    >>> rates_of(ProbStep(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)))
    {'effective_lr': 0.5, 'lr_scale': 1.0}
    """
    numbers = optimizer.metrics()
    rates = {name: rate for name, rate in numbers.items() if name.startswith("effective_lr")}
    return {**rates, "lr_scale": numbers["scale"]}

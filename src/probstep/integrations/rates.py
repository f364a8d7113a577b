"""What every trainer logs of an optimizer: its rates and its scale, and what a watched rate is like."""

from ..optimizer import ProbStep


def rates_of(optimizer: ProbStep) -> dict[str, float]:
    """Return the effective rates under the names of `metrics()`, and the scale as `lr_scale`.

    Of an optimizer that is only watched, `rate_factor` is there, too: its rate over the rate allowed.

    >>> import torch
    >>> rates_of(ProbStep(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)))
    {'effective_lr': 0.5, 'lr_scale': 1.0}
    """
    numbers = optimizer.metrics()
    rates = {name: rate for name, rate in numbers.items() if name.startswith("effective_lr")}
    watched = {name: numbers[name] for name in ("rate_factor",) if name in numbers}
    return {**rates, "lr_scale": numbers["scale"], **watched}

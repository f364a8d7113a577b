"""How many steps a trainer will take, handed over to the optimizer."""

from typing import Literal

from ..optimizer import ProbStep

Horizon = Literal[True] | int | None


def set_horizon(optimizer: ProbStep, horizon: Horizon, steps: float) -> None:
    """Give an optimizer its horizon.

    Args:
        optimizer: Whose it is.
        horizon: As the user gave it; True stands for the trainer's own number.
        steps: The trainer's own number, from now on; infinite if it does not know.

    >>> import torch
    >>> opt = ProbStep(torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))]))
    >>> set_horizon(opt, True, steps=100)
    >>> opt.horizon
    100
    """
    if horizon is not True:
        optimizer.horizon = horizon
    elif steps == float("inf"):
        raise ValueError(
            "horizon=True takes the number of steps from the trainer, which does not know it. Limit its "
            "steps or epochs, or give a number: horizon=10_000."
        )
    else:
        optimizer.horizon = int(optimizer.metrics()["steps"] + steps)

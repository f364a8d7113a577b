"""How a rate changes with time: a table of schedules that compose with every method that has a rate.

A schedule is a function of plain data: what it remembers of a group, the group's rate and the loss
of the step (None before the first) give the next rate. Its memory lies in the group, under one key,
so that a checkpoint of the optimizer carries it and a resumed run continues bit for bit.
"""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from probstep.baselines.subramanian2023greedylr import GreedyLR
from probstep.bench.names import check_name

MEMORY = "schedule"  # our one key in every group
WARMUP = 0.05  # the share of the steps in which the rate rises
END = 0.2  # the share of the steps in which a rate that was constant falls

Memory = dict[str, Any]
Schedule = Callable[[Memory, float, Tensor | None], float]


def linear(progress: float) -> float:
    """Return the factor of a decay to zero in a straight line.

    >>> linear(0.25)
    0.75
    """
    return 1.0 - progress


def linear_end(progress: float) -> float:
    """Return the factor of no change, and of a decay to zero in a straight line at the end.

    >>> linear_end(0.5), round(linear_end(0.9), 4), linear_end(1.0)
    (1.0, 0.5, 0.0)
    """
    return min(1.0, (1.0 - progress) / END)


def cosine(progress: float) -> float:
    """Return the factor of a decay to zero along half a cosine (Loshchilov and Hutter, 2017).

    >>> round(cosine(0.25), 4), cosine(1.0)
    (0.8536, 0.0)
    """
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def constant(_: float) -> float:
    """Return the factor of no change.

    >>> constant(0.5)
    1.0
    """
    return 1.0


def shaped(shape: Callable[[float], float], warmup: float = 0.0) -> Schedule:
    """Return the schedule that follows a shape from 1 on, after a linear rise from nearly zero.

    Args:
        shape: The factor as a function of the share of the steps that are done.
        warmup: The share of the steps in which the factor rises to 1.
    """

    def next_rate(memory: Memory, _: float, __: Tensor | None) -> float:
        rising = round(warmup * memory["total"])
        if memory["step"] < rising:
            factor = (memory["step"] + 1) / (rising + 1)
        else:
            factor = shape((memory["step"] - rising) / max(memory["total"] - rising, 1))
        return float(memory["initial"] * max(factor, 0.0))

    return next_rate


def greedy(memory: Memory, rate: float, loss: Tensor | None) -> float:
    """Return the rate that GreedyLR chooses, with its defaults."""
    chosen = memory.setdefault("greedy", {"initial": rate})
    return rate if loss is None else GreedyLR().next_rate(chosen, rate, loss.item())


SCHEDULES: dict[str, Schedule] = {
    "linear": shaped(linear),
    "linear_end": shaped(linear_end),
    "cosine": shaped(cosine),
    "warmup": shaped(constant, WARMUP),
    "warmup_cosine": shaped(cosine, WARMUP),
    "greedy": greedy,
}
CONSTANT = "constant"


def start_schedule(optimizer: Optimizer, name: str, total_steps: int) -> None:
    """Give every group of an optimizer a schedule, and the rate of its first step.

    >>> import torch
    >>> opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    >>> start_schedule(opt, "linear", total_steps=4)
    >>> for _ in range(4):
    ...     print(opt.param_groups[0]["lr"])
    ...     advance_schedule(opt, torch.tensor(0.0))
    1.0
    0.75
    0.5
    0.25
    """
    if name == CONSTANT:
        return
    check_name(name, [CONSTANT, *SCHEDULES], kind="schedule")
    for group in optimizer.param_groups:
        group[MEMORY] = {"name": name, "initial": group["lr"], "step": 0, "total": total_steps}
        group["lr"] = SCHEDULES[name](group[MEMORY], group["lr"], None)


def advance_schedule(optimizer: Optimizer, loss: Tensor) -> None:
    """Give every group that has a schedule the rate of its next step.

    Args:
        optimizer: An optimizer that has just taken a step.
        loss: The loss of that step.
    """
    for group in optimizer.param_groups:
        memory = group.get(MEMORY)
        if memory is not None:
            memory["step"] += 1
            group["lr"] = SCHEDULES[memory["name"]](memory, group["lr"], loss)

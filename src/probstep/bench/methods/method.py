"""What a method is: what makes its optimizer, what it needs of the training loop, where it is from."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from probstep.bench.methods.rate_schedules import CONSTANT

Build = Callable[..., Optimizer]
Rate = Literal["rate", "start", "factor", "cap"]
Limit = Literal["resume", "grad_none", "groups", "deepcopy", "schedule", "slow_start", "unstable"]

RATES: dict[Rate, str] = {
    "rate": "the step size, to be chosen",
    "start": "where the adaptation of the step size begins",
    "factor": "a factor of the step size that the method finds",
    "cap": "the largest step size that the method may take",
}
LIMITS: dict[Limit, str] = {
    "resume": "its checkpoint lacks part of its memory: a resumed run takes another course or fails",
    "grad_none": "fails where a parameter has no gradient",
    "groups": "warns of or refuses several groups",
    "deepcopy": "a deep copy of it takes another course or fails",
    "schedule": "its `lr` is not the rate of later steps, so that a schedule would mean nothing",
    "slow_start": "from its default rate it may hardly move in its first hundred steps",
    "unstable": "at its default rate it may raise the loss of a small convex problem",
}


@dataclass(frozen=True)
class Needs:
    """What a method needs of the training loop besides gradients.

    Args:
        loss: The value of the loss, after backward.
        closure: To evaluate the batch itself, as often as it likes.
        per_sample: To evaluate the loss of every sample of the batch itself.
        mode_switch: Other weights for evaluation, by `eval()`, and back by `train()`.
        averaging: An average of the weights for evaluation.
        steps_per_epoch: The setting of that name.
    """

    loss: bool = False
    closure: bool = False
    per_sample: bool = False
    mode_switch: bool = False
    averaging: bool = False
    steps_per_epoch: bool = False


ReadRate = Callable[[Any], float | None]


def read_group(*keys: str) -> ReadRate:
    """Return a function that reads the product of some entries of an optimizer's first group.

    >>> import torch
    >>> opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5, momentum=0.25)
    >>> read_group("lr", "momentum")(opt), read_group("lr", "scale")(opt)
    (0.125, None)
    """

    def read(optimizer: Optimizer) -> float | None:
        group = optimizer.param_groups[0]
        values = [float(group[key]) for key in keys if group.get(key) is not None]
        return math.prod(values) if len(values) == len(keys) else None

    return read


READ_LR = read_group("lr")


def read_nothing(_: Optimizer) -> float | None:
    """Return None: the method has no single rate, or does not tell it."""
    return None


@dataclass(frozen=True)
class Method:
    """A way to train.

    Args:
        name: Its key in the table.
        build: Makes the optimizer from parameters, `lr` and settings.
        family: What kind of method it is.
        base: The optimizer whose direction it follows.
        source: Where it is published.
        rate: What `lr` means to it; None if it has none.
        default_rate: Its `lr` unless one is given.
        defaults: Its settings, where they differ from those of `build`.
        needs: What it needs of the loop.
        schedule: How its rate changes with time, unless the settings say otherwise.
        package: The package it comes from, if not torch or this one.
        limits: What it cannot do, as published; see `LIMITS`.
        read_rate: Reads the step size of its last step, or of the next.
    """

    name: str
    build: Build
    family: str
    base: str = "sgd"
    source: str = ""
    rate: Rate | None = "rate"
    default_rate: float | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    needs: Needs = field(default_factory=Needs)
    schedule: str = CONSTANT
    package: str | None = None
    limits: frozenset[Limit] = frozenset()
    read_rate: ReadRate = READ_LR

    def make(
        self, params: Any, rate: float | None = None, settings: Mapping[str, Any] | None = None
    ) -> Optimizer:
        """Return the optimizer of these parameters, or of a module's.

        Args:
            params: A module, its parameters, or groups of them.
            rate: The `lr`; None for the method's default.
            settings: Overrides its defaults.
        """
        params = params.parameters() if isinstance(params, nn.Module) else params
        chosen = {**self.defaults, **(settings or {})}
        if rate is not None and self.rate is None:
            raise ValueError(f"The method {self.name!r} has no rate to set: leave it out.")
        value = self.default_rate if rate is None else rate
        return self.build(params, **({} if value is None else {"lr": value}), **chosen)

"""The optimizer inside: what its groups say, and its step at a scaled rate.

Nothing is kept here. The groups are read anew at every step, because schedulers, checkpoints and users
change them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, optim

from ..rules import Setting

Groups = list[dict[str, Any]]


def params_of(optimizer: optim.Optimizer) -> list[Tensor]:
    """Return the parameters of all groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def devices_of(optimizer: optim.Optimizer) -> set[torch.device]:
    """Return the devices on which the parameters lie."""
    return {p.device for group in optimizer.param_groups for p in group["params"]}


def sign_of(optimizer: optim.Optimizer) -> float:
    """Return the sign of the loss in what is minimised: -1 if the optimizer maximises."""
    return -1.0 if optimizer.param_groups[0].get("maximize", False) else 1.0


def reference_rate(groups: Groups) -> float:
    """Return the leading group's rate without its schedule.

    >>> reference_rate([{"lr": 0.0}, {"lr": 0.5, "initial_lr": 1.0}])
    1.0
    """
    return _reference(_leading(groups))


def setting_of(groups: Groups) -> Setting:
    """Return what the leading group says of a step: its schedule's multiplier and its momentum.

    >>> setting_of([{"lr": 0.5, "initial_lr": 1.0, "momentum": 0.9}])
    Setting(multiplier=0.5, beta=0.9)
    >>> setting_of([{"lr": 0.5, "beta": 0.965}])
    Setting(multiplier=1.0, beta=0.965)
    """
    group = _leading(groups)
    reference = _reference(group)
    multiplier = float(group["lr"]) / reference if reference else 1.0
    return Setting(
        multiplier or 1.0, _momentum(group)
    )  # 0 only of a tensor on a device: an empty step


def rates_are_zero(groups: Groups) -> bool:
    """Say whether no step can be seen: a warm-up's first, or the dry run of a checkpoint."""
    for group in groups:
        rate = group["lr"]
        if isinstance(rate, Tensor) and rate.device.type != "cpu":
            return False  # reading it would wait for the device
        if rate != 0:
            return False
    return True


def step_at(optimizer: optim.Optimizer, scale: float) -> None:
    """Let the optimizer step at `scale` times its rates, and give it its rates back."""
    groups = optimizer.param_groups
    rates = [group["lr"] for group in groups]
    if any(isinstance(rate, Tensor) for rate in rates):
        with _scaled_in_place(rates, scale):
            _step(optimizer, rates, scale)
    else:
        _step(optimizer, rates, scale)


def _step(optimizer: optim.Optimizer, rates: list[Any], scale: float) -> None:
    groups = optimizer.param_groups
    try:
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate if isinstance(rate, Tensor) else rate * scale
        optimizer.step()
    finally:
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate


@contextmanager
def _scaled_in_place(rates: list[Any], scale: float) -> Iterator[None]:
    """Scale rates that are tensors in place, each once though groups share it: graphs hold them."""
    tensors = {id(rate): rate for rate in rates if isinstance(rate, Tensor)}
    contents = {key: rate.clone() for key, rate in tensors.items()}
    try:
        for rate in tensors.values():
            rate.mul_(scale)
        yield
    finally:
        for key, rate in tensors.items():
            rate.copy_(contents[key])


def _leading(groups: Groups) -> dict[str, Any]:
    """Return the first group that moves: others may be frozen, by their rate or by their schedule."""
    for group in groups:
        if float(group["lr"]):
            return group
    return groups[0]


def _momentum(group: dict[str, Any]) -> float:
    """Return the momentum, whatever its name; 0 if none of the usual names holds one."""
    betas = group.get("betas")
    beta: Any = group.get("momentum", group.get("beta")) if betas is None else betas[0]
    is_number = isinstance(beta, float | int | Tensor)
    return float(beta) if is_number and 0 <= beta < 1 else 0.0


def _reference(group: dict[str, Any]) -> float:
    return float(group.get("max_lr", group.get("initial_lr", 0.0)) or group["lr"])

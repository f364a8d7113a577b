"""The optimizer inside: what its groups say, and its step at a scaled rate.

Nothing is kept here. The groups are read anew at every step, because schedulers, checkpoints and users
change them.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, optim

from ..rules import Setting
from .hooks import take_step

Groups = list[dict[str, Any]]

TORCHS_ZERO_GRAD = optim.Optimizer.zero_grad  # before anybody replaces it

RISE = 10.0  # times the largest known rate: a rate above that is searched again


def params_of(optimizer: optim.Optimizer) -> Sequence[Tensor]:
    """Return the parameters of all groups: of a single one its own list, not a copy."""
    groups = optimizer.param_groups
    if len(groups) == 1:
        params: list[Tensor] = groups[0]["params"]
        return params
    return [p for group in groups for p in group["params"]]


def devices_of(optimizer: optim.Optimizer) -> set[torch.device]:
    """Return the devices, beside the CPU, on which the parameters lie."""
    return {p.device for group in optimizer.param_groups for p in group["params"] if not p.is_cpu}


def clear_gradients(optimizer: optim.Optimizer, *, set_to_none: bool) -> None:
    """Do what the optimizer's `zero_grad` does: without torch's detours, where it is torch's own."""
    zero_grad = optimizer.zero_grad
    if not set_to_none or getattr(zero_grad, "__func__", None) is not TORCHS_ZERO_GRAD:
        zero_grad(set_to_none)
        return
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None


def has_gradients(optimizer: optim.Optimizer) -> bool:
    """Say whether any parameter has a gradient."""
    return any(p.grad is not None for group in optimizer.param_groups for p in group["params"])


def sign_of(optimizer: optim.Optimizer) -> float:
    """Return the sign of the loss in what is minimised: -1 if the optimizer maximises."""
    return -1.0 if optimizer.param_groups[0].get("maximize", False) else 1.0


def leading_rate(groups: Groups) -> float:
    """Return the rate of the first group that moves.

    >>> leading_rate([{"lr": 0.0}, {"lr": 0.5}])
    0.5
    """
    return float(groups[_leading(groups)]["lr"])


def setting_of(groups: Groups, first_rates: Sequence[float], steps: int = 0) -> Setting:
    """Return what the leading group says of a step: its schedule's multiplier and its momentum.

    Args:
        groups: The groups of the optimizer.
        first_rates: The rates of the groups before anybody changed them.
        steps: How many have been taken: NAdam's momentum grows with time.

    >>> setting_of([{"lr": 0.5, "momentum": 0.9}], first_rates=[1.0])
    Setting(multiplier=0.5, beta=0.9, builds_up=False, look_ahead=None)
    >>> setting_of([{"lr": 0.5, "momentum": 0.9, "nesterov": True}], first_rates=[0.5])
    Setting(multiplier=1.0, beta=0.9, builds_up=False, look_ahead=0.9)
    """
    leading = 0 if groups[0]["lr"] else _leading(groups)
    group, reference = groups[leading], first_rates[leading]
    if "max_lr" in group or "initial_lr" in group:
        reference = _reference(group, reference)
    multiplier = float(group["lr"]) / reference if reference else 1.0
    # The multiplier is 0 only if the rate is a tensor on a device: then the step is empty.
    # Of several optimizers, one that sums gradients is enough to make later steps longer.
    builds_up = False
    for each in groups:  # a plain loop: every step comes here, and calls are slow
        if each.get("dampening") == 0:
            builds_up = True
    beta = _momentum(group)
    if "momentum_decay" in group:  # NAdam's, as torch computes it
        look_ahead = beta * (1 - 0.5 * 0.96 ** ((steps + 1) * group["momentum_decay"]))
    else:
        look_ahead = beta if group.get("nesterov") else None
    return _setting(multiplier or 1.0, beta, builds_up, look_ahead)


@functools.lru_cache(maxsize=16)  # without a schedule it is always the same
def _setting(multiplier: float, beta: float, builds_up: bool, look_ahead: float | None) -> Setting:
    return Setting(multiplier, beta, builds_up, look_ahead)


def glance(groups: Groups, first_rates: Sequence[float], moved: int) -> tuple[bool, int, bool]:
    """Return what every step must know of the groups, from one look at them.

    Args:
        groups: The groups of the optimizer.
        first_rates: The rates of the groups before anybody changed them.
        moved: The most parameters so far that took part in a backward pass.

    Returns:
        Whether any group moves, at a rate that is not 0; how many parameters of such groups take part
        in a backward pass, or `moved` where they cannot be more; and whether `keep_up` has
        anything to look at: usually it does not.

    >>> frozen = torch.nn.Parameter(torch.ones(1), requires_grad=False)
    >>> groups = [{"lr": 0.1, "params": [torch.nn.Parameter(torch.ones(1)), frozen]}]
    >>> glance(groups, [0.1], moved=0), glance(groups, [0.01], moved=2)
    ((True, 1, False), (True, 2, True))
    """
    moving_groups, most, may_have_risen = [], 0, False
    for k, group in enumerate(groups):  # plain loops: every step comes here, and calls are slow
        rate = group["lr"]
        # A reference is never below the first rate: a rate up to the first cannot have risen.
        if type(rate) is not float or rate > first_rates[k] or "max_lr" in group:
            may_have_risen = True
        if rate != 0 if type(rate) is float else _may_move(rate):
            moving_groups.append(group)
            most += len(group["params"])
    moving = moved
    if most > moved:  # usually it is not, and to ask hundreds of parameters takes time
        moving = sum(p.requires_grad for group in moving_groups for p in group["params"])
    return bool(moving_groups), moving, may_have_risen


def keep_up(groups: Groups, first_rates: list[float], *, is_searching: bool) -> bool:
    """Keep the first rates up to date; say whether a rate has risen so far that they are no guide.

    A search finds a scale for the rates without their schedule. A schedule that tells neither its first
    nor its largest rate (CyclicLR, a user who writes `lr`) is seen only when it rises.

    Args:
        groups: The groups of the optimizer.
        first_rates: The rates of the groups before anybody changed them; they may grow.
        is_searching: No scale has been found yet, so that a rise costs nothing.

    >>> first_rates = [1e-6]
    >>> keep_up([{"lr": 1e-3}], first_rates, is_searching=False), first_rates
    (True, [0.001])
    """
    has_risen = False
    for k, group in enumerate(groups):
        rate = group["lr"]
        if isinstance(rate, Tensor) and rate.device.type != "cpu":
            continue  # reading it would wait for the device
        reference = _reference(group, first_rates[k])
        has_risen |= bool(rate > RISE * reference > 0)
        if rate > reference and (is_searching or rate > RISE * reference):
            first_rates[k] = float(rate)
    return has_risen


def _may_move(rate: Any) -> bool:
    if isinstance(rate, Tensor) and rate.device.type != "cpu":
        return True  # reading it would wait for the device
    return bool(rate)


def largest_scale(
    groups: Groups, max_lr: float | None, factors: Sequence[float] | None = None
) -> float:
    """Return the scale at which the largest rate of all groups is `max_lr`.

    Args:
        groups: The groups of the optimizer.
        max_lr: That rate; None for no limit.
        factors: What each group's rate is multiplied with beside the scale; None for nothing.

    >>> largest_scale([{"lr": 0.5}, {"lr": 2.0}], max_lr=1.0)
    0.5
    """
    if max_lr is None:
        return math.inf
    rates = [float(group["lr"]) for group in groups]
    if factors is not None:
        rates = [rate * factor for rate, factor in zip(rates, factors, strict=True)]
    largest = max(rates)
    return max_lr / largest if largest > 0 else math.inf


def rates_are_zero(groups: Groups) -> bool:
    """Say whether all rates are 0: on the first step of a warm-up, or in the dry run of a checkpoint."""
    return not any(_may_move(group["lr"]) for group in groups)


def are_stuck_at_zero(groups: Groups, first_rates: Sequence[float]) -> bool:
    """Say whether all rates are zero and no schedule is known that could raise them.

    >>> are_stuck_at_zero([{"lr": 0.0}], [0.0]), are_stuck_at_zero([{"lr": 0.0}], [0.1])
    (True, False)
    """
    if not rates_are_zero(groups):
        return False
    return not any(_reference(g, first) for g, first in zip(groups, first_rates, strict=True))


@contextmanager
def scaled_rates(groups: Groups, factor: float) -> Iterator[None]:
    """Multiply all rates, as a context.

    >>> groups = [{"lr": 0.5}]
    >>> with scaled_rates(groups, factor=0.5):
    ...     groups
    [{'lr': 0.25}]
    >>> groups
    [{'lr': 0.5}]
    """
    kept = _scale_rates(groups, factor)
    try:
        yield
    finally:
        _put_back(groups, kept)


def step_at(
    optimizer: optim.Optimizer, scale: float, factors: Sequence[float] | None = None
) -> None:
    """Let the optimizer step at `scale` times its rates, and give it its rates back.

    Args:
        optimizer: Which one.
        scale: The common factor of its rates.
        factors: What each group's rate is multiplied with besides; None for nothing.
    """
    groups = optimizer.param_groups
    kept = _scale_rates(groups, scale, factors)  # no context: every step comes here
    try:
        take_step(optimizer)
    finally:
        _put_back(groups, kept)


GivenRates = list[
    tuple[Any, Tensor | None]
]  # each group's rate; of a tensor also its content, once


def _scale_rates(
    groups: Groups, scale: float, factors: Sequence[float] | None = None
) -> GivenRates:
    """Multiply each rate with the scale and its factor; return what `_put_back` needs.

    Tensors are scaled in place, because graphs hold them; one that groups share is scaled once.
    """
    kept: GivenRates = []
    for k, group in enumerate(groups):
        rate, content = group["lr"], None
        by = scale if factors is None else scale * factors[k]
        if not isinstance(rate, Tensor):
            group["lr"] = rate * by
        elif all(rate is not other for other, _ in kept):
            content = rate.clone()
            rate.mul_(by)
        kept.append((rate, content))
    return kept


def _put_back(groups: Groups, kept: GivenRates) -> None:
    for k, (rate, content) in enumerate(kept):
        if content is not None:
            rate.copy_(content)
        groups[k]["lr"] = rate


def _leading(groups: Groups) -> int:
    """Return the first group that moves: others may be frozen, by their rate or by their schedule."""
    for k, group in enumerate(groups):
        if group["lr"]:
            return k
    return 0


def has_momentum(groups: Groups) -> bool:
    """Say whether any group has momentum.

    >>> has_momentum([{"momentum": 0.0}, {"betas": (0.9, 0.999)}])
    True
    """
    return any(map(_momentum, groups))


def _momentum(group: dict[str, Any]) -> float:
    """Return the momentum, whatever its name; 0 if none of the usual names holds one."""
    betas = group.get("betas")
    beta: Any = group.get("beta")
    if betas is not None:
        beta = betas[0]
    elif "momentum" in group:
        beta = group["momentum"]
    is_number = type(beta) is float or isinstance(beta, int | Tensor)
    return float(beta) if is_number and 0 <= beta < 1 else 0.0


def _reference(group: dict[str, Any], first: float) -> float:
    """Return the rate without its schedule: the largest that is known, or what the schedule says."""
    return float(group.get("max_lr") or max(group.get("initial_lr", 0.0), first))

"""A step without a probe: the base's own at the present scale, stretched by a bound or noise.

It does not wait for a device. A batch that is not finite is skipped where that can be known in time.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..memory import Memory
from .adapt import Parts, begin_step, factors_of, prepare
from .arrival import Arrived
from .base import sign_of, step_at
from .due import is_listening
from .finite import are_finite, found_on_device, is_on_host, scale_gradients, skipping
from .objective import Objective
from .ranks import Ranks


class Unprobed(NamedTuple):
    """What became of a step without a probe.

    Args:
        is_taken: False if it was skipped, because loss or gradients were not finite.
        found: A flag on the device, not read here, by which the base skips its step; None without one.
        is_guarded: A batch that is not finite does not touch parameters and moments.
        loss: The loss, if it lay on the host and was read.
        part: By what its gradients were multiplied: less than 1 if that loss exploded.
    """

    is_taken: bool = True
    found: Tensor | None = None
    is_guarded: bool = True
    loss: float | None = None
    part: float = 1.0


TAKEN = Unprobed()


def step_unprobed(parts: Parts, memory: Memory, arrived: Arrived, ranks: Ranks) -> Unprobed:
    """Take the step, unless loss or gradients are seen not to be finite."""
    if not is_on_host(parts.base):
        found = found_on_device(parts.base)
        with skipping(parts.base, found):
            _take(parts, memory, arrived, ranks)
        return Unprobed(found=found, is_guarded=found is not None)
    loss, value = arrived.loss, 0.0
    if loss is not None:
        value = loss.sum().item() if loss.dim() else loss.item()
    is_finite = math.isfinite(value) and are_finite(parts.base)
    if ranks.size > 1:  # all decide alike
        is_finite = not ranks.total(torch.tensor(float(not is_finite))).item()
    is_read, part = loss is not None and not loss.dim() and ranks.size == 1, 1.0
    if is_finite:
        if is_read and is_listening(parts.rule, memory):
            part = _part_to_take(parts, memory, value, is_probed=False)
        if part < 1.0:
            scale_gradients(parts.base, part)
        _take(parts, memory, arrived, ranks)
    return Unprobed(is_finite, loss=value if is_read else None, part=part)


def is_held_back(parts: Parts, memory: Memory, arrived: Arrived, ranks: Ranks) -> bool:
    """Say whether a step is not probed although that was due, because its own loss explodes."""
    loss, rule = arrived.loss, parts.rule
    if loss is None or loss.dim() or ranks.size > 1 or not is_on_host(parts.base):
        return False
    if rule.is_searching(memory.rule) or not is_listening(rule, memory):
        return False
    value = loss.item()
    return math.isfinite(value) and _part_to_take(parts, memory, value, is_probed=True) < 1.0


def _part_to_take(parts: Parts, memory: Memory, loss: float, *, is_probed: bool) -> float:
    """Return the part of a step to take, by its own loss, for a rule that wants every loss."""
    told = sign_of(parts.base) * loss
    return parts.rule.part_to_take(memory.rule, told, is_probed=is_probed)


def _take(parts: Parts, memory: Memory, arrived: Arrived, ranks: Ranks) -> None:
    if parts.stretch is None or arrived.loss is None:
        factors = None if parts.members is None else factors_of(parts, memory)
        step_at(parts.base, memory.scale, factors)
        return
    objective = Objective.of(parts.base, arrived.grad_scale, ranks, parts.rule)
    with begin_step(parts, memory, ranks) as attempt:
        f = objective.before(arrived.loss, attempt.moved)
        prepare(parts, memory, attempt, ranks)
        attempt.take(memory.scale)
        phi = objective.slope(attempt.moved)
        _, memory.bound = parts.stretch.apply(attempt, arrived.loss, f, phi, ranks, memory.bound)

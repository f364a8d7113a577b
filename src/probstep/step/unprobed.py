"""A step without a probe: the base's own at the present scale, stretched by a bound or noise."""

from ..memory import Memory
from .adapt import Parts
from .arrival import Arrived
from .attempt import attempting
from .base import step_at
from .objective import Objective
from .ranks import Ranks


def step_unprobed(parts: Parts, memory: Memory, arrived: Arrived, ranks: Ranks) -> None:
    """Take the step without waiting for the device."""
    if parts.stretch is None or arrived.loss is None:
        step_at(parts.base, memory.scale)
        return
    objective = Objective.of(parts.base, arrived.grad_scale, ranks, parts.rule)
    with attempting(parts.base, ranks, from_zero=True) as attempt:
        moved = attempt.moved
        f = objective.before(arrived.loss, moved)
        attempt.take(memory.scale)
        phi = objective.slope(moved)
        _, memory.bound = parts.stretch.apply(moved, arrived.loss, f, phi, ranks, memory.bound)

"""A step without a probe: the base's own at the present scale, stretched by a bound or noise."""

from ..memory import Memory
from .adapt import Parts, begin_step, prepare
from .arrival import Arrived
from .base import step_at
from .objective import Objective
from .ranks import Ranks


def step_unprobed(parts: Parts, memory: Memory, arrived: Arrived, ranks: Ranks) -> None:
    """Take the step without waiting for the device."""
    if parts.stretch is None or arrived.loss is None:
        step_at(parts.base, memory.scale)
        return
    objective = Objective.of(parts.base, arrived.grad_scale, ranks, parts.rule)
    with begin_step(parts, memory, ranks) as attempt:
        f = objective.before(arrived.loss, attempt.moved)
        prepare(parts, memory, attempt, ranks)
        attempt.take(memory.scale)
        phi = objective.slope(attempt.moved)
        _, memory.bound = parts.stretch.apply(attempt, arrived.loss, f, phi, ranks, memory.bound)

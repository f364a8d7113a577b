"""Whether an optimizer's state depends on the rate of its steps, found by trying two rates.

Schedule-Free, Lookahead, 32-bit master weights and running averages keep weights in their state. If
such a step is shortened by moving the parameters alone, the state stays where the long step went.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, optim

from .attempt import Attempt
from .base import leading_rate, params_of
from .joint import bases_of
from .kept import is_familiar, reachable
from .moved import Moved, sums_of
from .ranks import Ranks, local
from .scalars import pack

NUMBER = int | float | str | None


def keeps_weights(attempt: Attempt, base: optim.Optimizer, ranks: Ranks) -> bool:
    """Say whether an optimizer keeps weights; try it, unless it is a familiar one.

    Call this after `attempt.keep()`: the steps that it tries are taken back.
    """
    if all(map(is_familiar, bases_of(base))):
        return False
    return found_by_trying(attempt, base, ranks)


def found_by_trying(attempt: Attempt, base: optim.Optimizer, ranks: Ranks) -> bool:
    """Say whether the state after the step to come depends on its rate, or holds the parameters.

    The second question finds optimizers that use such a copy only at every k-th step.
    """
    scale = 1 / (leading_rate(base.param_groups) or 1.0)
    numbers, sums, copies = [], [], []
    for factor in (1.0, 0.5):
        attempt.try_at(scale * factor)
        contents = list(_contents(base))
        numbers.append([c for c in contents if not isinstance(c, Tensor)])
        sums.append([s for c in contents if isinstance(c, Tensor) for s in sums_of(c)])
        copies += [c for m in attempt.moved.moved for c in _are_copies(base, m)]
        attempt.rewind()
    is_plainly_different = numbers[0] != numbers[1] or len(sums[0]) != len(sums[1])
    device = params_of(base)[0].device
    found = [torch.tensor(float(is_plainly_different), device=device), *copies]
    if not is_plainly_different:
        found += [_differ(a, b) for a, b in zip(*sums, strict=True)]
    return bool(ranks.total(pack(*found).sum()).item())


def _contents(base: optim.Optimizer) -> Iterator[Tensor | NUMBER]:
    """Give the tensors and numbers that an optimizer holds beside its parameters."""
    params = {id(p) for p in params_of(base)}
    for reached in reachable([base]):
        if isinstance(reached, Tensor):
            if id(reached) not in params:
                yield reached
        elif isinstance(reached, NUMBER) and not (
            isinstance(reached, float) and math.isnan(reached)
        ):
            yield reached


def _are_copies(base: optim.Optimizer, moved: Moved) -> Iterator[Tensor]:
    """Say for each tensor of a parameter's state whether it equals the parameter, before or after."""
    before, after = moved.before, moved.after
    is_telling = (before != before.flatten()[0]).any()  # many things are zero without being copies
    for held in reachable([base.state.get(moved.param)]):
        if not isinstance(held, Tensor) or held.layout != torch.strided:
            continue
        value = local(held.detach())
        if value.shape == before.shape and value.is_floating_point():
            value = value.to(before.dtype)
            yield ((value == before).all() | (value == after).all()) & is_telling


def _differ(a: Tensor, b: Tensor) -> Tensor:
    return (a != b) & ~(a.isnan() & b.isnan())

"""The hooks of an optimizer's step: users expect each to fire once a step, however often it is tried."""

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ParamSpec, TypeVar

from torch import optim
from torch.optim import optimizer as torch_optimizer

from .kept import reachable

P = ParamSpec("P")
T = TypeVar("T")

BEFORE, AFTER = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"
GLOBAL: dict[str, Any] = {
    BEFORE: torch_optimizer._global_optimizer_pre_hooks,
    AFTER: torch_optimizer._global_optimizer_post_hooks,
}


def firing_own_hooks(step: Callable[P, T]) -> Callable[P, T]:
    """Fire the hooks of an optimizer around others: the others fire their own and the global ones."""

    @functools.wraps(step)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        optimizer: Any = args[0]
        for before in optimizer._optimizer_step_pre_hooks.values():
            changed = before(optimizer, args, kwargs)
            if changed is not None:
                args, kwargs = changed
        result = step(*args, **kwargs)
        for after in optimizer._optimizer_step_post_hooks.values():
            after(optimizer, args, kwargs)
        return result

    wrapper.hooked = True  # type: ignore[attr-defined]  # torch.optim leaves a hooked step alone
    return wrapper


def has_hooks_before(optimizer: optim.Optimizer) -> bool:
    """Say whether anything fires before the optimizer's step, and may change its gradients."""
    return bool(GLOBAL[BEFORE] or getattr(optimizer, BEFORE))


def fire_before(optimizer: optim.Optimizer) -> None:
    """Fire what fires before the optimizer's step, without the step."""
    with silent(optimizer, AFTER):
        optim.Optimizer.profile_hook_step(lambda *_, **__: None)(optimizer)


@contextmanager
def silent(optimizer: optim.Optimizer, *kinds: str) -> Iterator[None]:
    """Fire no hooks of these kinds meanwhile, neither the optimizer's nor global ones.

    >>> import torch
    >>> sgd = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    >>> handle = sgd.register_step_post_hook(lambda *_: print("after"))
    >>> with silent(sgd, AFTER):
    ...     sgd.step()
    """
    # An optimizer may hold others.
    every = [each for each in reachable([optimizer]) if isinstance(each, optim.Optimizer)]
    with ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(_emptied(GLOBAL[kind]))
            for each in every:
                stack.enter_context(_emptied(getattr(each, kind)))
        yield


@contextmanager
def _emptied(hooks: "OrderedDict[int, Any]") -> Iterator[None]:
    held = dict(hooks)
    hooks.clear()
    try:
        yield
    finally:
        hooks.update(held)

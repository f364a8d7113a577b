"""The hooks of an optimizer's step: users expect each to fire once a step, however often it is tried."""

import functools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ParamSpec, TypeVar

import torch
from torch import optim
from torch.optim import optimizer as torch_optimizer

from .kept import is_familiar, reachable

P = ParamSpec("P")
T = TypeVar("T")

BEFORE, AFTER = "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"
GLOBAL: dict[str, Any] = {
    BEFORE: torch_optimizer._global_optimizer_pre_hooks,
    AFTER: torch_optimizer._global_optimizer_post_hooks,
}

WRAPPED = optim.Optimizer.profile_hook_step(lambda: None).__code__  # of all steps of torch.optim


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


class Overhears:
    """A hook before a step that tells who stepped; a method is not kept alive by it.

    Args:
        hear: The method that is told.
    """

    def __init__(self, hear: Callable[[optim.Optimizer], None]) -> None:
        self._hear = weakref.WeakMethod(hear)

    def __call__(self, optimizer: optim.Optimizer, *_: object) -> None:
        """Tell it, if it is still there."""
        hear = self._hear()
        if hear is not None:
            hear(optimizer)


def take_step(optimizer: optim.Optimizer) -> None:
    """Let an optimizer step; without torch's detour where nobody follows the step.

    torch wraps every step, for hooks and for its profiler. That takes some ten microseconds, a large
    part of a small step, even if there is neither a hook nor a profiler.

    >>> w = torch.nn.Parameter(torch.ones(1))
    >>> w.grad = torch.ones(1)
    >>> take_step(torch.optim.SGD([w], lr=0.5))
    >>> w.item()
    0.5
    """
    step: Any = type(optimizer).step
    if getattr(step, "__code__", None) is WRAPPED and not _is_followed(optimizer):
        step.__wrapped__(optimizer)
    else:
        optimizer.step()


def _is_followed(optimizer: optim.Optimizer) -> bool:
    """Say whether anything but one ProbStep's own hook wants to know of the step."""
    if "step" in vars(optimizer) or torch._C._autograd._profiler_enabled():
        return True
    if GLOBAL[BEFORE] or GLOBAL[AFTER] or optimizer._optimizer_step_post_hooks:
        return True
    before = optimizer._optimizer_step_pre_hooks
    return len(before) > 1 or any(type(hook) is not Overhears for hook in before.values())


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
    every = [optimizer]
    if not is_familiar(optimizer):  # it may hold others
        every = [each for each in reachable(every) if isinstance(each, optim.Optimizer)]
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

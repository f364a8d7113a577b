"""The two kinds of closure: one that only computes the loss, and one that runs backward as well."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor

Forward = Callable[[], Tensor]


def mean_of(loss: Tensor) -> Tensor:
    """Return the loss as one number, also where per-sample losses are given."""
    return loss.mean() if loss.dim() else loss


def first_pass(
    closure: Forward,
    params: Sequence[Tensor],
    check: Callable[[object], None],
    recording: AbstractContextManager[None],
) -> tuple[Tensor | None, Forward]:
    """Run the closure, and backward unless it did so itself.

    Args:
        closure: The user's function.
        params: The parameters whose gradients tell what the closure did.
        check: Raises if what the closure returned is no loss.
        recording: Entered around the closure alone.

    Returns:
        The loss (None if the closure returned that and `check` let it pass), and the function that
        computes it again for a probe.
    """
    before = [(p.grad, None if p.grad is None else p.grad._version) for p in params]
    with torch.enable_grad():
        with recording:
            loss = closure()
        check(loss)
        if loss is None:
            return None, closure
        if any(
            p.grad is not None and p.grad is not g for p, (g, _) in zip(params, before, strict=True)
        ):
            return loss, functools.partial(_with_grad, closure)
        is_touched = any(g is not None and g._version != version for g, version in before)
        if is_touched and not _backward_succeeds(loss, params):
            return loss, functools.partial(_with_grad, closure)
        if not is_touched:
            clear(params)
            mean_of(loss).backward()  # type: ignore[no-untyped-call]
    return loss, closure


def clear(params: Sequence[Tensor]) -> None:
    """Drop every gradient."""
    for p in params:
        p.grad = None


def _backward_succeeds(loss: Tensor, params: Sequence[Tensor]) -> bool:
    """Run backward on cleared gradients, or keep the gradients if the closure ran it before.

    The gradients are the tensors of before with other contents: the closure zeroed them in place, or
    ran backward, or both. Only a graph that is gone tells.
    """
    kept = [p.grad for p in params]
    clear(params)
    try:
        mean_of(loss).backward()  # type: ignore[no-untyped-call]
    except RuntimeError:
        for p, grad in zip(params, kept, strict=True):
            p.grad = grad
        return False
    return True


def _with_grad(closure: Forward) -> Tensor:
    with torch.enable_grad():
        return closure().detach()

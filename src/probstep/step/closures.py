"""The two kinds of closure: one that only computes the loss, and one that runs backward as well."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

Forward = Callable[[], Tensor]


def mean_of(loss: Tensor) -> Tensor:
    """Return the loss as one number, also where per-sample losses are given."""
    return loss.mean() if loss.dim() else loss


HABIT = (
    3  # steps in a row after which a closure that only computes the loss is expected to go on so
)


class Evidence:
    """Remembers what earlier steps have taught about a closure.

    The gradients alone tell if it ran backward, if it leaves them alone, drops them, or makes new ones.
    They do not if it zeroes or adds to them in place: then hooks watch, at a small price, for backward
    itself (`is_needed`). A closure that has only computed the loss, `pure` times in a row, finds the
    gradients cleared: then nothing has to be compared, and their memory is free for its pass.
    """

    def __init__(self) -> None:
        self.is_needed = True
        self.pure = 0


def first_pass(
    closure: Forward,
    params: Sequence[Tensor],
    check: Callable[[object], None],
    recording: AbstractContextManager[None],
    evidence: Evidence,
) -> tuple[Tensor | None, Forward | None]:
    """Run the closure, and backward unless it did so itself.

    Args:
        closure: The user's function.
        params: The parameters whose gradients tell what the closure did.
        check: Raises if what the closure returned is no loss.
        recording: Entered around the closure alone.
        evidence: What earlier steps have taught about the closure.

    Returns:
        The loss, and the function that computes it again for a probe; None and None if the closure
        returned None and `check` let it pass.
    """
    if evidence.pure >= HABIT:
        return _pure_pass(closure, params, check, recording, evidence)
    before = [(p.grad, None if p.grad is None else p.grad._version) for p in params]
    with torch.enable_grad():
        with _watching_backward(params if evidence.is_needed else ()) as has_run, recording:
            loss = closure()
        check(loss)
        if loss is None:
            return None, None
        pairs = zip(params, before, strict=True)
        is_new = any(p.grad is not None and p.grad is not grad for p, (grad, _) in pairs)
        if any(grad is not None for grad, _ in before):
            is_changed = any(grad is not None and grad._version != v for grad, v in before)
            evidence.is_needed = is_changed and not is_new
        if is_new or has_run:
            evidence.pure = 0
            return loss, functools.partial(_with_grad, closure)
        _backward(loss, params)
        evidence.pure += 1
    return loss, closure


def _pure_pass(
    closure: Forward,
    params: Sequence[Tensor],
    check: Callable[[object], None],
    recording: AbstractContextManager[None],
    evidence: Evidence,
) -> tuple[Tensor | None, Forward | None]:
    """Run a closure that is expected to compute the loss alone, with the gradients cleared."""
    for p in params:
        p.grad = None
    with torch.enable_grad():
        with recording:
            loss = closure()
        check(loss)
        if loss is None:
            return None, None
        for p in params:
            if p.grad is not None:  # this time it ran backward
                evidence.pure = 0
                return loss, functools.partial(_with_grad, closure)
        mean_of(loss).backward()  # type: ignore[no-untyped-call]
    return loss, closure


@contextmanager
def _watching_backward(params: Sequence[Tensor]) -> Iterator[list[bool]]:
    """Give a list that is not empty once backward has added to any gradient that exists already."""
    has_run: list[bool] = []
    handles = [
        p.register_post_accumulate_grad_hook(lambda _: has_run.append(True))  # type: ignore[no-untyped-call]
        for p in params
        if p.grad is not None and p.requires_grad
    ]
    try:
        yield has_run
    finally:
        for handle in handles:
            handle.remove()


def _backward(loss: Tensor, params: Sequence[Tensor]) -> None:
    """Run backward on cleared gradients; if it raises, the gradients are as before."""
    kept = [p.grad for p in params]
    for p in params:
        p.grad = None
    try:
        mean_of(loss).backward()  # type: ignore[no-untyped-call]
    except BaseException:
        for p, grad in zip(params, kept, strict=True):
            p.grad = grad
        raise


def _with_grad(closure: Forward) -> Tensor:
    with torch.enable_grad():
        loss = closure()
    return loss.detach() if isinstance(loss, Tensor) else loss

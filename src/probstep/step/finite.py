"""What is seen of the gradients and done to them before a step: it is skipped if they are not finite.

On the CPU all gradients are looked at before the base steps. On another device this would wait for the
device. There a flag on the device says what was found, and fused optimizers skip the step by themselves.
Any other optimizer takes the step. Its loss, which is read a step later, shows that it was not finite.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, optim

from .joint import bases_of
from .ranks import local

NOT_FOUND, ONE = (torch.tensor(x, device="cpu", dtype=torch.float32) for x in (0.0, 1.0))
LARGE = 1 << 16  # elements; from here on a sum, which only reads, is cheaper than torch's own check


def is_on_host(optimizer: optim.Optimizer) -> bool:
    """Say whether the parameters lie on the CPU, where reading costs nothing."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            return bool(p.is_cpu)
    return True


def are_finite(optimizer: optim.Optimizer) -> bool:
    """Say whether every gradient, on the CPU, is finite.

    >>> w = torch.nn.Parameter(torch.ones(2))
    >>> w.grad = torch.tensor([1.0, torch.inf])
    >>> are_finite(torch.optim.SGD([w]))
    False
    """
    small, is_finite, single = [], True, torch.float32
    for group in optimizer.param_groups:
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            if type(grad) is Tensor and grad.dtype is single and grad.numel() < LARGE:
                small.append(grad._values() if grad.is_sparse else grad)
            else:
                is_finite = is_finite and _is_finite(local(grad))
    if not small:
        return is_finite
    found = NOT_FOUND.clone()  # another thread may be looking, too
    try:
        # torch's check for gradient scalers; a scale of 1 leaves the gradients as they are.
        torch._amp_foreach_non_finite_check_and_unscale_(small, found, ONE)
    except RuntimeError:  # it writes, and an expanded gradient cannot be written to
        return is_finite and all(map(_is_finite, small))
    return is_finite and not found.item()


def gradients_are_zero(optimizer: optim.Optimizer) -> bool:
    """Say whether no gradient has an element other than zero.

    >>> w = torch.nn.Parameter(torch.ones(2))
    >>> w.grad = torch.zeros(2)
    >>> gradients_are_zero(torch.optim.SGD([w]))
    True
    """
    grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
    found = (local(grad) for grad in grads if grad is not None)
    return not any((g._values() if g.is_sparse else g).any().item() for g in found)


def scale_gradients(optimizer: optim.Optimizer, factor: float) -> None:
    """Multiply all gradients in place, as clipping does; those that are expanded are replaced.

    >>> w = torch.nn.Parameter(torch.ones(2))
    >>> w.grad = torch.ones(1).expand(2)
    >>> scale_gradients(torch.optim.SGD([w]), 0.5)
    >>> w.grad
    tensor([0.5000, 0.5000])
    """
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.grad is None:
                continue
            try:
                p.grad.mul_(factor)
            except RuntimeError:  # an expanded gradient cannot be written to
                p.grad = p.grad * factor


def _is_finite(grad: Tensor) -> bool:
    grad = grad._values() if grad.is_sparse else grad
    grad = torch.view_as_real(grad.resolve_conj()) if grad.is_complex() else grad
    wide = torch.float64 if grad.dtype is torch.float64 else torch.float32
    total = grad.sum(dtype=wide).item()
    return total - total == 0 or bool(torch.isfinite(grad).all())  # the sum alone may overflow


def found_on_device(optimizer: optim.Optimizer) -> Tensor | None:
    """Return a flag on the device: a gradient is not finite. It is for an optimizer that can use it.

    None for an optimizer that cannot, or that already has such a flag from a gradient scaler.
    """
    bases = bases_of(optimizer)
    is_fused = all(group.get("fused") for group in optimizer.param_groups)
    if not (is_fused and all(getattr(b, "_step_supports_amp_scaling", False) for b in bases)):
        return None
    grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
    grads = [local(grad) for grad in grads if grad is not None]
    if not grads or any(getattr(base, "found_inf", None) is not None for base in bases):
        return None
    device = grads[0].device
    found = torch.zeros((), device=device)
    torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.ones((), device=device))
    return found


@contextmanager
def skipping(optimizer: optim.Optimizer, found: Tensor | None) -> Iterator[None]:
    """Let a fused optimizer skip its step on the device where the flag is set."""
    if found is None:
        yield
        return
    bases: list[Any] = list(bases_of(optimizer))
    for base in bases:
        base.found_inf = found
    try:
        yield
    finally:
        for base in bases:
            del base.found_inf

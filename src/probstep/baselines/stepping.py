"""What the re-implemented methods share: how they read a loss, gradients and their lengths."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

Closure = Callable[[], Tensor]
Group = dict[str, Any]


def known_loss(closure: Closure | None, loss: Tensor | float | None) -> Tensor:
    """Return the loss of this step, either handed over or evaluated by `closure`.

    Args:
        closure: Clears the gradients, evaluates, runs backward and returns the loss.
        loss: The loss whose gradients are already there.

    >>> known_loss(None, 0.5)
    tensor(0.5000)
    """
    if (closure is None) == (loss is None):
        raise ValueError(
            "This method steps with the value of the loss. After backward(), call "
            "step(loss=loss); or call step(closure) with a closure that runs backward. "
            "Give exactly one of the two."
        )
    if closure is None:
        return torch.as_tensor(loss).detach()
    with torch.enable_grad():
        return closure().detach()


def optional_loss(closure: Closure | None) -> Tensor | None:
    """Return the loss of an optional torch closure (which runs backward itself)."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def movable(group: Group) -> list[Tensor]:
    """Return the parameters of a group that have a gradient."""
    return [p for p in group["params"] if p.grad is not None]


def gradient(p: Tensor) -> Tensor:
    """Return the dense gradient of a parameter that has one."""
    assert p.grad is not None
    return p.grad.to_dense() if p.grad.is_sparse else p.grad


def decayed_gradient(p: Tensor, weight_decay: float) -> Tensor:
    """Return the gradient with coupled weight decay, leaving `p.grad` as it is."""
    grad = gradient(p)
    return grad.add(p, alpha=weight_decay) if weight_decay else grad


def inner(left: Iterable[Tensor], right: Iterable[Tensor]) -> float:
    """Return the inner product of two lists of tensors as one number.

    >>> inner([torch.tensor([1.0, 2.0])], [torch.tensor([3.0, 4.0])])
    11.0
    """
    products = [torch.sum(a * b) for a, b in zip(left, right, strict=True)]
    return torch.stack(products).sum().item() if products else 0.0


def squared_norm(groups: Iterable[Group]) -> float:
    """Return the squared length of the gradient over all groups."""
    grads = [gradient(p) for group in groups for p in movable(group)]
    return inner(grads, grads)


def check_positive(**settings: float) -> None:
    """Refuse settings that are not positive.

    >>> check_positive(lr=0.0)
    Traceback (most recent call last):
        ...
    ValueError: lr must be positive, got 0.0.
    """
    for name, value in settings.items():
        if not value > 0.0:
            raise ValueError(f"{name} must be positive, got {value}.")


def check_fraction(**settings: float) -> None:
    """Refuse settings outside the half-open interval [0, 1).

    >>> check_fraction(momentum=1.0)
    Traceback (most recent call last):
        ...
    ValueError: momentum must lie in [0, 1), got 1.0.
    """
    for name, value in settings.items():
        if not 0.0 <= value < 1.0:
            raise ValueError(f"{name} must lie in [0, 1), got {value}.")


def check_within(least: float, most: float, **settings: float) -> None:
    """Refuse settings outside the open interval between two numbers.

    >>> check_within(0.0, 1.0, shrink=1.0)
    Traceback (most recent call last):
        ...
    ValueError: shrink must lie above 0.0 and below 1.0, got 1.0.
    """
    for name, value in settings.items():
        if not least < value < most:
            raise ValueError(f"{name} must lie above {least} and below {most}, got {value}.")


def check_not_negative(**settings: float) -> None:
    """Refuse settings that are negative.

    >>> check_not_negative(hypergrad_lr=-1.0)
    Traceback (most recent call last):
        ...
    ValueError: hypergrad_lr must not be negative, got -1.0.
    """
    for name, value in settings.items():
        if not value >= 0.0:
            raise ValueError(f"{name} must not be negative, got {value}.")

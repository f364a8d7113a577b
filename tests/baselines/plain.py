"""A quadratic in plain Python, and the same in torch: the ground on which formulas are pinned."""

import torch
from torch import Tensor, nn

CURVATURES = (1.0, 4.0)
START = (1.0, -0.5)

Vector = list[float]


def loss_of(w: Vector) -> float:
    return sum(0.5 * a * x * x for a, x in zip(CURVATURES, w, strict=True))


def grad_of(w: Vector) -> Vector:
    return [a * x for a, x in zip(CURVATURES, w, strict=True)]


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def moved(w: Vector, rate: float, direction: Vector) -> Vector:
    return [x - rate * d for x, d in zip(w, direction, strict=True)]


def parameters() -> list[nn.Parameter]:
    """The two numbers as two tensors, in double precision."""
    return [nn.Parameter(torch.tensor([x], dtype=torch.float64)) for x in START]


def torch_loss(params: list[nn.Parameter]) -> Tensor:
    terms = [0.5 * a * p.square().sum() for a, p in zip(CURVATURES, params, strict=True)]
    return torch.stack(terms).sum()


def after_backward(params: list[nn.Parameter]) -> Tensor:
    for p in params:
        p.grad = None
    loss = torch_loss(params)
    loss.backward()
    return loss


def values(params: list[nn.Parameter]) -> Vector:
    return [p.item() for p in params]

"""Models that are only a point in space: quadratics and Rosenbrock's valley."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Quadratic(nn.Module):
    """Maps x to L'(theta - x), whose squared norm is (theta - x)'Q(theta - x) with Q = LL'.

    Args:
        factor: The square root L of the matrix Q.

    >>> Quadratic(2 * torch.eye(2))(torch.zeros(1, 2)).tolist()
    [[2.0, 2.0]]
    """

    factor: Tensor

    def __init__(self, factor: Tensor) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.ones(len(factor)))
        self.register_buffer("factor", factor)

    def forward(self, x: Tensor) -> Tensor:
        """One row for each x."""
        return (self.theta - x) @ self.factor


class Rosenbrock(nn.Module):
    """Rosenbrock's function of 2 dimensions at theta + x; its minimum is 0 at (1, 1) for x = 0.

    In double precision: its curves part from each other by rounding, in single after 20 steps.

    >>> round(Rosenbrock()(torch.tensor([[2.2, 0.0]])).item(), 6)
    0.0
    """

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([-1.2, 1.0], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """One value for each x."""
        a, b = (self.theta + x).unbind(dim=-1)
        return (1 - a) ** 2 + 100 * (b - a**2) ** 2


def draw_rotation(dimensions: int, rng: np.random.RandomState) -> Matrix:
    """A rotation drawn uniformly, by the subgroup algorithm and in DeepOBS's order of draws.

    From a rotation of d dimensions one of d + 1 is made: let it act on the last d axes, then
    reflect the first axis onto a random direction. At last all signs are turned.

    Reference: Diaconis and Shahshahani, 1987, "The subgroup algorithm for generating uniform
    random variables".

    >>> rotation = draw_rotation(5, np.random.RandomState(0))
    >>> bool(np.allclose(rotation @ rotation.T, np.eye(5)))
    True
    """
    angle = 2 * math.pi * rng.uniform()
    cos, sin = math.cos(angle), math.sin(angle)
    rotation = np.array([[cos, sin], [-sin, cos]])
    for d in range(2, dimensions):
        direction = rng.normal(size=d + 1)
        normal = -direction / np.linalg.norm(direction)
        normal[0] += 1.0
        normal /= np.linalg.norm(normal)
        larger = np.eye(d + 1)
        larger[1:, 1:] = rotation
        rotation = larger - 2 * np.outer(normal, normal @ larger)
    return -rotation


def make_factor(eigenvalues: Vector, rng: np.random.RandomState) -> Tensor:
    """A square root L of a matrix LL' with these eigenvalues and a random basis.

    A root made from the eigenvalues, unlike Cholesky's, exists for any conditioning.

    >>> factor = make_factor(np.array([1.0, 9.0]), np.random.RandomState(0))
    >>> torch.linalg.eigvalsh(factor @ factor.T).round().tolist()
    [1.0, 9.0]
    """
    rotation = draw_rotation(len(eigenvalues), rng)
    return torch.from_numpy(rotation.T * np.sqrt(eigenvalues)).float()


def make_quadratic_deep() -> nn.Module:
    """DeepOBS's quadratic of 100 dimensions: 90 small eigenvalues and 10 large ones.

    >>> sum(p.numel() for p in make_quadratic_deep().parameters())
    100
    """
    rng = np.random.RandomState(42)
    small, large = rng.uniform(0.0, 1.0, 90), rng.uniform(30.0, 60.0, 10)
    return Quadratic(make_factor(np.concatenate((small, large)), rng))


def make_quadratic(dimensions: int, condition: float) -> nn.Module:
    """A quadratic with eigenvalues log-spaced from 1/condition to 1, in a fixed random basis.

    >>> sum(p.numel() for p in make_quadratic(10, 1e3).parameters())
    10
    """
    eigenvalues = np.geomspace(1 / condition, 1.0, dimensions)
    return Quadratic(make_factor(eigenvalues, np.random.RandomState(0)))

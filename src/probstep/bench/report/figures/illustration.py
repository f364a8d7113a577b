"""The paper's Fig. 1: what an observed loss says about the minimiser, in two dimensions.

It needs no records: `infer_example` computes every number with `probstep.theory.inference`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from probstep.bench.report.drawing.chart import Figure, Line, Marker, Panel
from probstep.bench.report.drawing.colours import PALETTE
from probstep.drawing.axes import Axis
from probstep.drawing.scene import GREY, INK, Colour
from probstep.theory.inference import Gaussian, Likelihood, posterior

HESSIAN = torch.tensor([[1.0, 0.35], [0.35, 0.6]], dtype=torch.float64)
SOLUTION = torch.tensor([0.0, 0.0], dtype=torch.float64)
START = torch.tensor([2.6, 1.5], dtype=torch.float64)
NOISE = 1.0
WIDE, NARROW = (1.3, 0.8), (0.22, 0.135)  # diagonals of two covariances that differ in scale
SIZE = (448.0, 320.0)
RED, BLUE, GREEN, PALE = (
    PALETTE[1],
    PALETTE[0],
    Colour("#00694b", "#3fcf9f"),
    Colour("#8cc9b4", "#2c7a60"),
)


@dataclass(frozen=True)
class Example:
    """A quadratic, what was seen of it at a point, and two beliefs before and after."""

    loss: float
    likelihood: Likelihood
    wide: Gaussian
    narrow: Gaussian
    wide_after: Gaussian
    narrow_after: Gaussian


def infer_example() -> Example:
    """The example of the figure: bound 0, noise of variance 1, two axis-aligned priors.

    >>> after = infer_example()
    >>> distance = [float((b.mean - SOLUTION).norm()) for b in (after.wide_after, after.narrow_after)]
    >>> distance[0] < distance[1]
    True
    """
    error = START - SOLUTION
    loss = float(error @ HESSIAN @ error) / 2
    seen = Likelihood(START, HESSIAN @ error, bound=0.0, noise=NOISE)
    priors = [
        Gaussian(START, torch.diag(torch.tensor(d, dtype=torch.float64))) for d in (WIDE, NARROW)
    ]
    wide, narrow = priors
    return Example(loss, seen, wide, narrow, *(posterior(prior, seen, loss) for prior in priors))


def draw_illustration() -> Figure:
    """The quadratic, the line of possible minimisers, two priors and their posterior means."""
    example = infer_example()
    legend = [
        Line("the local quadratic", (), (), GREY, width=1.0),
        Line("minimisers that explain the loss exactly", (), (), GREEN, width=2.2),
        Line("within 1, 2, 3 standard deviations √R", (), (), PALE, "dashed", 1.2),
        Line("wide prior", (), (), BLUE),
        Line("narrow prior", (), (), RED),
        Line("posterior mean", (), (), INK, width=0, marker="ring"),
        Line("where the loss was seen", (), (), INK, width=0, marker="disc"),
        Line("the minimiser", (), (), INK, width=0, marker="cross"),
    ]
    lines = [*_contours(), *_possible(example), *_beliefs(example)]
    return Figure(
        slug="inference",
        title="What one observed loss says about the minimiser",
        sentence="A loss and its gradient, seen at one point, leave a line of possible minimisers, "
        "blurred by noise. A prior around the point picks one: the wider it is against the noise, "
        "the further the posterior mean moves towards the solution. A learning rate is the width "
        "of that prior.",
        rows=[[Panel("", Axis(-1.8, 5.2), Axis(-2.0, 3.0), lines)]],
        x_label="θ₁",
        y_label="θ₂",
        legend=legend,
        size=SIZE,
    )


def _contours() -> list[Line]:
    inverse = torch.linalg.inv(HESSIAN)
    levels = (0.25, 1.0, 2.25, 4.0, 6.25, 9.0)
    return [_ellipse("", SOLUTION, 2 * level * inverse, GREY, width=0.8) for level in levels]


def _possible(example: Example) -> list[Line]:
    """The line of g'(theta - theta*)/2 + f* = f, and that line for losses that noise has shifted."""
    deviations = sorted(range(-3, 4), key=abs, reverse=True)
    return [_level(example, deviation) for deviation in deviations]


def _level(example: Example, deviation: int) -> Line:
    g = example.likelihood.gradient
    surprise = example.loss + deviation * math.sqrt(NOISE) - example.likelihood.expected_loss(START)
    foot = START - 2 * surprise * g / (g @ g)
    along = torch.stack((-g[1], g[0])) / g.norm()
    ends = torch.stack((foot - 8 * along, foot + 8 * along))
    style = (GREEN, "solid", 2.2) if deviation == 0 else (PALE, "dashed", 1.2)
    name = "explains the loss exactly" if deviation == 0 else f"{deviation:+d} standard deviations"
    return _line(name, ends, *style)


def _beliefs(example: Example) -> list[Line]:
    lines = []
    pairs = (example.wide, example.wide_after, BLUE), (example.narrow, example.narrow_after, RED)
    for prior, after, colour in pairs:
        name = "wide prior" if colour is BLUE else "narrow prior"
        lines += [_ellipse(name, prior.mean, _dense(prior), colour)]
        lines += [_ellipse(name, prior.mean, 4 * _dense(prior), colour, width=1.0)]
        lines += [_line(name, torch.stack((START, after.mean)), colour, "dotted", 1.4)]
        lines += [_point(f"posterior mean of the {name}", after.mean, colour, "ring")]
    lines += [_point("where the loss was seen", START, INK, "disc")]
    return [*lines, _point("the minimiser", SOLUTION, INK, "cross")]


def _dense(belief: Gaussian) -> Tensor:
    return belief.covariance @ torch.eye(len(belief.mean), dtype=belief.mean.dtype)


def _ellipse(name: str, centre: Tensor, matrix: Tensor, colour: Colour, width: float = 1.8) -> Line:
    """The points at which x' matrix^-1 x = 1, around a centre."""
    angles = torch.linspace(0, 2 * math.pi, 121, dtype=torch.float64)
    circle = torch.stack((angles.cos(), angles.sin()), dim=1)
    return _line(name, centre + circle @ torch.linalg.cholesky(matrix).T, colour, "solid", width)


def _line(name: str, points: Tensor, colour: Colour, dash: str, width: float) -> Line:
    xs, ys = points.T.tolist()
    return Line(name, xs, ys, colour, dash, width)


def _point(name: str, at: Tensor, colour: Colour, marker: Marker) -> Line:
    x, y = at.tolist()
    return Line(name, [x], [y], colour, width=0, marker=marker)

"""Your own problem and method on the bench: tables in a file that you name on the command line.

    probstep list problems --import examples/own_problem.py
    probstep run examples/own_problem.toml --import examples/own_problem.py

A problem is data, a model and a loss. A method is a function that makes an optimizer. Put them in
tables named PROBLEMS and METHODS; a plan then uses their names like those of the bench.
"""

import torch
from torch import nn

from probstep.bench.methods import Method
from probstep.bench.problems import (
    Dataset,
    Problem,
    Samples,
    Source,
    keep_validation,
    mean_squares,
)


def load_parabola(data_dir):  # noqa: ARG001  # a problem with files finds them there
    """Samples of y = x^2 for training, test and validation."""
    return Dataset(*(draw_parabola(seed) for seed in (0, 1, 2)))


def draw_parabola(seed):
    generator = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(500, 1, generator=generator) - 1
    return Samples(x, x**2)


def make_model():
    return nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))


def heavy_ball(params, lr, friction):
    return torch.optim.SGD(params, lr=lr, momentum=1 - friction)


PROBLEMS = {
    "parabola": Problem(
        "parabola",
        Source("parabola", load_parabola, keep_validation),
        make_model,
        mean_squares,
        hits=None,
        batch_size=50,
        epochs=10,
    )
}
METHODS = {
    "heavy_ball": Method(
        "heavy_ball", heavy_ball, "fixed", default_rate=1e-2, defaults={"friction": 0.1}
    )
}

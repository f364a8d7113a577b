"""Polyak's rate for schedule-free methods (Oikonomou et al., 2025)."""

import math

import pytest
import torch

from probstep.baselines.loizou2020sps import SPS
from probstep.baselines.oikonomou2025polyak import ScheduleFreePolyak

from .plain import START, after_backward, dot, grad_of, loss_of, moved, parameters, values


@pytest.mark.parametrize("metric", ["sgd", "adam"])
def test_z_takes_polyaks_step_x_is_its_mean_and_gradients_are_taken_between(metric: str) -> None:
    params = parameters()
    optimizer = ScheduleFreePolyak(params, metric, beta=0.75, lower_bound=0.01)
    x, z, squares = list(START), list(START), [0.0, 0.0]
    for step in range(1, 5):
        y = [0.25 * b + 0.75 * a for a, b in zip(x, z, strict=True)]
        assert values(params) == pytest.approx(y, rel=1e-12)
        grad = grad_of(y)
        squares = [0.999 * s + 0.001 * g * g for s, g in zip(squares, grad, strict=True)]
        roots = [math.sqrt(s / (1 - 0.999**step)) + 1e-8 for s in squares]
        metrics = roots if metric == "adam" else [1.0, 1.0]
        direction = [g / d for g, d in zip(grad, metrics, strict=True)]
        gap = [0.75 * (b - a) for a, b in zip(x, z, strict=True)]
        rate = max(loss_of(y) - 0.01 + dot(grad, gap), 0.0) / dot(grad, direction)
        z = moved(z, rate, direction)
        x = [a + (b - a) / step for a, b in zip(x, z, strict=True)]
        optimizer.step(loss=after_backward(params))
        assert optimizer.param_groups[0]["rate"] == pytest.approx(rate, rel=1e-9)
    optimizer.eval()
    assert values(params) == pytest.approx(x, rel=1e-9)


def test_without_interpolation_z_is_the_polyak_step_of_sgd() -> None:
    ours, theirs = parameters(), parameters()
    optimizer = ScheduleFreePolyak(ours, beta=0.0)
    reference = SPS(theirs, lr=math.inf, c=1.0, smooth=False, eps=0.0)
    for _ in range(4):
        optimizer.step(loss=after_backward(ours))
        reference.step(loss=after_backward(theirs))
        assert values(ours) == pytest.approx(values(theirs), rel=1e-12)


def test_the_mean_of_z_is_lent_for_evaluation_and_taken_back_exactly() -> None:
    params = parameters()
    optimizer = ScheduleFreePolyak(params)
    seen = []
    for _ in range(3):
        optimizer.step(loss=after_backward(params))
        seen.append([optimizer.state[p]["z"].item() for p in params])
    before = values(params)
    optimizer.eval()
    mean = torch.tensor(seen, dtype=torch.float64).mean(0).tolist()
    assert values(params) == pytest.approx(mean, rel=1e-12)
    optimizer.train()
    assert values(params) == before


def test_no_step_is_taken_where_the_loss_is_at_its_bound() -> None:
    params = parameters()
    optimizer = ScheduleFreePolyak(params, lower_bound=100.0)
    optimizer.step(loss=after_backward(params))
    assert values(params) == list(START)
    assert optimizer.param_groups[0]["rate"] == 0.0


def test_the_safeguard_bounds_the_rate() -> None:
    params = parameters()
    optimizer = ScheduleFreePolyak(params, safeguard=1e3)
    optimizer.step(loss=after_backward(params))
    assert optimizer.param_groups[0]["rate"] == pytest.approx(loss_of(list(START)) / 1e3)

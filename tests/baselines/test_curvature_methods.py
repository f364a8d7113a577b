"""vSGD (Schaul et al., 2013) and equilibrated SGD (Dauphin et al., 2015)."""

import math

import pytest
import torch

from probstep.baselines.dauphin2015esgd import ESGD
from probstep.baselines.schaul2013vsgd import VSGD

from .plain import CURVATURES, START, grad_of, moved, parameters, torch_loss, values


def test_vsgd_takes_its_rate_from_signal_noise_and_curvature() -> None:
    """After one step that observes; the curvature of a quadratic is exact by finite differences."""
    params = parameters()
    optimizer = VSGD(params, initial_steps=1)
    w, eps = list(START), 1e-9
    optimizer.step(lambda: torch_loss(params))
    assert values(params) == w
    g = grad_of(w)
    v = [2.0 * (x * x + eps) for x in g]
    tau = [2.0 * (1 + eps)] * 2
    for _ in range(3):
        grad = grad_of(w)
        # an outlier differs by more than one standard deviation; rounding decides for the curvature
        far = [(x - m) ** 2 > s - m * m for x, m, s in zip(grad, g, v, strict=True)]
        optimizer.step(lambda: torch_loss(params))
        for i, p in enumerate(params):
            counted = optimizer.state[p]["tau"].item()
            choices = [tau[i] + far[i], tau[i] + 1]
            outcomes = [one_update(w[i], grad[i], g[i], v[i], t, CURVATURES[i]) for t in choices]
            chosen = min(outcomes, key=lambda o: abs(o[3] - counted))
            w[i], g[i], v[i], tau[i] = chosen
        assert values(params) == pytest.approx(w, rel=1e-6)
        assert [optimizer.state[p]["tau"].item() for p in params] == pytest.approx(tau, rel=1e-6)


def one_update(
    w: float, grad: float, g: float, v: float, tau: float, curvature: float
) -> tuple[float, float, float, float]:
    eps = 1e-9
    g += (grad - g) / tau
    v += (grad * grad - v) / tau + eps
    signal = g * g / v
    rate = signal * (curvature + eps) / (curvature**2 + eps)
    return w - rate * grad, g, v, (1 - signal) * tau + 1 + eps


def test_vsgd_only_observes_in_its_first_steps() -> None:
    params = parameters()
    optimizer = VSGD(params)
    for _ in range(10):
        optimizer.step(lambda: torch_loss(params))
    assert values(params) == list(START)
    optimizer.step(lambda: torch_loss(params))
    assert values(params) != list(START)


def test_esgd_divides_by_the_root_mean_square_of_random_hessian_products() -> None:
    params = parameters()
    optimizer = ESGD(params, lr=0.1, damping=1e-4, every=2, seed=7)
    w, sums = list(START), [0.0, 0.0]
    seeds = {0: (7, 8), 2: (9, 10)}  # in steps 1 and 3
    for step in range(3):
        for i, seed in enumerate(seeds.get(step, ())):
            generator = torch.Generator().manual_seed(seed)
            z = torch.randn(1, generator=generator, dtype=torch.float64).item()
            sums[i] += (CURVATURES[i] * z) ** 2
        count = 1 + step // 2
        scaled = [g / (math.sqrt(s / count) + 1e-4) for g, s in zip(grad_of(w), sums, strict=True)]
        w = moved(w, 0.1, scaled)
        optimizer.step(lambda: torch_loss(params))
        assert values(params) == pytest.approx(w, rel=1e-12)


def test_esgd_leaves_the_random_stream_of_the_training_alone() -> None:
    params = parameters()
    before = torch.get_rng_state()
    ESGD(params).step(lambda: torch_loss(params))
    assert torch.equal(before, torch.get_rng_state())

"""SASA+ (Zhang et al., 2020): by hand, on noise, and against the authors' package."""

import warnings

import pytest
import torch
from torch import nn

from probstep.baselines.zhang2020sasa import SASA, SPREADS, is_stationary, student_quantile

from .plain import START, after_backward, dot, grad_of, moved, parameters, values

QUICK = {"warmup": 0, "min_samples": 100, "test_every": 100}


def noisy_walk(
    optimizer: torch.optim.Optimizer, w: nn.Parameter, steps: int, seed: int = 0
) -> list[float]:
    """The rates of SGD on a quadratic with noisy gradients."""
    generator = torch.Generator().manual_seed(seed)
    rates = []
    for _ in range(steps):
        w.grad = w.detach() + torch.randn(w.shape, generator=generator, dtype=w.dtype)
        optimizer.step()
        group = optimizer.param_groups[0]
        rates.append(group["lr"] * group.get("scale", 1.0))
    return rates


@pytest.mark.parametrize("nu", [0.0, 0.7, 1.0])
def test_it_steps_along_quasi_hyperbolic_momentum_and_records_its_statistic(nu: float) -> None:
    params = parameters()
    optimizer = SASA(params, lr=0.2, momentum=0.9, nu=nu, weight_decay=0.1)
    w, average, samples = list(START), [0.0, 0.0], []
    for _ in range(3):
        grad = [g + 0.1 * x for g, x in zip(grad_of(w), w, strict=True)]
        average = [0.9 * h + 0.1 * g for h, g in zip(average, grad, strict=True)]
        direction = [(1 - nu) * g + nu * h for g, h in zip(grad, average, strict=True)]
        w = moved(w, 0.2, direction)
        samples.append(dot(w, direction) + 0.1 * dot(direction, direction))
        after_backward(params)
        optimizer.step()
        assert values(params) == pytest.approx(w, rel=1e-12)
        assert optimizer.param_groups[0]["samples"][-1] == pytest.approx(samples[-1], rel=1e-12)


def test_the_last_eighth_of_the_samples_is_kept() -> None:
    group = {"samples": [], "seen": 0, "leak": 8}
    kept = []
    for sample in range(24):
        SASA._remember(group, float(sample))
        kept.append(len(group["samples"]))
    assert kept == [1] * 8 + [2] * 8 + [3] * 8
    assert group["samples"] == [21.0, 22.0, 23.0]


def test_the_rate_drops_once_only_noise_is_left_and_momentum_starts_anew() -> None:
    w = nn.Parameter(torch.full((4,), 30.0, dtype=torch.float64))
    optimizer = SASA([w], lr=0.5, **QUICK)
    assert noisy_walk(optimizer, w, 800) == [0.5] * 800
    seed = 0
    while noisy_walk(optimizer, w, 1, seed := seed + 1) == [0.5]:
        assert seed < 4000
    group = optimizer.param_groups[0]
    assert group["lr"] * group["scale"] == 0.05
    assert group["steps"] % 100 == 0
    assert group["samples"] == []
    assert not optimizer.state[w]["momentum_buffer"].any()


def test_the_rate_stays_while_the_loss_still_falls() -> None:
    params = parameters()
    optimizer = SASA(params, lr=1e-4, **QUICK)
    for _ in range(1200):
        after_backward(params)
        optimizer.step()
    assert optimizer.param_groups[0]["scale"] == 1.0
    assert len(optimizer.param_groups[0]["samples"]) > 100


def test_halves_of_two_signs_are_not_stationary() -> None:
    """A mean that is crossing zero is still moving."""
    samples = torch.linspace(-1.0, 1.0, 200, dtype=torch.float64)
    assert not is_stationary(samples, 0.05, "batch_means", by_halves=False)


def test_the_quantile_is_scipys() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    for freedom in (4, 9, 30, 1000):
        for probability in (0.9, 0.95, 0.975):
            expected = stats.t.ppf(probability, freedom)
            assert student_quantile(probability, freedom) == pytest.approx(expected, rel=1e-3)


def test_the_spread_of_correlated_samples_is_larger_than_of_independent_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    steps = torch.randn(4000, generator=generator, dtype=torch.float64)
    samples, last = torch.empty_like(steps), 0.0
    for i, step in enumerate(steps.tolist()):
        last = samples[i] = 0.8 * last + step  # the mean's deviation is 1 / (1 - 0.8) per sample
    found = {name: spread(samples)[0] for name, spread in SPREADS.items()}
    assert found["independent"] == pytest.approx(1 / 0.6, rel=0.1)
    assert found["batch_means"] == pytest.approx(5.0, rel=0.2)
    assert found["overlapping"] == pytest.approx(5.0, rel=0.2)


@pytest.mark.parametrize(("ours", "theirs"), [("overlapping", "olbm"), ("independent", "iid")])
def test_the_authors_package_drops_the_rate_at_the_same_steps(ours: str, theirs: str) -> None:
    statopt = pytest.importorskip("statopt", reason="pip install statopt")
    walks = []
    for make in (
        lambda w: SASA([w], lr=0.5, nu=0.8, variance=ours, **QUICK),
        lambda w: statopt.SASA(
            [w], 0.5, 0.9, qhm_nu=0.8, var_mode=theirs, warmup=0, minN_stats=100, testfreq=100
        ),
    ):
        w = nn.Parameter(torch.full((4,), 30.0, dtype=torch.float64))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package calls add_ in a deprecated way
            walks.append((noisy_walk(make(w), w, 4000), w.detach()))
    assert walks[0][0] == pytest.approx(walks[1][0])
    assert len(set(walks[0][0])) > 1
    torch.testing.assert_close(walks[0][1], walks[1][1])


@pytest.mark.parametrize("mode", ["bm", "olbm", "iid"])
def test_the_spreads_are_those_of_the_authors_package(mode: str) -> None:
    bucket_module = pytest.importorskip("statopt.bucket", reason="pip install statopt")
    generator = torch.Generator().manual_seed(1)
    samples = torch.randn(130, generator=generator, dtype=torch.float64)
    bucket = bucket_module.LeakyBucket(1000, 1, samples.dtype, samples.device)
    for sample in samples:
        bucket.add(sample)
    _, spread, freedom = bucket.mean_std(mode)
    names = {"bm": "batch_means", "olbm": "overlapping", "iid": "independent"}
    found = SPREADS[names[mode]](samples)
    assert found == (pytest.approx(spread), freedom)

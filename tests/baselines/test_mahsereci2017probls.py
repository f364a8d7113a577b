import math

import pytest
import torch
from torch import Tensor, nn

from probstep.baselines.mahsereci2017probls import ProbLS, sample_variances
from probstep.baselines.mahsereci2017surrogate import (
    OFFSET,
    Surrogate,
    box_probability,
    rising_root,
    wiener_covariance,
)


def positions(lr: float, steps: int, curvature: float = 1.0) -> list[float]:
    """Where a search stands after each step on a quadratic whose samples all agree."""
    w = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = ProbLS([w], lr=lr)
    found = []
    for _ in range(steps):
        optimizer.step(lambda: 0.5 * curvature * w.square().expand(4))
        found.append(w.item())
    return found


def test_without_noise_an_overshooting_step_is_accepted_and_the_next_line_begins_there() -> None:
    """The slope at w = 1 - 1.2 points up again, so the Wolfe conditions hold: each step is -0.2 w."""
    assert positions(lr=1.2, steps=4) == pytest.approx([1.0, -0.2, 0.04, -0.008])


def test_without_noise_a_timid_step_is_followed_further_out() -> None:
    """Slopes -1, -0.9 do not reach the target, hence t = 2, then 4; then t = 6, 8 and the next, 10."""
    assert positions(lr=0.1, steps=7) == pytest.approx([1.0, 0.9, 0.8, 0.6, 0.4, 0.2, 0.0])


def test_a_step_too_far_is_followed_by_one_back_to_the_target_slope() -> None:
    """At t = 1 the loss has risen: f = 2 with slope 2; the spline's slope is 0.5 at t = 1/2."""
    assert positions(lr=3.0, steps=3) == pytest.approx([1.0, -2.0, -0.5], abs=1e-3)


def test_a_line_that_finds_no_step_is_aborted_close_to_its_origin() -> None:
    found = positions(lr=1e-3, steps=9)
    assert found[1:8] == pytest.approx([1 - 1e-3 * t for t in (1, 2, 4, 6, 8, 10, 12)])
    assert found[8] == pytest.approx(1 - 1e-5)


def test_evaluation_happens_at_the_last_accepted_point() -> None:
    w = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    optimizer = ProbLS([w], lr=0.1)
    for _ in range(3):
        optimizer.step(lambda: 0.5 * w.square().expand(4))
    trial = w.item()
    optimizer.eval()
    assert w.item() == 1.0
    optimizer.train()
    assert w.item() == trial


def test_a_loss_that_is_not_finite_is_never_accepted() -> None:
    w = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))

    def losses() -> Tensor:
        return ((math.nan if w.item() < 0 else 0.5) * w.square()).expand(4)

    optimizer = ProbLS([w], lr=1.5)
    for _ in range(3):
        optimizer.step(losses)
    assert w.item() == pytest.approx(1.0 - 0.015)


def test_the_variances_are_those_of_the_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, 3, generator=generator, dtype=torch.float64)
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    losses = (x @ w).square()
    rows = [torch.autograd.grad(loss, w, retain_graph=True)[0] for loss in losses]
    per_sample = torch.stack(rows)
    of_loss, (of_grad,) = sample_variances(losses, {w: per_sample.mean(0)}, chunk=3)
    assert of_loss == pytest.approx(losses.var().item() / 7)
    assert torch.allclose(of_grad, per_sample.var(0) / 7)


def test_the_covariances_of_slopes_are_the_derivatives_of_those_of_values() -> None:
    def value(s: Tensor, t: Tensor) -> Tensor:
        early = torch.minimum(s, t) + OFFSET
        return early**3 / 3 + (s - t).abs() * early**2 / 2

    for s, t in ((0.5, 2.0), (2.0, 0.5)):
        at = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (s, t)]
        by_s, by_t = torch.autograd.grad(value(*at), at, create_graph=True)
        (by_both,) = torch.autograd.grad(by_s, at[1])
        times, marks = torch.tensor([s, s, t, t]).double(), torch.tensor([0, 1, 0, 1]).bool()
        table = wiener_covariance(times, marks, times, marks)
        expected = [value(*at), by_t, by_s, by_both]
        found = [table[0, 2], table[0, 3], table[1, 2], table[1, 3]]
        assert torch.allclose(torch.stack(found), torch.stack(expected).detach())


def test_exact_observations_are_interpolated() -> None:
    surrogate = Surrogate([0.0, 1.0, 3.0], [0.0, -0.4, 2.0], [-1.0, 0.1, 3.0], 0.0, 0.0)
    mean, covariance = surrogate.posterior([0.0, 1.0, 3.0, 1.0], [False, False, False, True])
    assert mean.tolist() == pytest.approx([0.0, -0.4, 2.0, 0.1], abs=1e-6)
    assert covariance.diagonal().abs().max() < 1e-6


def test_the_mean_slope_rises_through_its_target_where_it_is_said_to() -> None:
    surrogate = Surrogate([0.0, 1.0, 3.0], [0.0, -0.4, 2.0], [-1.0, 0.1, 3.0], 0.1, 0.1)
    times = surrogate.times_of_slope(0.5)
    assert times
    for time in times:
        assert surrogate.slope(time) == pytest.approx(0.5, abs=1e-8)
        assert surrogate.slope(time + 1e-3) > 0.5


def test_a_flat_or_falling_quadratic_has_no_rising_root() -> None:
    assert rising_root(0.0, 2.0, -1.0) == 0.5
    assert rising_root(0.0, -2.0, -1.0) is None


@pytest.mark.parametrize("rho", [-0.999999, -0.7, 0.0, 0.3, 0.95, 0.9999999])
def test_the_probability_of_a_box_agrees_with_scipy(rho: float) -> None:
    stats = pytest.importorskip("scipy.stats", reason='pip install "probstep[bench]"')
    joint = stats.multivariate_normal(cov=[[1, rho], [rho, 1]], allow_singular=True)
    for a, low, high in ((-1.0, -0.5, 0.7), (0.3, -3.0, 0.1), (0.0, 0.2, 5.0)):
        # P(A >= a, low <= B <= high), by the symmetry (A, B) -> (-A, -B)
        expected = joint.cdf([-a, -low]) - joint.cdf([-a, -high])
        assert box_probability(rho, a, low, high) == pytest.approx(expected, abs=2e-5)


def test_a_closure_that_returns_one_loss_is_refused() -> None:
    w = nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match="every sample"):
        ProbLS([w]).step(lambda: w.sum())

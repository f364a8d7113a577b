"""The inference of Section 2: Bayes' rule, its closed form, and what follows from it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from probstep.theory.covariance import (
    DiagonalPlusRankOne,
    fisher_matrix,
    from_curvature,
    gauss_newton_matrix,
    hessian_matrix,
)
from probstep.theory.inference import (
    Filter,
    Gaussian,
    Likelihood,
    log_evidence,
    posterior,
    predict,
    step_factor,
)

N = 4


def spd(seed=0, n=N):
    matrix = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return matrix @ matrix.T + 0.1 * torch.eye(n, dtype=torch.float64)


def vector(seed, n=N):
    return torch.randn(n, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 50), st.floats(-2, 2), st.floats(0.01, 3))
def test_bayes_rule_holds_pointwise(seed, loss, noise):
    prior = Gaussian(vector(seed), spd(seed))
    seen = Likelihood(vector(seed + 1), vector(seed + 2), bound=-0.3, noise=noise)
    after = posterior(prior, seen, loss)
    for point in (vector(seed + 3), vector(seed + 4)):
        left = after.log_density(point) + log_evidence(prior, seen, loss)
        right = seen.log_density(loss, point) + prior.log_density(point)
        assert left == pytest.approx(right, rel=1e-6, abs=1e-6)


def test_the_evidence_integrates_to_one():
    prior, seen = Gaussian(vector(1), spd(2)), Likelihood(vector(3), vector(4), 0.5, noise=0.2)
    losses = torch.linspace(-60, 60, 20001, dtype=torch.float64)
    density = torch.tensor([log_evidence(prior, seen, f.item()) for f in losses]).exp()
    assert torch.trapezoid(density, losses).item() == pytest.approx(1.0)


def test_the_posterior_mean_is_equation_12_with_four_times_r():
    theta, g, W, loss, bound, noise = vector(0), vector(1), spd(2), 3.0, 1.0, 0.7
    mean = posterior(Gaussian(theta, W), Likelihood(theta, g, bound, noise), loss).mean
    slope = (g @ W @ g).item()
    exact = theta - W @ g * step_factor(loss, bound, slope, noise, exact=True)
    printed = theta - W @ g * step_factor(loss, bound, slope, 4 * noise)
    torch.testing.assert_close(mean, exact)
    torch.testing.assert_close(mean, printed)


def test_matrix_free_and_dense_posteriors_agree():
    W = DiagonalPlusRankOne(vector(0).exp(), 0.5, vector(1))
    seen = Likelihood(vector(2), vector(3), bound=0.0, noise=0.3)
    free = posterior(Gaussian(vector(4), W), seen, 2.0)
    dense = posterior(Gaussian(vector(4), W.dense()), seen, 2.0)
    torch.testing.assert_close(free.mean, dense.mean)
    torch.testing.assert_close(free.covariance.dense(), dense.covariance)


def test_a_noise_free_observation_leaves_no_variance_along_the_gradient():
    g = vector(1)
    after = posterior(Gaussian(vector(0), spd(2)), Likelihood(vector(0), g, 0.0), 1.0)
    assert (g @ after.covariance @ g).item() == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_repeated_updates_find_the_minimiser_of_a_quadratic_in_n_steps(n):
    B, optimum = spd(3, n), vector(4, n)

    def quadratic(theta):
        gradient = B @ (theta - optimum)
        return gradient @ (theta - optimum) / 2 + 7.0, gradient

    state = Filter(Gaussian(vector(5, n), torch.eye(n, dtype=torch.float64)), bound=7.0)
    for _ in range(n):
        error = (state.belief.mean - optimum).norm()
        assert error > 1e-3
        state = state.update(*quadratic(state.belief.mean))
    torch.testing.assert_close(state.belief.mean, optimum, rtol=1e-6, atol=1e-6)


def test_prediction_adds_the_drift_and_updates_then_forget():
    belief = Gaussian(vector(0), torch.zeros(N, N, dtype=torch.float64))
    moved = predict(belief, 0.5 * torch.eye(N, dtype=torch.float64))
    torch.testing.assert_close(moved.mean, belief.mean)
    torch.testing.assert_close(moved.covariance, 0.5 * torch.eye(N, dtype=torch.float64))
    # Without a drift a certain belief cannot learn; with one it can.
    seen = Likelihood(belief.mean, vector(1), bound=0.0, noise=0.1)
    torch.testing.assert_close(posterior(belief, seen, 1.0).mean, belief.mean)
    assert (posterior(moved, seen, 1.0).mean - belief.mean).norm() > 0


def test_the_inverse_hessian_as_prior_gives_newtons_step():
    B, optimum, theta = spd(6), vector(7), vector(8)

    def loss(t):
        return (t - optimum) @ B @ (t - optimum) / 2 + 1.0

    W = from_curvature(hessian_matrix(loss, theta))
    g = B @ (theta - optimum)
    # With the true bound the step is Newton's and ends at the minimum; with half of the decrease
    # still to come, it is half of Newton's.
    mean = posterior(Gaussian(theta, W), Likelihood(theta, g, 1.0), loss(theta).item()).mean
    torch.testing.assert_close(mean, optimum)
    halfway = (loss(theta).item() + 1.0) / 2
    mean = posterior(Gaussian(theta, W), Likelihood(theta, g, halfway), loss(theta).item()).mean
    torch.testing.assert_close(mean, (theta + optimum) / 2)


def test_gauss_newton_and_fisher_priors_descend_on_least_squares():
    x = torch.randn(20, 3, dtype=torch.float64)
    y = x @ vector(1, 3) + 0.1 * vector(2, 20)
    theta = vector(3, 3)

    def outputs(t):
        return torch.tanh(x @ t)

    def loss(out):
        return ((out - y) ** 2).sum() / 2

    def samples(t):
        return (outputs(t) - y) ** 2 / 2

    ggn = gauss_newton_matrix(outputs, loss, theta)
    jacobian = torch.func.jacrev(outputs)(theta)
    torch.testing.assert_close(ggn, jacobian.T @ jacobian)
    total = lambda t: samples(t).sum()  # noqa: E731
    g = torch.func.grad(total)(theta)
    for curvature in (ggn, fisher_matrix(samples, theta) * 20):
        damped = curvature + 0.1 * torch.eye(3, dtype=torch.float64)
        seen = Likelihood(theta, g, bound=0.0, noise=10.0)
        step = posterior(Gaussian(theta, from_curvature(damped)), seen, total(theta).item()).mean
        assert total(step) < total(theta)


def test_gauss_newton_is_the_hessian_where_the_outputs_are_linear():
    x = torch.randn(6, 3, dtype=torch.float64)
    both = (
        gauss_newton_matrix(lambda t: x @ t, lambda y: y.exp().sum(), vector(0, 3)),
        hessian_matrix(lambda t: (x @ t).exp().sum(), vector(0, 3)),
    )
    torch.testing.assert_close(*both)


def test_an_indefinite_curvature_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match="damping"):
        from_curvature(torch.diag(torch.tensor([1.0, -1.0])))


def test_the_expected_loss_is_the_quadratics_value_at_its_minimiser():
    theta, g = vector(0), vector(1)
    minimiser = theta - 2 * 0.8 * g / (g @ g)
    assert Likelihood(theta, g, bound=0.2).expected_loss(minimiser) == pytest.approx(1.0)
    assert math.isfinite(Likelihood(theta, g, 0.2, noise=1.0).log_density(1.0, minimiser))

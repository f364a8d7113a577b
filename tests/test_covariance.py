"""Table 1: eta*W of each optimizer, shown equal to the step that torch takes."""

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from probstep.theory.covariance import DiagonalPlusRankOne, flat, of_optimizer, with_momentum

from .cases import OPTIMIZERS, PAPER_ROWS, batches, loss_of, plain_network


@pytest.mark.parametrize("name", PAPER_ROWS)
def test_the_product_with_the_gradient_is_the_step_that_torch_takes(name):
    model = plain_network(torch.float64)
    optimizer = OPTIMIZERS[name].make(model.parameters())
    for batch in batches(5, torch.float64):
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        g = flat(p.grad for p in model.parameters())
        W = of_optimizer(optimizer)
        before = flat(p.detach() for p in model.parameters())
        optimizer.step()
        step = before - flat(p.detach() for p in model.parameters())
        torch.testing.assert_close(W @ g, step, rtol=1e-9, atol=1e-14)
        torch.testing.assert_close(W.quadratic(g), g @ step)
        torch.testing.assert_close(W.dense() @ g, step, rtol=1e-9, atol=1e-14)


def vectors(seed, n=4):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, n, dtype=torch.float64, generator=generator)


@given(st.integers(0, 2000), st.floats(0.1, 0.99))
def test_positive_definiteness_is_that_of_the_dense_matrix(seed, beta):
    m, g = vectors(seed)
    W = with_momentum(torch.ones(4, dtype=torch.float64), beta * m, g)
    smallest = torch.linalg.eigvalsh(W.dense())[0].item()
    assume(abs(smallest) > 1e-9)
    assert W.is_positive_definite() == (smallest > 0)
    # The paper's condition is that of descent, which positive definiteness implies and not the reverse.
    assert W.is_descent(g) == (beta * (m @ g) > -(g @ g))
    assert W.is_descent(g) or not W.is_positive_definite()


def test_the_two_conditions_that_the_paper_mixes_up_really_differ():
    pairs = [vectors(seed) for seed in range(2000)]
    matrices = [with_momentum(torch.ones(4).double(), 0.9 * m, g) for m, g in pairs]
    indefinite = sum(not W.is_positive_definite() for W in matrices)
    uphill = sum(not W.is_descent(g) for W, (_, g) in zip(matrices, pairs, strict=True))
    assert indefinite > 2 * uphill > 0


def test_momentum_orthogonal_to_the_gradient_has_no_covariance():
    with pytest.raises(ValueError, match="orthogonal"):
        with_momentum(torch.ones(2), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))


def test_an_unknown_optimizer_and_unknown_settings_are_named():
    w = nn.Parameter(torch.ones(1))
    w.grad = torch.ones(1)
    with pytest.raises(TypeError, match="Known optimizers: Adagrad, Adam, RMSprop, SGD"):
        of_optimizer(torch.optim.Adamax([w]))
    with pytest.raises(ValueError, match="weight_decay"):
        of_optimizer(torch.optim.SGD([w], lr=0.1, weight_decay=0.1))
    w.grad = None
    with pytest.raises(ValueError, match="backward"):
        of_optimizer(torch.optim.SGD([w], lr=0.1))


def test_operators_act_as_their_dense_matrices():
    W = DiagonalPlusRankOne(vectors(0)[0].exp(), -0.3, vectors(1)[0])
    x = vectors(2)[0]
    torch.testing.assert_close(W @ x, W.dense() @ x)
    torch.testing.assert_close(W.quadratic(x), x @ W.dense() @ x)

"""SLS and AdaSLS (Vaswani et al., 2019 and 2020)."""

import math

import pytest
import torch
from torch import nn

from probstep.baselines.vaswani2019sls import SLS
from probstep.baselines.vaswani2020adasls import AdaSLS

from .plain import START, dot, grad_of, loss_of, moved, parameters, torch_loss, values


def test_armijo_shrinks_the_grown_step_until_the_loss_falls_enough() -> None:
    params = parameters()
    optimizer = SLS(params, lr=1.0, steps_per_epoch=4)
    w, rate = list(START), 1.0
    for _ in range(3):
        loss, grad = loss_of(w), grad_of(w)
        rate *= 2 ** (1 / 4)
        while loss_of(moved(w, rate, grad)) > loss - 0.1 * rate * dot(grad, grad):
            rate *= 0.9
        w = moved(w, rate, grad)
        assert optimizer.step(lambda: torch_loss(params)).item() == pytest.approx(loss)
        assert values(params) == pytest.approx(w, rel=1e-10)
        assert optimizer.param_groups[0]["scale"] == pytest.approx(rate, rel=1e-10)


def test_goldstein_also_grows_a_step_that_is_too_small() -> None:
    params = parameters()
    optimizer = SLS(params, lr=0.01, search="goldstein", start="last")
    w, rate = list(START), 0.01
    for _ in range(3):
        loss, grad = loss_of(w), grad_of(w)
        while True:
            trial, slope = loss_of(moved(w, rate, grad)), dot(grad, grad)
            if trial > loss - 0.1 * rate * slope:
                rate *= 0.9
            elif trial < loss - 0.9 * rate * slope:
                rate *= 2.0
            else:
                break
        w = moved(w, rate, grad)
        optimizer.step(lambda: torch_loss(params))
        assert values(params) == pytest.approx(w, rel=1e-10)


def second_moments(metric: str, grads: list[list[float]]) -> list[float]:
    """The second moment of each number from all gradients so far, written as plain sums."""
    count = len(grads)
    squares = [[g[i] ** 2 for g in grads] for i in range(2)]
    if metric == "adagrad":
        return [sum(s) for s in squares]
    averages = [
        [sum(0.01 * 0.99 ** (t - i) * s[i] for i in range(t + 1)) for t in range(count)]
        for s in squares
    ]
    if metric == "rmsprop":
        return [a[-1] for a in averages]
    largest = [max(a) if metric == "amsgrad" else a[-1] for a in averages]
    return [a / (1 - 0.99**count) for a in largest]


@pytest.mark.parametrize(
    ("metric", "momentum"),
    [("adagrad", 0.0), ("rmsprop", 0.0), ("adam", 0.0), ("adam", 0.9), ("amsgrad", 0.9)],
)
def test_adasls_searches_in_its_metric_and_steps_with_its_momentum(
    metric: str, momentum: float
) -> None:
    params = parameters()
    optimizer = AdaSLS(params, metric=metric, momentum=momentum, steps_per_epoch=4)
    w, rate, grads = list(START), 1.0, []
    for step in (1, 2, 3):
        loss, grad = loss_of(w), grad_of(w)
        grads.append(grad)
        scale = [1 / (math.sqrt(s) + 1e-8) for s in second_moments(metric, grads)]
        along = [p * g for p, g in zip(scale, grad, strict=True)]
        rate *= 2 ** (1 / 4)
        while loss_of(moved(w, rate, along)) > loss - 0.1 * rate * dot(grad, along):
            rate *= 0.9
        if momentum:
            weights = [0.1 * 0.9 ** (step - 1 - i) for i in range(step)]
            mean = [dot(weights, [g[i] for g in grads]) / (1 - 0.9**step) for i in range(2)]
            along = [p * m for p, m in zip(scale, mean, strict=True)]
        w = moved(w, rate, along)
        optimizer.step(lambda: torch_loss(params))
        assert values(params) == pytest.approx(w, rel=1e-9)


def test_a_search_that_fails_takes_a_tiny_step() -> None:
    w = nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    trials = []

    def rising() -> torch.Tensor:
        trials.append(w.item())
        return w.sum() if len(trials) == 1 else w.sum() + 10.0

    optimizer = SLS([w])
    optimizer.step(rising)
    assert w.item() == pytest.approx(1.0 - 1e-6)
    assert len(trials) == 101


def test_groups_keep_the_ratio_of_their_rates() -> None:
    first, second = parameters()
    optimizer = SLS([{"params": [first], "lr": 1.0}, {"params": [second], "lr": 0.25}])
    optimizer.step(lambda: torch_loss([first, second]))
    moves = (1.0 - first.item()) / 1.0, (-0.5 - second.item()) / -2.0
    assert moves[0] / moves[1] == pytest.approx(4.0)


def test_all_trials_of_a_search_share_one_dropout_mask_and_steps_do_not() -> None:
    torch.manual_seed(0)
    w = nn.Parameter(torch.ones(64))
    masks = []

    def closure() -> torch.Tensor:
        kept = nn.functional.dropout(torch.ones(64), 0.5)
        masks.append(kept)
        return (kept * w).square().sum()

    optimizer = SLS([w])
    optimizer.step(closure)
    trials = len(masks)
    optimizer.step(closure)
    assert trials > 2
    assert all(torch.equal(mask, masks[0]) for mask in masks[:trials])
    assert not torch.equal(masks[trials], masks[0])


@pytest.mark.parametrize("kind", [SLS, AdaSLS])
def test_a_step_without_a_closure_says_what_to_do(kind: type) -> None:
    with pytest.raises(ValueError, match="does not run backward"):
        kind(parameters()).step()


def test_a_closure_that_returns_a_vector_is_refused() -> None:
    params = parameters()
    with pytest.raises(ValueError, match="Average over the batch"):
        SLS(params).step(lambda: torch.cat(list(params)))


@pytest.mark.parametrize("settings", [{}, {"search": "goldstein"}])
def test_a_rate_of_zero_moves_nothing(settings: dict) -> None:
    params = parameters()
    optimizer = SLS(params, **settings)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step(lambda: torch_loss(params))
    assert values(params) == list(START)

"""SPS (Loizou et al.), ALI-G (Berrada et al.) and the truncated model (Asi and Duchi)."""

import math
from collections.abc import Callable

import pytest
from torch.optim import Optimizer

from probstep.baselines.asi2019truncated import Truncated
from probstep.baselines.berrada2019alig import AliG
from probstep.baselines.loizou2020sps import SPS

from .plain import (
    START,
    Vector,
    after_backward,
    dot,
    grad_of,
    loss_of,
    moved,
    parameters,
    values,
)


def three_steps(make: Callable[[list], Optimizer]) -> list[Vector]:
    params = parameters()
    optimizer = make(params)
    points = []
    for _ in range(3):
        optimizer.step(loss=after_backward(params))
        points.append(values(params))
    return points


def assert_same(found: list[Vector], expected: list[Vector]) -> None:
    for point, point_expected in zip(found, expected, strict=True):
        assert point == pytest.approx(point_expected, rel=1e-12)


def test_sps_max_is_the_polyak_step_up_to_a_bound() -> None:
    w, expected = list(START), []
    for _ in range(3):
        grad = grad_of(w)
        rate = min(0.35, loss_of(w) / (0.5 * dot(grad, grad) + 1e-8))
        w = moved(w, rate, grad)
        expected.append(w)
    found = three_steps(lambda params: SPS(params, lr=0.35, smooth=False))
    assert_same(found, expected)


def test_the_bound_of_sps_follows_its_rate() -> None:
    w, rate, expected = list(START), 0.1, []
    for _ in range(3):
        grad = grad_of(w)
        rate = min(rate * 2 ** (1 / 4), loss_of(w) / (0.5 * dot(grad, grad) + 1e-8))
        w = moved(w, rate, grad)
        expected.append(w)
    found = three_steps(lambda params: SPS(params, lr=0.1, steps_per_epoch=4))
    assert_same(found, expected)


@pytest.mark.parametrize("adjusted", [False, True])
def test_alig_steps_then_follows_its_momentum(adjusted: bool) -> None:
    w, buffer, expected = list(START), [0.0, 0.0], []
    for _ in range(3):
        grad = grad_of(w)
        rate = min(0.15, loss_of(w) / (dot(grad, grad) + 1e-5))
        into, out_of = (1.0, rate) if adjusted else (rate, 1.0)
        buffer = [0.9 * b - into * g for b, g in zip(buffer, grad, strict=True)]
        w = moved(moved(w, rate, grad), -0.9 * out_of, buffer)
        expected.append(w)
    found = three_steps(
        lambda params: AliG(params, lr=0.15, momentum=0.9, adjusted_momentum=adjusted)
    )
    assert_same(found, expected)


def test_alig_projects_on_its_ball() -> None:
    (point, *_) = three_steps(lambda params: AliG(params, lr=1e-3, max_norm=0.25))
    assert math.hypot(*point) == pytest.approx(0.25)


def test_the_truncated_model_never_overshoots_its_bound() -> None:
    w, expected = list(START), []
    for step in (1, 2, 3):
        grad = grad_of(w)
        rate = min(0.3 * step**-0.6, (loss_of(w) - 0.1) / dot(grad, grad))
        w = moved(w, rate, grad)
        expected.append(w)
    found = three_steps(lambda params: Truncated(params, lr=0.3, lower_bound=0.1))
    assert_same(found, expected)


def test_the_three_agree_where_they_should() -> None:
    """Without decay, momentum, smoothing and eps they are one method."""
    truncated = three_steps(lambda params: Truncated(params, lr=0.4, power=0.0))
    alig = three_steps(lambda params: AliG(params, lr=0.4, eps=0.0))
    sps = three_steps(lambda params: SPS(params, lr=0.4, c=1.0, smooth=False, eps=0.0))
    assert truncated == alig == sps


def test_sps_takes_no_step_where_there_is_no_gradient_and_goes_on_later() -> None:
    params = parameters()
    optimizer = SPS(params, lr=0.1)
    for p in params:
        p.grad = p.detach() * 0
    optimizer.step(loss=0.0)
    assert values(params) == list(START)
    optimizer.step(loss=after_backward(params))
    assert values(params) != list(START)

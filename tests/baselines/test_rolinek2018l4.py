import math

import pytest

from probstep.baselines.rolinek2018l4 import L4

from .plain import START, after_backward, dot, grad_of, loss_of, moved, parameters, values


@pytest.mark.parametrize("direction", ["momentum", "adam"])
def test_l4_steps_a_fraction_of_the_way_to_the_reachable_loss(direction: str) -> None:
    params = parameters()
    optimizer = L4(params, direction=direction)
    w, m, v, lowest = list(START), [0.0, 0.0], [0.0, 0.0], None
    for step in (1, 2, 3):
        loss, grad = loss_of(w), grad_of(w)
        m = [0.9 * a + 0.1 * g for a, g in zip(m, grad, strict=True)]
        v = [0.999 * b + 0.001 * g * g for b, g in zip(v, grad, strict=True)]
        mean = [a / (1 - 0.9**step) for a in m]
        square = [b / (1 - 0.999**step) for b in v]
        adam = [a / (math.sqrt(b) + 1e-4) for a, b in zip(mean, square, strict=True)]
        way = adam if direction == "adam" else mean
        lowest = 0.75 * loss if lowest is None else min(lowest, loss)
        rate = 0.15 * (loss - 0.9 * lowest) / (dot(mean, way) + 1e-12)
        w = moved(w, rate, way)
        lowest *= 1.001
        optimizer.step(loss=after_backward(params))
        assert values(params) == pytest.approx(w, rel=1e-10)
        assert optimizer.param_groups[0]["rate"] == pytest.approx(rate, rel=1e-10)


def test_an_unknown_direction_is_refused() -> None:
    with pytest.raises(ValueError, match="momentum"):
        L4(parameters(), direction="newton")


def test_a_step_without_a_loss_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"step\(loss=loss\)"):
        L4(parameters()).step()

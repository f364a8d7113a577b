import math

import pytest

from probstep.baselines.baydin2018hypergradient import SGDHD, AdamHD

from .plain import START, after_backward, dot, grad_of, moved, parameters, values


@pytest.mark.parametrize(
    ("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)], ids=["sgd", "heavy", "nag"]
)
def test_sgd_moves_its_rate_along_the_last_direction_before_it_steps(
    momentum: float, nesterov: bool
) -> None:
    params = parameters()
    optimizer = SGDHD(params, lr=0.1, momentum=momentum, nesterov=nesterov, hypergrad_lr=0.02)
    w, rate, last, buffer = list(START), 0.1, [0.0, 0.0], [0.0, 0.0]
    for _ in range(3):
        grad = grad_of(w)
        rate += 0.02 * dot(grad, last)
        buffer = [momentum * b + g for b, g in zip(buffer, grad, strict=True)]
        nag = [g + momentum * b for g, b in zip(grad, buffer, strict=True)]
        last = nag if nesterov else buffer
        w = moved(w, rate, last)
        after_backward(params)
        optimizer.step()
        assert values(params) == pytest.approx(w, rel=1e-12)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate, rel=1e-12)


@pytest.mark.parametrize("per_tensor", [True, False])
def test_adam_adds_its_hypergradients_tensor_by_tensor_or_all_at_once(per_tensor: bool) -> None:
    params = parameters()
    optimizer = AdamHD(params, lr=0.1, hypergrad_lr=0.02, per_tensor=per_tensor)
    w, rate, m, v = list(START), 0.1, [0.0, 0.0], [0.0, 0.0]
    for step in (1, 2, 3):
        grad = grad_of(w)
        h = [0.0, 0.0]
        if step > 1:
            bias = math.sqrt(1 - 0.999 ** (step - 1)) / (1 - 0.9 ** (step - 1))
            h = [g * a / (math.sqrt(b) + 1e-8) * bias for g, a, b in zip(grad, m, v, strict=True)]
        rates = [rate + 0.02 * h[0], rate + 0.02 * (h[0] + h[1])]
        if not per_tensor:
            rates[0] = rates[1]
        rate = rates[1]
        m = [0.9 * a + 0.1 * g for a, g in zip(m, grad, strict=True)]
        v = [0.999 * b + 0.001 * g * g for b, g in zip(v, grad, strict=True)]
        bias = math.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        steps = [a / (math.sqrt(b) + 1e-8) * bias for a, b in zip(m, v, strict=True)]
        w = [x - r * s for x, r, s in zip(w, rates, steps, strict=True)]
        after_backward(params)
        optimizer.step()
        assert values(params) == pytest.approx(w, rel=1e-12)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(rate, rel=1e-12)


def test_each_group_follows_the_hypergradient_of_its_own_rate() -> None:
    first, second = parameters()
    optimizer = SGDHD([{"params": [first]}, {"params": [second]}], lr=0.1, hypergrad_lr=0.02)
    for _ in range(2):
        after_backward([first, second])
        optimizer.step()
    learned = [0.1 + 0.02 * 1.0 * 0.9, 0.1 + 0.02 * 2.0 * 1.2]
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx(learned)

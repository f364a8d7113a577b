import io
import math

import pytest
import torch
from torch import nn

from probstep.baselines.subramanian2023greedylr import GreedyLR
from probstep.bench.methods.rate_schedules import SCHEDULES, advance_schedule, start_schedule

TOTAL = 40
SHAPES = {  # the factor in step i, as a formula
    "linear": lambda i: 1 - i / 40,
    "linear_end": lambda i: min(1.0, (1 - i / 40) / 0.2),
    "cosine": lambda i: 0.5 * (1 + math.cos(math.pi * i / 40)),
    "warmup": lambda i: min((i + 1) / 3, 1.0),
    "warmup_cosine": lambda i: (
        (i + 1) / 3 if i < 2 else 0.5 * (1 + math.cos(math.pi * (i - 2) / 38))
    ),
}


def sgd(*rates: float) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(1))], "lr": r} for r in rates])


def rates(optimizer: torch.optim.Optimizer, losses: list[float]) -> list[float]:
    found = []
    for loss in losses:
        found.append(optimizer.param_groups[0]["lr"])
        advance_schedule(optimizer, torch.tensor(loss, dtype=torch.float64))
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_a_schedule_follows_its_formula(name: str) -> None:
    optimizer = sgd(0.2)
    start_schedule(optimizer, name, TOTAL)
    expected = [0.2 * SHAPES[name](i) for i in range(TOTAL)]
    assert rates(optimizer, [0.0] * TOTAL) == pytest.approx(expected)


def test_a_decay_ends_at_zero_and_stays_there() -> None:
    for name in ("linear", "linear_end", "cosine", "warmup_cosine"):
        optimizer = sgd(0.2)
        start_schedule(optimizer, name, TOTAL)
        rates(optimizer, [0.0] * TOTAL)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-15)


def test_groups_keep_the_ratio_of_their_rates() -> None:
    optimizer = sgd(0.2, 0.05)
    start_schedule(optimizer, "cosine", TOTAL)
    rates(optimizer, [0.0] * 7)
    first, second = (group["lr"] for group in optimizer.param_groups)
    assert first / second == pytest.approx(4.0)


def test_the_greedy_schedule_is_greedylr_on_the_loss_of_every_step() -> None:
    losses = [5.0 / (1 + i) for i in range(15)] + [9.0] * 15
    optimizer, rule, memory, rate = sgd(0.1), GreedyLR(), {"initial": 0.1}, 0.1
    start_schedule(optimizer, "greedy", TOTAL)
    expected = []
    for loss in losses:
        expected.append(rate)
        rate = rule.next_rate(memory, rate, loss)
    assert rates(optimizer, losses) == expected
    assert max(expected) > 0.1


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_optimizers_checkpoint_carries_the_schedule(name: str) -> None:
    losses = [1.0 / (1 + i) for i in range(30)]
    straight, stopped, resumed = sgd(0.1), sgd(0.1), sgd(0.3)
    start_schedule(straight, name, TOTAL)
    start_schedule(stopped, name, TOTAL)
    expected = rates(straight, losses)[15:]
    rates(stopped, losses[:15])
    file = io.BytesIO()
    torch.save(stopped.state_dict(), file)
    file.seek(0)
    start_schedule(resumed, name, TOTAL)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert rates(resumed, losses[15:]) == expected


def test_a_constant_rate_needs_no_memory() -> None:
    optimizer = sgd(0.1)
    start_schedule(optimizer, "constant", TOTAL)
    assert "schedule" not in optimizer.param_groups[0]


def test_an_unknown_schedule_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="constant, linear, linear_end, cosine"):
        start_schedule(sgd(0.1), "cosin", TOTAL)

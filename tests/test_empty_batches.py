"""A batch with neither a loss nor a gradient is not probed, as it could show nothing."""

import copy
import math

import pytest
import torch
from torch import nn

from probstep import ProbStep, RobustRule
from probstep.rules import WatchRule

FULL = 10  # one batch in so many has labels
BASES = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.03, momentum=0.9),
    "adamw": lambda params: torch.optim.AdamW(params, lr=1e-3, weight_decay=0.1),
}


class Task:
    """A regression of which most batches are empty; counts how often each kind is evaluated."""

    def __init__(self, steps: int) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 1))
        x = torch.randn(steps, 16, 5)
        self.data = [(x[t], x[t].sin().sum(1, keepdim=True), t % FULL == 3) for t in range(steps)]
        self.passes = {True: 0, False: 0}

    def loss(self, t: int) -> torch.Tensor:
        x, y, is_full = self.data[t]
        self.passes[is_full] += 1
        return float(is_full) * nn.functional.mse_loss(self.model(x), y)

    def end(self) -> float:
        full = [(x, y) for x, y, is_full in self.data if is_full]
        x, y = (torch.cat(part) for part in zip(*full, strict=True))
        with torch.no_grad():
            return nn.functional.mse_loss(self.model(x), y).item()


@pytest.mark.parametrize("base", BASES)
def test_only_batches_with_a_loss_are_probed_and_training_goes_on(base):
    task, plain = Task(600), Task(600)
    opt = ProbStep(BASES[base](task.model.parameters()))
    bare = BASES[base](plain.model.parameters())
    for t in range(600):
        opt.step(lambda t=t: task.loss(t))
        bare.zero_grad()
        plain.loss(t).backward()
        bare.step()
    empty, full = task.passes[False] - plain.passes[False], task.passes[True] - plain.passes[True]
    assert full > 20
    assert empty <= 3  # the proof that it is the same loss waits for the first full batch
    assert task.end() <= 1.2 * plain.end()


@pytest.mark.parametrize("base", BASES)
def test_before_a_rate_is_found_an_empty_batch_moves_nothing_at_any_initial_rate(base):
    task = Task(4)
    opt = ProbStep(BASES[base](task.model.parameters()))
    for group in opt.param_groups:
        group["lr"] = 1e6
    before = copy.deepcopy(task.model.state_dict())
    for t in range(3):
        opt.step(lambda t=t: task.loss(t))
    assert all(torch.equal(before[k], v) for k, v in task.model.state_dict().items())
    opt.step(lambda: task.loss(3))
    assert 0 < opt.scale < 1e-3
    assert math.isfinite(task.end())


def test_later_the_momentum_goes_on_over_an_empty_batch():
    task = Task(20)
    opt = ProbStep(BASES["momentum"](task.model.parameters()), rule=RobustRule())
    for t in range(4):
        opt.step(lambda t=t: task.loss(t))
    before = copy.deepcopy(task.model.state_dict())
    opt.step(lambda: task.loss(4))
    assert not any(torch.equal(before[k], v) for k, v in task.model.state_dict().items())


def test_an_empty_batch_proves_nothing_of_the_loss():
    w, calls = nn.Parameter(torch.ones(3)), []
    opt = ProbStep(torch.optim.SGD([w], lr=0.1))

    def another_batch_each_time():
        calls.append(1)
        return (w * torch.full((3,), float(len(calls)))).sum() ** 2

    opt.step(lambda: 0.0 * w.sum())
    with pytest.raises(RuntimeError, match="not the same loss"):
        opt.step(another_batch_each_time)


def test_a_loss_of_zero_with_a_gradient_is_probed():
    w = nn.Parameter(torch.tensor([1.0, -1.0]))
    opt = ProbStep(torch.optim.SGD([w], lr=1e9))
    for _ in range(20):
        opt.step(lambda: w.sum() + (w[0] + w[1]) ** 2)  # 0 at first, lowest at a sum of -0.5
    assert w.sum().item() == pytest.approx(-0.5, abs=0.1)


def test_watching_does_not_probe_them_either():
    model, passes = nn.Linear(4, 1), []
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=0.1), rule=WatchRule())

    def empty():
        passes.append(1)
        return 0.0 * model(torch.ones(2, 4)).sum()

    for _ in range(5):
        opt.step(empty)
    assert len(passes) <= 2 * 5  # the loss, and the proof

"""The base steps without torch's detour for hooks and profilers, unless one of them is there."""

import pytest
import torch
from torch import nn
from torch.optim import optimizer as torch_optimizer

from probstep import ProbStep, RobustRule
from probstep.step.hooks import take_step

UNPROBED = RobustRule(budget=(1.0, 0.0))


def started(base=torch.optim.SGD):
    """Return a parameter, its wrapped optimizer after some steps, and what takes another."""
    w = nn.Parameter(torch.ones(3))
    opt = ProbStep(base([w], lr=0.1), UNPROBED)
    step = lambda: opt.step(lambda: (w**2).sum())  # noqa: E731
    for _ in range(5):  # the search, and the probe of what it found
        step()
    return w, opt, step


@pytest.fixture
def detours(monkeypatch):
    """The labels that steps give to a profiler."""
    labels, record = [], torch.autograd.profiler.record_function

    def counted(name, *args):
        labels.append(name)
        return record(name, *args)

    monkeypatch.setattr(torch.autograd.profiler, "record_function", counted)
    return labels


def test_nobody_follows_an_ordinary_step(detours):
    _, _, step = started()
    detours.clear()
    step()
    assert detours == []


def test_a_step_without_the_detour_moves_as_one_with_it():
    moved = []
    for take in (take_step, lambda base: base.step()):
        w = nn.Parameter(torch.tensor([1.0, 2.0]))
        base = torch.optim.Adam([w], lr=0.1, weight_decay=0.1)
        for _ in range(3):
            w.grad = w.detach() ** 3
            take(base)
        moved.append(w.tolist())
    assert moved[0] == moved[1]


def test_a_profiler_sees_the_step_of_the_base():
    _, _, step = started()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    assert "Optimizer.step#SGD.step" in {event.key for event in profile.key_averages()}


@pytest.mark.parametrize(
    "register",
    [
        lambda opt, hook: opt.base.register_step_pre_hook(hook),
        lambda opt, hook: opt.base.register_step_post_hook(hook),
        lambda opt, hook: torch_optimizer.register_optimizer_step_pre_hook(hook),
        lambda opt, hook: torch_optimizer.register_optimizer_step_post_hook(hook),
    ],
    ids=["before", "after", "global, before", "global, after"],
)
def test_a_hook_fires_at_every_unprobed_step(register):
    _, opt, step = started()
    fired = []
    handle = register(opt, lambda *_: fired.append(1))
    step()
    step()
    handle.remove()
    step()
    assert fired == [1, 1]


def test_a_step_that_somebody_has_replaced_is_the_one_that_is_taken():
    w, opt, step = started()
    opt.base.step = lambda: w.data.fill_(7.0)
    step()
    assert w.tolist() == [7.0] * 3


def test_a_class_with_a_step_of_its_own_is_stepped_by_it():
    class Doubling(torch.optim.SGD):
        def step(self, closure=None):
            super().step()
            super().step()

    positions = []
    for kind, times in ((Doubling, 1), (torch.optim.SGD, 2)):
        w = nn.Parameter(torch.ones(1))
        w.grad = torch.ones(1)
        base = kind([w], lr=0.25)
        for _ in range(times):
            take_step(base)
        positions.append(w.item())
    assert positions == [0.5, 0.5]

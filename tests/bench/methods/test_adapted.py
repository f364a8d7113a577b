"""The adapted rows are ProbStep, and their settings reach what they name."""

from typing import Any

import pytest
import torch
from torch import nn

import probstep
from probstep.bench.methods import METHODS, evaluating, prepare, take_step

from ..toys import TOYS, toy_task


def make(name: str = "probstep_adam", **settings: Any) -> probstep.ProbStep:
    optimizer = METHODS[name].make([nn.Parameter(torch.zeros(1))], 0.1, settings)
    assert isinstance(optimizer, probstep.ProbStep)
    return optimizer


def test_an_adapted_row_takes_the_steps_of_probstep() -> None:
    method = METHODS["probstep_sgd"]
    task, twin = toy_task(TOYS["non-convex"]), toy_task(TOYS["non-convex"])
    optimizer = prepare(method, task, rate=0.01)
    base = torch.optim.SGD(twin.model.parameters(), lr=0.01)
    bare = probstep.ProbStep(base, probstep.PaperRule())
    for batch in task.batches():
        loss = take_step(method, optimizer, task, batch)
        expected = bare.step(lambda batch=batch: twin.loss(batch))
        assert torch.equal(loss, expected.detach())
    assert optimizer.scale == bare.scale != 1.0


def test_the_paper_halves_the_momentum_of_what_it_adapts() -> None:
    assert make().param_groups[0]["betas"] == (0.5, 0.999)
    assert METHODS["probstep_momentum"].defaults["momentum"] == 0.5


def test_settings_reach_the_rule_the_wrapper_and_the_optimizer_inside() -> None:
    optimizer = make(up=1.5, down=0.25, lower_bound=0.5, noise=0.1, every=3, eps=1e-5)
    assert optimizer.rule == probstep.PaperRule(up=1.5, down=0.25)
    assert optimizer.noise == 0.1
    assert optimizer.probe == probstep.Every(3)
    assert optimizer.param_groups[0]["eps"] == 1e-5


def test_estimators_are_named() -> None:
    assert make(lower_bound="interpolation").lower_bound == probstep.Interpolation()
    assert make(lower_bound="running_minimum").lower_bound == probstep.RunningMinimum()
    assert make("probstep_adam_noise").noise == probstep.SampleNoise()
    assert make(noise_share=0.05).noise(torch.tensor(2.0)).item() == pytest.approx(0.1)
    with pytest.raises(ValueError, match="running_minimum"):
        make(lower_bound="zero")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "two noises": ({"noise": 0.1, "noise_share": 0.1}, "give one of them"),
    "two schedules": ({"every": 3, "doubling_epochs": True}, "give one of them"),
    "samples without samples": ({"noise": "samples"}, "ends in `_noise`"),
    "a negative share": ({"noise_share": -0.1}, "at least 0"),
    "a number for samples": ({"name": "probstep_adam_noise", "noise": 0.1}, "without `_noise`"),
    "a share for samples": (
        {"name": "probstep_adam_noise", "noise_share": 0.1},
        "without `_noise`",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_contradict_each_other_are_refused(case: str) -> None:
    settings, complaint = REFUSED[case]
    with pytest.raises(ValueError, match=complaint):
        make(**settings)


IMPOSSIBLE = [
    ("sls", {"shrink": 1.0}),
    ("sls", {"shrink": 0.0}),
    ("sls_goldstein", {"grow": 1.0}),
    ("adasls", {"shrink": 1.5}),
    ("l4_momentum", {"grad_time": 1.0}),
    ("l4_adam", {"square_time": 0.5}),
    ("sgd_hd", {"hypergrad_lr": -1e-6}),
    ("adam_hd", {"hypergrad_lr": -1e-6}),
]


@pytest.mark.parametrize(("name", "settings"), IMPOSSIBLE)
def test_a_setting_with_which_a_rival_cannot_work_is_refused(name: str, settings: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        METHODS[name].make([nn.Parameter(torch.zeros(1))], settings=settings)


def test_doubling_epochs_are_counted_in_the_steps_of_the_task() -> None:
    task = toy_task(TOYS["convex"])
    optimizer = prepare(METHODS["probstep_sgd"], task, settings={"doubling_epochs": True})
    assert optimizer.probe == probstep.DoublingEpochs(task.steps_per_epoch)
    with pytest.raises(ValueError, match="prepare"):
        make(doubling_epochs=True)


def test_samples_carry_the_l2_term() -> None:
    method, task = METHODS["probstep_sgd_noise"], toy_task(TOYS["convex"])
    batch = next(task.batches())
    expected = task.loss(batch).item()
    loss = take_step(method, prepare(method, task, rate=0.1), task, batch)
    assert loss.item() == pytest.approx(expected)


@pytest.mark.parametrize("name", ["sgd_averaged", "robust_sgd_averaged"])
def test_an_average_is_evaluated_in_place_of_the_last_weights(name: str) -> None:
    method, task = METHODS[name], toy_task(TOYS["non-convex"])
    optimizer = prepare(method, task)
    for batch in task.batches():
        take_step(method, optimizer, task, batch)
    last = [p.detach().clone() for p in task.model.parameters()]
    with evaluating(method, optimizer, task.model):
        lent = [p.detach().clone() for p in task.model.parameters()]
    assert not any(torch.equal(a, b) for a, b in zip(last, lent, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(last, task.model.parameters(), strict=True))

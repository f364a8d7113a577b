"""Any scheduler composes: a scale is found for the rate without its schedule, however that begins."""

import copy

import pytest
import torch
from torch.optim import lr_scheduler

from probstep import PaperRule, ProbStep, RobustRule
from probstep.step.base import RISE, keep_up, setting_of

from .cases import batches, plain_network, step_with_closure

STEPS, END = 90, 15
BASES = {
    "adam": lambda params, lr: torch.optim.Adam(params, lr=lr),
    "sgd": lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.9),
}
RISING = {
    "linear from 1e-8": lambda opt: lr_scheduler.LinearLR(opt, 1e-8, 1.0, 15),
    "linear from 1e-3": lambda opt: lr_scheduler.LinearLR(opt, 1e-3, 1.0, 15),
    "lambda from 0": lambda opt: lr_scheduler.LambdaLR(opt, lambda k: min(1.0, k / 15)),
    "one cycle": lambda opt: lr_scheduler.OneCycleLR(opt, 1e-3, STEPS, div_factor=1e6),
    "cyclic": lambda opt: lr_scheduler.CyclicLR(
        opt, 1e-7, 1e-3, step_size_up=20, cycle_momentum=False
    ),
    "sequential": lambda opt: lr_scheduler.SequentialLR(
        opt,
        [lr_scheduler.LinearLR(opt, 1e-8, 1.0, 15), lr_scheduler.CosineAnnealingLR(opt, STEPS)],
        [15],
    ),
}
OTHERS = {
    "warm restarts": lambda opt: lr_scheduler.CosineAnnealingWarmRestarts(opt, 25),
    "plateau": lambda opt: lr_scheduler.ReduceLROnPlateau(opt, factor=0.1, patience=30),
}


class ByHand:
    """A user who writes the rates: eight decades in forty steps, then 1e-3 for good."""

    def __init__(self, opt):
        self.opt, self.step_number = opt, 0
        self.write()

    def write(self):
        self.opt.param_groups[0]["lr"] = min(1e-3, 1e-8 * 10 ** (self.step_number / 8))

    def step(self):
        self.step_number += 1
        self.write()


def start(base, lr=1e-3, rule=None):
    torch.manual_seed(0)
    model = plain_network()
    return model, ProbStep(BASES[base](model.parameters(), lr), rule)


def train(base, schedule, lr=1e-3):
    """Return the losses, and how often the rate was searched for."""
    model, opt = start(base, lr)
    scheduler = schedule(opt) if schedule else None
    losses = []
    for batch in batches(STEPS):
        losses.append(step_with_closure(opt, model, batch).item())
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            scheduler.step(losses[-1])
        elif scheduler:
            scheduler.step()
    return losses, opt.metrics()["probes/search"]


def mean_at_the_end(losses):
    return sum(losses[-END:]) / END


@pytest.fixture(scope="module")
def unscheduled():
    return {base: train(base, None)[0] for base in BASES}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", [*RISING, *OTHERS, "by hand"])
def test_a_schedule_ends_about_where_the_run_without_it_does(unscheduled, base, name):
    schedules = {**RISING, **OTHERS, "by hand": ByHand}
    losses, searches = train(base, schedules[name])
    assert searches == 1
    assert max(losses) < 2 * max(unscheduled[base])
    most = 2.5 if name == "by hand" else 2.0  # which loses forty of its steps
    assert mean_at_the_end(losses) < most * mean_at_the_end(unscheduled[base])


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    ("schedule", "first", "decades"),
    [(ByHand, 1e-8, 5), (RISING["cyclic"], 1e-7, 4)],
    ids=["by hand", "cyclic"],
)
def test_a_rise_that_nobody_could_foresee_is_searched_anew(
    unscheduled, base, schedule, first, decades
):
    losses, searches = train(base, schedule, lr=first)
    assert 1 < searches <= decades
    # Before it is noticed a rise may be tenfold; a probe then takes the rate back.
    assert max(losses) < 10 * max(unscheduled[base])
    if (
        base == "adam"
    ):  # with momentum the last search, on one batch of twelve, finds too high a rate
        assert mean_at_the_end(losses) < 2.5 * mean_at_the_end(unscheduled[base])


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("factor", [0.3, 1e-3, 1e-8])
def test_the_search_finds_the_same_scale_under_any_first_factor_and_steps_by_that_factor(
    base, factor
):
    moved, scales = [], []
    for first in (1.0, factor):
        model, opt = start(base)
        before = copy.deepcopy(list(model.parameters()))
        lr_scheduler.LinearLR(opt, first, 1.0, 10)
        step_with_closure(opt, model, batches(1)[0])
        moved.append([(b - p).double() for b, p in zip(before, model.parameters(), strict=True)])
        scales.append(opt.scale)
    assert scales[1] == pytest.approx(scales[0], rel=1e-6)
    for whole, part in zip(*moved, strict=True):
        torch.testing.assert_close(part, factor * whole, atol=1e-7, rtol=1e-3)


def test_a_warm_up_from_zero_waits_for_the_first_rate_that_moves():
    model, opt = start("adam")
    scheduler = RISING["lambda from 0"](opt)
    first, second = batches(2)
    step_with_closure(opt, model, first)
    assert opt.scale == 1.0
    scheduler.step()
    step_with_closure(opt, model, second)
    assert opt.metrics()["probes/search"] == 1
    assert opt.effective_lr == [opt.scale * 1e-3 / 15]


def test_the_first_rates_come_back_with_a_checkpoint():
    model, opt = start("adam")
    opt.param_groups[0]["lr"] = 1e-5
    step_with_closure(opt, model, batches(1)[0])
    model, again = start("adam", lr=1e-5)
    again.load_state_dict(opt.state_dict())
    again.param_groups[0]["lr"] = 9e-4
    step_with_closure(again, model, batches(1)[0])
    assert again.metrics()["probes/search"] == 1
    again.param_groups[0]["lr"] = 1.1e-2
    step_with_closure(again, model, batches(1)[0])
    assert again.metrics()["probes/search"] == 2


def test_a_rule_without_a_search_keeps_its_scale_when_a_rate_rises():
    model, opt = start("adam", rule=PaperRule(up=1, down=1))
    for rate in (1e-6, 1e-2):
        opt.param_groups[0]["lr"] = rate
        step_with_closure(opt, model, batches(1)[0])
        assert opt.effective_lr == [rate]


def test_a_new_search_forgets_rates_and_remembers_losses():
    rule = RobustRule()
    model, opt = start("adam", rule=rule)
    for batch in batches(30):
        step_with_closure(opt, model, batch)
    state = rule.restore(opt.state_dict()["param_groups"][0]["probstep"]["rule"])
    losses, t = copy.copy(state.alarm), state.t
    rule.search_again(state)
    assert rule.is_searching(state)
    assert (state.t, state.alarm.mean, state.alarm.spread) == (t, losses.mean, losses.spread)
    assert state.belief == rule.init().belief


@pytest.mark.parametrize(
    ("group", "first", "multiplier"),
    [
        ({"lr": 0.5}, 1.0, 0.5),
        ({"lr": 0.5}, 0.5, 1.0),
        ({"lr": 0.5, "initial_lr": 2.0}, 0.5, 0.25),
        ({"lr": 0.5, "initial_lr": 0.1}, 1.0, 0.5),  # CyclicLR, which does not say its peak
        ({"lr": 0.1, "initial_lr": 0.1, "max_lr": 0.4}, 1.0, 0.25),  # OneCycleLR, which does
    ],
)
def test_the_multiplier_is_the_rate_over_the_largest_that_is_known(group, first, multiplier):
    assert setting_of([group], [first]).multiplier == multiplier


def test_only_a_rise_beyond_what_is_known_counts():
    rates = [1.0, 0.0]
    groups = [{"lr": RISE, "initial_lr": 1.0}, {"lr": 5.0}]
    assert not keep_up(groups, rates, is_searching=False)
    assert rates == [1.0, 5.0]  # what was frozen has its first rate now
    assert not keep_up(groups, rates, is_searching=True)
    assert rates == [RISE, 5.0]
    groups[1]["lr"] = 51.0
    assert keep_up(groups, rates, is_searching=False)
    assert rates == [RISE, 51.0]

"""One contract over all methods: whatever a published method cannot do, its row says."""

import copy
import functools
import io
import math
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from probstep.bench.methods import (
    LIMITS,
    METHODS,
    RATES,
    SCHEDULES,
    Method,
    effective_rate,
    evaluating,
    get_method,
    peers,
    prepare,
    take_step,
)
from probstep.bench.methods.table import ADAPTED_WITH_NOISE, AVERAGED, SCHEDULED

from ..toys import TOYS, ToyTask, noisy_net, toy_task

STEPS = 96
# but for one setting
ALIKE = {row.name for row in (*SCHEDULED, *AVERAGED, *ADAPTED_WITH_NOISE[1:])}
DISTINCT = [name for name in METHODS if name not in ALIKE]
BRISK: dict[str, float] = {  # rates from which a slow or unstable method moves well
    "l4_momentum": 0.05,
    "probls": 1.0,
    "probstep_sgd_noise": 0.1,
}
BRISK_SETTINGS = {
    "prodigy_plus": {"d0": 1e-3},
    "sasa": {"warmup": 0, "min_samples": 9, "test_every": 2, "leak": 1},
}
MODULES = {  # what is imported of a package
    "dadaptation": "dadaptation",
    "dog-optimizer": "dog",
    "mechanic-pytorch": "mechanic_pytorch",
    "momo-opt": "momo",
    "parameterfree": "parameterfree",
    "prodigy-plus-schedule-free": "prodigyplus",
    "prodigyopt": "prodigyopt",
    "schedulefree": "schedulefree",
}


def usable(name: str) -> Method:
    row = METHODS[name]
    if row.package is not None:
        reason = f'{row.package} is not installed: pip install "probstep[peers]"'
        pytest.importorskip(MODULES[row.package], reason=reason)
    return row


@pytest.fixture(params=DISTINCT)
def method(request: pytest.FixtureRequest) -> Method:
    return usable(request.param)


def train(
    method: Method, task: ToyTask, optimizer: torch.optim.Optimizer, steps: int
) -> list[float]:
    losses: list[float] = []
    while len(losses) < steps:
        losses += [take_step(method, optimizer, task, batch).item() for batch in task.batches()]
    return losses


def relative_decrease(method: Method, toy: str, rate: float | None, **settings: object) -> float:
    task = toy_task(TOYS[toy])
    optimizer = prepare(method, task, rate, settings, epochs=STEPS // task.steps_per_epoch)
    before = task.total_loss()
    train(method, task, optimizer, STEPS)
    with evaluating(method, optimizer, task.model):
        return 1 - task.total_loss() / before


@pytest.mark.parametrize("toy", TOYS)
def test_a_method_lowers_the_loss(method: Method, toy: str) -> None:
    settings = BRISK_SETTINGS.get(method.name, {})
    assert relative_decrease(method, toy, BRISK.get(method.name), **settings) > 0.01


@pytest.mark.parametrize("name", [n for n in METHODS if "slow_start" in METHODS[n].limits])
def test_a_method_said_to_start_slowly_does(name: str) -> None:
    assert min(relative_decrease(usable(name), toy, None) for toy in TOYS) < 0.01


@pytest.mark.parametrize("name", [n for n in METHODS if "unstable" in METHODS[n].limits])
def test_a_method_said_to_be_unstable_is(name: str) -> None:
    task = toy_task(TOYS["convex"])
    before = task.total_loss()
    losses = train(usable(name), task, prepare(METHODS[name], task), STEPS)
    assert max(losses[STEPS // 2 :]) > 2 * before


def test_the_literal_rule_with_the_noise_of_samples_stalls_from_a_small_rate() -> None:
    """The noise shortens the step, and the rule, which expects the full one, halves the rate."""
    with pytest.warns(RuntimeWarning, match="start from a larger rate"):
        assert relative_decrease(METHODS["probstep_sgd_noise"], "convex", 1e-3) < 1e-3
    assert relative_decrease(METHODS["probstep_sgd_noise"], "convex", 1e-1) > 0.5


@functools.cache
def losses_of_the_second_epoch(name: str, interrupt: Callable[..., tuple]) -> list[float]:
    method, task = METHODS[name], toy_task(noisy_net)
    optimizer = prepare(method, task, epochs=2)
    train(method, task, optimizer, 6)
    task, optimizer = interrupt(method, task, optimizer)
    return train(method, task, optimizer, 6)


def go_on(method: Method, task: ToyTask, optimizer: torch.optim.Optimizer) -> tuple:
    return task, optimizer


def save_and_load(method: Method, task: ToyTask, optimizer: torch.optim.Optimizer) -> tuple:
    file = io.BytesIO()
    saved = (task.model.state_dict(), optimizer.state_dict(), torch.get_rng_state())
    torch.save(saved, file)
    file.seek(0)
    model, memory, random = torch.load(file, weights_only=True)
    task = toy_task(noisy_net, seed=1)
    optimizer = prepare(method, task, epochs=2)
    task.model.load_state_dict(model)
    optimizer.load_state_dict(memory)
    torch.set_rng_state(random)
    return task, optimizer


def deep_copy(method: Method, task: ToyTask, optimizer: torch.optim.Optimizer) -> tuple:
    return copy.deepcopy((task, optimizer))


def evaluate(method: Method, task: ToyTask, optimizer: torch.optim.Optimizer) -> tuple:
    with evaluating(method, optimizer, task.model):
        task.total_loss()
    return task, optimizer


def continues(method: Method, interrupt: Callable[..., tuple]) -> bool:
    expected = losses_of_the_second_epoch(method.name, go_on)
    try:
        return losses_of_the_second_epoch(method.name, interrupt) == expected
    except (AttributeError, KeyError):
        return False


def test_a_resumed_run_equals_an_uninterrupted_one(method: Method) -> None:
    assert continues(method, save_and_load) == ("resume" not in method.limits)


def test_a_deep_copy_continues_alike(method: Method) -> None:
    assert continues(method, deep_copy) == ("deepcopy" not in method.limits)


def test_evaluating_in_between_changes_nothing(method: Method) -> None:
    expected = losses_of_the_second_epoch(method.name, go_on)
    # schedule-free methods move between their two sets of weights by arithmetic, which rounds
    found = losses_of_the_second_epoch(method.name, evaluate)
    assert found == pytest.approx(expected, rel=1e-4 if method.package else 0)


def test_several_groups_are_trained(method: Method) -> None:
    task = toy_task(noisy_net)
    params = list(task.model.parameters())
    before = [p.detach().clone() for p in params]
    try:
        optimizer = method.make([{"params": params[:2]}, {"params": params[2:]}])
        train(method, task, optimizer, 18)
    except UserWarning:
        assert "groups" in method.limits
        return
    assert "groups" not in method.limits
    assert all(not torch.equal(p, start) for p, start in zip(params, before, strict=True))


def test_a_parameter_without_gradient_stays(method: Method) -> None:
    task = toy_task(noisy_net)
    unused, frozen = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3), requires_grad=False)
    optimizer = method.make([*task.model.parameters(), unused, frozen])
    try:
        train(method, task, optimizer, 6)
    except (AttributeError, TypeError):
        assert "grad_none" in method.limits
        return
    assert "grad_none" not in method.limits
    assert torch.equal(unused, torch.ones(3))
    assert torch.equal(frozen, torch.ones(3))


def test_double_precision_is_kept(method: Method) -> None:
    task = toy_task(noisy_net, dtype=torch.float64)
    loss = take_step(method, prepare(method, task), task, next(task.batches()))
    assert loss.dtype == torch.float64
    assert not loss.requires_grad
    assert all(p.dtype == torch.float64 for p in task.model.parameters())


def test_a_schedule_composes_with_every_method_that_has_a_rate(method: Method) -> None:
    task = toy_task(noisy_net)
    settings = {"schedule": "linear"}
    if method.rate is None or "schedule" in method.limits:
        with pytest.raises(ValueError, match="takes no schedule"):
            prepare(method, task, settings=settings)
        return
    optimizer = prepare(method, task, settings=settings, epochs=2)
    seen = []
    for batch in [*task.batches(), *task.batches()]:
        seen.append(optimizer.param_groups[0]["lr"])
        take_step(method, optimizer, task, batch)
    expected = [method.default_rate * (1 - i / 12) for i in range(12)]
    assert seen == pytest.approx(expected)


def test_schedulers_of_torch_take_every_method_that_has_a_rate(method: Method) -> None:
    if method.rate is None:
        return
    task = toy_task(noisy_net)
    optimizer = method.make(task.model)
    scheduler = LambdaLR(optimizer, lambda step: 0.5**step)
    for batch in task.batches():
        take_step(method, optimizer, task, batch)
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(method.default_rate * 0.5**6)


def test_the_effective_rate_is_a_number_once_a_step_was_taken(method: Method) -> None:
    task = toy_task(noisy_net)
    optimizer = prepare(method, task)
    effective_rate(method, optimizer)
    train(method, task, optimizer, 6)
    rate = effective_rate(method, optimizer)
    assert rate > 0 or math.isnan(rate)


ADAPTIVE = [name for name in DISTINCT if METHODS[name].rate in ("start", "factor", "cap")]
LOOSE = 100.0  # a cap that no step reaches
TELLING_NOTHING = {"adadelta", "momo", "momo_adam"}


@pytest.mark.parametrize("name", ADAPTIVE)
def test_the_effective_rate_of_an_adaptive_method_changes(name: str) -> None:
    method, task = usable(name), toy_task(TOYS["non-convex"])
    rate = LOOSE if method.rate == "cap" else {**BRISK, "greedylr": 0.1}.get(name)
    optimizer = prepare(method, task, rate, BRISK_SETTINGS.get(name))
    seen = set()
    for batch in [*task.batches()] * (STEPS // task.steps_per_epoch):
        take_step(method, optimizer, task, batch)
        seen.add(effective_rate(method, optimizer))
    if name in TELLING_NOTHING:
        assert all(math.isnan(found) for found in seen)
    else:
        assert len(seen) > 2


@pytest.mark.parametrize("name", ["sgd", "sgd_hd", "sps", "sps_max", "alig", "truncated", "sls"])
def test_the_effective_rate_is_that_of_the_step_just_taken(name: str) -> None:
    method, task = METHODS[name], toy_task(TOYS["convex"])
    optimizer = prepare(method, task)
    for batch in task.batches():
        before = nn.utils.parameters_to_vector(task.model.parameters()).detach()
        task.model.zero_grad()
        task.loss(batch).backward()
        gradient = nn.utils.parameters_to_vector([p.grad for p in task.model.parameters()])
        take_step(method, optimizer, task, batch)
        after = nn.utils.parameters_to_vector(task.model.parameters()).detach()
        step = effective_rate(method, optimizer) * gradient
        torch.testing.assert_close(before - after, step, rtol=1e-3, atol=1e-6)


def test_the_effective_rate_of_rprop_is_the_mean_of_its_step_sizes() -> None:
    method, task = METHODS["rprop"], toy_task(TOYS["convex"])
    optimizer = prepare(method, task)
    batch = next(task.batches())
    for _ in range(2):  # the same sign twice: every weight steps, by its own size
        before = nn.utils.parameters_to_vector(task.model.parameters()).detach()
        take_step(method, optimizer, task, batch)
    after = nn.utils.parameters_to_vector(task.model.parameters()).detach()
    mean = (after - before).abs().mean().item()
    assert effective_rate(method, optimizer) == pytest.approx(mean, rel=1e-4)


def test_a_step_evaluates_the_batch_without_a_trace(method: Method) -> None:
    """Running statistics and random streams end where one forward pass leaves them."""
    task = toy_task(noisy_net)
    batch = next(task.batches())
    optimizer = prepare(method, task)
    twin = copy.deepcopy(task)
    torch.manual_seed(5)
    take_step(method, optimizer, task, batch)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    twin.loss(batch)
    assert torch.equal(after, torch.get_rng_state())
    for own, other in zip(task.model.buffers(), twin.model.buffers(), strict=True):
        assert torch.equal(own, other)


SHIPPED = dict(METHODS)  # at collection: other tests add rows of their own


def test_every_row_is_complete() -> None:
    for name, row in SHIPPED.items():
        assert row.name == name
        assert row.source
        assert row.rate is None or row.rate in RATES
        assert (row.rate is None) == (row.default_rate is None)
        assert row.limits <= LIMITS.keys()
        assert row.schedule == "constant" or row.schedule in SCHEDULES


def test_the_documentation_names_every_method() -> None:
    page = (Path(__file__).parents[3] / "docs" / "methods.md").read_text(encoding="utf-8")
    assert [name for name in DISTINCT if f"`{name.removesuffix('_noise')}`" not in page] == []
    assert [name for name in SCHEDULES if f"`{name}`" not in page] == []
    assert [name for name in LIMITS if f"`{name}`" not in page] == []


def test_fixed_rates_come_with_every_schedule() -> None:
    bases = ("sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw", "nadam")
    for base in bases:
        assert METHODS[base].schedule == "constant"
        for schedule in ("linear", "cosine", "warmup", "warmup_cosine"):
            assert METHODS[f"{base}_{schedule}"].schedule == schedule


@pytest.mark.parametrize("row", SCHEDULED, ids=lambda row: row.name)
def test_a_scheduled_row_trains(row: Method) -> None:
    task = toy_task(TOYS["non-convex"])
    optimizer = prepare(row, task, rate=1e-2, epochs=4)
    before = task.total_loss()
    train(row, task, optimizer, 24)
    assert task.total_loss() < before


def test_a_rate_for_a_method_that_has_none_is_refused() -> None:
    with pytest.raises(ValueError, match="has no rate"):
        METHODS["vsgd"].make([nn.Parameter(torch.zeros(1))], rate=0.1)


def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prodigyopt", None)
    with pytest.raises(ImportError, match=r'prodigyopt.*pip install "probstep\[peers\]"'):
        METHODS["prodigy"].make([nn.Parameter(torch.zeros(1))])


def test_an_unknown_method_is_refused_with_its_nearest_names() -> None:
    with pytest.raises(ValueError, match="probstep_adam"):
        get_method("probstep-adam")


@pytest.mark.parametrize("name", ["dog", "ldog"])
def test_a_method_that_asserts_its_numbers_has_diverged_when_they_are_none(name: str) -> None:
    method, task = usable(name), toy_task(TOYS["non-convex"])
    losses = train(method, task, prepare(method, task, rate=1e30), 12)
    assert math.isnan(losses[-1])


def test_any_other_assertion_of_a_method_is_an_error() -> None:
    class Asserting(torch.optim.SGD):
        def step(self, _: object = None) -> None:
            raise AssertionError("a mistake")

    task = toy_task(TOYS["convex"])
    row = Method("asserting", Asserting, "fixed", default_rate=0.1)
    with pytest.raises(AssertionError, match="a mistake"):
        take_step(row, prepare(row, task), task, next(task.batches()))


def test_a_method_that_fails_does_not_leave_autograd_off() -> None:
    class Failing(torch.optim.SGD):
        def step(self, _: object = None) -> None:
            torch.set_grad_enabled(False)
            raise RuntimeError

    task = toy_task(TOYS["convex"])
    row = Method("failing", Failing, "fixed", default_rate=0.1)
    with pytest.raises(RuntimeError):
        take_step(row, prepare(row, task), task, next(task.batches()))
    assert torch.is_grad_enabled()


def test_no_peer_is_imported_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in {*MODULES.values(), "transformers"}:
        monkeypatch.setitem(sys.modules, module, None)
    assert runpy.run_path(peers.__file__)["PEERS"]

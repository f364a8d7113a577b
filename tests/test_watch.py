"""An optimizer that is watched trains bit for bit as without it, and the gauge says what its rate is."""

import contextlib
import itertools
import math
import warnings

import pytest
import torch
from torch import nn

import probstep
from probstep.rules import Reading
from probstep.rules.gauge import LENGTH, History

from .cases import FORMS, OPTIMIZERS, batches, loss_of, network, train_bare
from .test_no_trace import everything, same

ALLOWED = 4 / 3  # times slope over curvature: the default target


def watched(name, net, **settings):
    case = OPTIMIZERS[name]
    with warnings.catch_warnings() if case.warns else contextlib.nullcontext():
        if case.warns:
            warnings.simplefilter("ignore")
        return probstep.watch(case.make(net.parameters()), **settings)


def trained_bare(name, data, *, lr=None, schedule=None):
    """What the bare optimizer leaves behind, and its losses."""
    torch.manual_seed(3)
    model = network()
    bare = OPTIMIZERS[name].make(model.parameters())
    if lr is not None:
        bare.param_groups[0]["lr"] = lr
    scheduler = None if schedule is None else schedule(bare)
    losses = []
    for batch in data:
        losses += train_bare(model, bare, [batch])
        if scheduler is not None:
            scheduler.step()
    return everything(model, bare), losses


def trained_watched(
    name, data, *, lr=None, schedule=None, form="closure", with_model=False, **settings
):
    """The same of an optimizer that is watched, and the optimizer."""
    torch.manual_seed(3)
    model = network()
    opt = watched(name, model, model=model if with_model else None, **settings)
    if lr is not None:
        opt.param_groups[0]["lr"] = lr
    scheduler = None if schedule is None else schedule(opt)
    losses = []
    for batch in data:
        losses.append(FORMS[form](opt, model, batch))
        if scheduler is not None:
            scheduler.step()
    return everything(model, opt), losses, opt


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_bit_for_bit_the_bare_optimizers(name):
    data = batches(8)
    expected, losses = trained_bare(name, data)
    seen, watched_losses, opt = trained_watched(name, data)
    assert watched_losses == losses
    same(seen, expected)
    assert opt.metrics()["probes/unpaired"] == 0
    assert opt.gauge.probes > 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("with_model", [False, True])
def test_so_it_is_however_the_loss_arrives(form, with_model):
    data = batches(6)
    expected, losses = trained_bare("adam", data)
    seen, watched_losses, opt = trained_watched("adam", data, form=form, with_model=with_model)
    assert watched_losses == losses
    same(seen, expected)
    assert opt.metrics()["probes/unpaired"] == 0
    assert opt.gauge.probes > 0


@pytest.mark.parametrize("name", ["sgd", "sgd-momentum", "adam"])
@pytest.mark.parametrize(
    "schedule",
    [
        lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=60),
        lambda opt: torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.3, total_steps=61),
    ],
    ids=["cosine", "one cycle"],
)
def test_so_it_is_beside_a_scheduler_beyond_the_first_probes(name, schedule):
    data = batches(60)
    expected, losses = trained_bare(name, data, schedule=schedule)
    seen, watched_losses, _ = trained_watched(name, data, schedule=schedule)
    assert watched_losses == losses
    same(seen, expected)


@pytest.mark.parametrize("lr", [1e-8, 1e4])
def test_so_it_is_at_rates_that_do_nothing_and_at_rates_that_ruin(lr):
    data = batches(12)
    expected, losses = trained_bare("sgd-momentum", data, lr=lr)
    seen, watched_losses, _ = trained_watched("sgd-momentum", data, lr=lr)
    same(torch.stack(watched_losses), torch.stack(losses))
    same(seen, expected)


@pytest.mark.parametrize("place", [0, 5])
def test_a_batch_that_is_not_finite_ruins_the_training_as_without_it(place):
    data = batches(8)
    data[place][0][0, 0] = math.inf
    expected, losses = trained_bare("adam", data)
    seen, watched_losses, opt = trained_watched("adam", data)
    same(torch.stack(watched_losses), torch.stack(losses))
    same(seen, expected)
    assert opt.metrics()["probes/skipped"] == 0


@pytest.mark.parametrize("form", ["closure", "loss and reevaluate"])
def test_another_loss_ends_the_watching_with_a_warning_and_training_goes_on(form):
    w, bare_w = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    opt = probstep.watch(torch.optim.SGD([w], lr=0.1))
    bare = torch.optim.SGD([bare_w], lr=0.1)
    calls = 0

    def changing():
        nonlocal calls
        calls += 1
        return w.square().sum() + calls

    with pytest.warns(RuntimeWarning, match="Watching has ended"):
        if form == "closure":
            opt.step(changing)
        else:
            loss = changing()
            loss.backward()
            opt.step(loss=loss, reevaluate=changing)
    bare_w.square().sum().backward()
    bare.step()
    same(w, bare_w)
    made = calls
    opt.step(changing)
    assert calls == made + 1
    assert str(opt.gauge).startswith("Nothing is known")


def quadratic(lr, *, steps=12, curvature=2.0, dtype=torch.float64):
    w = nn.Parameter(torch.ones(3, dtype=dtype))
    opt = probstep.watch(torch.optim.SGD([w], lr=lr))
    for _ in range(steps):
        opt.step(lambda: curvature / 2 * w.square().sum())
    return opt


@pytest.mark.parametrize("lr", [1e-9, 1e-6, 1e-3, 0.1, 0.6, 0.9, 2.0, 10.0])
def test_on_a_quadratic_the_factor_is_the_rate_over_what_its_curvature_allows(lr):
    gauge = quadratic(lr).gauge
    assert gauge.factor == pytest.approx(lr * 2.0 / ALLOWED, rel=1e-3)
    assert gauge.allowed == pytest.approx(ALLOWED / 2.0, rel=1e-3)
    assert gauge.low < gauge.factor < gauge.high
    assert gauge.limit == "curvature"


def test_the_verdict_is_one_line_that_says_how_far_and_how_sure():
    low, right, high = (str(quadratic(lr).gauge) for lr in (0.01, 0.6, 10.0))
    assert low.startswith("The rate 0.01 is about 67 times too low (between ")
    assert right.startswith("The rate 0.6 is about right (between ")
    assert high.startswith("The rate 10 is about 15 times too high (between ")
    assert "\n" not in low + right + high


def test_an_interval_that_reaches_beyond_1_makes_the_verdict_a_guess():
    gauge = probstep.Gauge(factor=3.0, low=0.8, high=11.0, rate=0.1, limit="noise", probes=1)
    assert str(gauge) == (
        "The rate 0.1 is perhaps 3 times too high (between 0.8 and 11); noise is the limit."
    )


def test_a_schedule_moves_the_factor_at_once():
    opt = quadratic(0.1)
    before = opt.gauge
    opt.param_groups[0]["lr"] = 0.05
    assert opt.gauge.factor == pytest.approx(before.factor / 2)
    assert opt.gauge.rate == 0.05


def test_more_probes_make_it_surer():
    few, many = (quadratic(0.1, steps=steps).gauge for steps in (1, 20))
    assert many.high / many.low < few.high / few.low


def test_a_rate_that_only_stirs_noise_is_too_high_though_curvature_allows_more():
    generator = torch.Generator().manual_seed(0)
    w = nn.Parameter(torch.zeros(20))
    opt = probstep.watch(torch.optim.SGD([w], lr=0.5))
    for _ in range(600):
        x = torch.randn(20, generator=generator)
        opt.step(lambda x=x: 0.5 * (w - x).square().sum())
    assert opt.gauge.limit == "noise"
    assert opt.gauge.factor > 2
    assert "noise is the limit" in str(opt.gauge)


def test_probes_stay_within_the_budget():
    generator = torch.Generator().manual_seed(0)
    w = nn.Parameter(torch.zeros(20))
    opt = probstep.watch(torch.optim.SGD([w], lr=1e-4))
    for _ in range(1500):
        x = torch.randn(20, generator=generator)
        opt.step(lambda x=x: 0.5 * (w - x).square().sum())
    # One more passes the proof that the loss is the same, and the last probe may go over by its tries.
    assert opt.metrics()["probe_forwards"] <= 1 + 40 + 0.04 * 1500 + 8


def test_before_a_probe_and_without_watching_nothing_is_known():
    params = [nn.Parameter(torch.zeros(1))]
    for opt in (
        probstep.watch(torch.optim.SGD(params, lr=0.1)),
        probstep.ProbStep(torch.optim.SGD(params, lr=0.1)),
    ):
        assert math.isnan(opt.gauge.factor)
        assert str(opt.gauge).startswith("Nothing is known")


def test_a_checkpoint_carries_what_was_learnt_and_loads_in_the_bare_optimizer():
    opt = quadratic(0.1)
    state = opt.state_dict()
    other = quadratic(0.3, steps=1)
    other.load_state_dict(state)
    assert other.gauge.factor == opt.gauge.factor
    assert (other.gauge.low, other.gauge.high) == (opt.gauge.low, opt.gauge.high)
    torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=1.0).load_state_dict(state)


def test_the_history_has_a_reading_per_probe_and_the_metrics_the_last():
    opt = quadratic(0.1, steps=5)
    readings = opt.gauge.history
    assert [reading.step for reading in readings] == [1, 2, 3, 4, 5]
    assert opt.metrics()["rate_factor"] == readings[-1].factor == opt.gauge.factor


def test_a_history_keeps_its_first_reading_and_even_distances():
    history = History()
    for step in range(5 * LENGTH):
        history.add(Reading(step, 1.0, 0.5, 2.0))
    steps = [reading.step for reading in history.readings]
    assert steps[0] == 0
    assert len({b - a for a, b in itertools.pairwise(steps)}) == 1
    assert LENGTH / 2 <= len(steps) <= LENGTH


def test_a_limit_of_rates_is_refused_because_nothing_is_moved():
    with pytest.raises(ValueError, match="max_lr"):
        probstep.ProbStep(
            torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1),
            rule=probstep.WatchRule(),
            max_lr=1.0,
        )


def test_a_frozen_one_does_not_probe():
    model = network()
    opt = watched("sgd", model)
    opt.freeze()
    (batch,) = batches(1)
    opt.step(lambda: loss_of(model, batch))
    assert opt.metrics()["probe_forwards"] == 0

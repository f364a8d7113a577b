"""A suggestion changes nothing, does not depend on the rate it starts from, and says how sure it is."""

import builtins
import math
import random

import numpy as np
import pytest
import torch
from torch import nn

import probstep
from probstep import Suggestion, silence

from .cases import OPTIMIZERS, batches, loss_of, network, plain_network, train_bare
from .test_no_trace import everything, same


@pytest.fixture(autouse=True)
def short_races(monkeypatch):
    """What is promised here does not depend on how long rates race."""
    monkeypatch.setattr(silence, "ROUND", 3)


COMMON = ["sgd", "sgd-momentum", "adam", "adamw", "rmsprop", "adagrad"]


def trained(name, net=network):
    """A model and its optimizer in the middle of a training."""
    torch.manual_seed(3)
    model = net()
    optimizer = OPTIMIZERS[name].make(model.parameters())
    train_bare(model, optimizer, batches(3))
    return model, optimizer


@pytest.mark.parametrize("name", COMMON)
def test_nothing_is_changed_bit_for_bit(name):
    model, optimizer = trained(name)
    grads = [p.grad for p in model.parameters()]
    before, groups = everything(model, optimizer), [dict(g) for g in optimizer.param_groups]
    probstep.suggest(optimizer, batches(5), lambda batch: loss_of(model, batch))
    same(everything(model, optimizer), before)
    assert all(p.grad is grad for p, grad in zip(model.parameters(), grads, strict=True))
    assert [dict(group) for group in optimizer.param_groups] == groups


@pytest.mark.parametrize("name", ["sgd-momentum", "adam"])
def test_training_goes_on_as_if_nobody_had_asked(name):
    model, optimizer = trained(name)
    twin, bare = trained(name)
    start = torch.get_rng_state()
    probstep.suggest(optimizer, batches(5), lambda batch: loss_of(model, batch))
    losses = train_bare(model, optimizer, batches(4))
    torch.set_rng_state(start)
    assert losses == train_bare(twin, bare, batches(4))
    same(everything(model, optimizer), everything(twin, bare))


def test_before_the_first_step_the_state_stays_empty_and_no_gradient_appears():
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    probstep.suggest(optimizer, batches(5), lambda batch: loss_of(model, batch))
    assert not optimizer.state
    assert all(p.grad is None for p in model.parameters())


def test_random_numbers_of_python_and_numpy_are_put_back_too():
    w = nn.Parameter(torch.ones(3))
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002

    def loss(x):
        return (w * (x + random.random() + np.random.rand())).square().sum()  # noqa: NPY002

    probstep.suggest(torch.optim.SGD([w], lr=0.1), [1.0, 2.0, 3.0], loss)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002


def test_what_is_declared_is_put_back_too():
    w, generator = nn.Parameter(torch.ones(3)), torch.Generator().manual_seed(1)
    before = generator.get_state()

    def loss(x):
        return (w * (x + torch.rand(3, generator=generator))).square().sum()

    sgd = torch.optim.SGD([w], lr=0.1)
    probstep.suggest(sgd, [1.0, 2.0, 3.0], loss, stateful=generator)
    assert torch.equal(generator.get_state(), before)


def test_hooks_of_the_optimizer_are_kept_and_do_not_fire():
    model, optimizer = trained("sgd", plain_network)
    fired = []
    optimizer.register_step_pre_hook(lambda *_: fired.append("before"))
    optimizer.register_step_post_hook(lambda *_: fired.append("after"))
    probstep.suggest(optimizer, batches(5), lambda batch: loss_of(model, batch))
    assert fired == []
    optimizer.step()
    assert fired == ["before", "after"]


def test_gradients_of_parameters_that_the_optimizer_does_not_hold_are_left_alone():
    model = plain_network()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    probstep.suggest(optimizer, batches(5), lambda batch: loss_of(model, batch))
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))
    assert model[2].weight.grad is None


def asked(name, lr, **others):
    torch.manual_seed(3)
    model = plain_network()
    optimizer = OPTIMIZERS[name].make(model.parameters())
    optimizer.param_groups[0]["lr"] = lr
    return probstep.suggest(optimizer, batches(6), lambda batch: loss_of(model, batch), **others)


@pytest.mark.parametrize("name", ["sgd", "sgd-momentum", "adam"])
def test_the_rate_does_not_depend_on_the_optimizers_own(name):
    low, high = asked(name, 1e-6), asked(name, 10.0)
    assert low.rate == pytest.approx(high.rate, rel=1e-2)
    assert low.scale == pytest.approx(low.rate / 1e-6)


def test_on_a_quadratic_without_noise_it_is_a_large_share_of_what_is_stable():
    w = nn.Parameter(torch.ones(3, dtype=torch.float64))
    found = probstep.suggest(torch.optim.SGD([w], lr=1.0), [None], lambda _: w.square().sum())
    assert 0.3 < found.rate < 1.0  # it diverges from 1 on
    assert found.low < 0.5 < found.high  # the step to the minimum


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_loss_may_be_below_zero_or_maximised(sign):
    w = nn.Parameter(torch.ones(3, dtype=torch.float64))
    sgd = torch.optim.SGD([w], lr=1.0, maximize=sign < 0)
    found = probstep.suggest(sgd, [None], lambda _: sign * (w.square().sum() - 100))
    assert 0.1 < found.rate < 1.0


@pytest.mark.parametrize("start", [2.0, 3.0])
def test_on_a_plateau_the_rate_leads_to_the_minimum(start):
    w = nn.Parameter(torch.tensor([start], dtype=torch.float64))

    def loss(_):
        return 1 - torch.exp(-w.square().sum() / 2)

    found = probstep.suggest(torch.optim.SGD([w], lr=1e-3), [None], loss)
    sgd = torch.optim.SGD([w], lr=found.rate)
    for _ in range(500):
        sgd.zero_grad()
        loss(None).backward()
        sgd.step()
    assert loss(None).item() < 1e-6


def test_it_tells_what_it_cost():
    model, optimizer = trained("sgd", plain_network)
    passes = []
    handle = model.register_forward_pre_hook(lambda *_: passes.append(1))
    found = probstep.suggest(optimizer, batches(5), lambda batch: loss_of(model, batch))
    handle.remove()
    # The first pass only shows which modules there are; one that diverges is no step.
    assert 0 <= len(passes) - 1 - found.steps - found.forwards <= 4


def test_a_loss_that_counts_a_hundred_times_has_a_hundredth_of_the_rate():
    one, many = (
        probstep.suggest(
            torch.optim.SGD((model := plain_network()).parameters(), lr=0.1),
            batches(6),
            lambda batch, model=model, weight=weight: weight * loss_of(model, batch),
        )
        for weight in (1.0, 100.0)
        if torch.manual_seed(5) is not None
    )
    assert many.rate == pytest.approx(one.rate / 100, rel=0.05)


def test_a_schedule_does_not_matter():
    model, optimizer = trained("sgd", plain_network)
    bare = probstep.suggest(optimizer, batches(5), lambda batch: loss_of(model, batch))
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
    assert optimizer.param_groups[0]["lr"] == 0
    found = probstep.suggest(optimizer, batches(5), lambda batch: loss_of(model, batch))
    assert found.rate == pytest.approx(bare.rate, rel=1e-2)


def test_each_of_several_optimizers_is_asked_alone_while_the_others_stand_still():
    torch.manual_seed(3)
    model = plain_network()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    second = torch.optim.Adam(model[2].parameters(), lr=0.1)
    both = probstep.suggest([first, second], batches(5), lambda batch: loss_of(model, batch))
    alone = [
        probstep.suggest(one, batches(5), lambda batch: loss_of(model, batch))
        for one in (first, second)
    ]
    assert both == alone


def test_an_adapted_optimizer_is_asked_as_the_one_inside():
    model, optimizer = trained("adam", plain_network)
    bare = probstep.suggest(optimizer, batches(5), lambda batch: loss_of(model, batch))
    opt = probstep.ProbStep(optimizer)
    assert probstep.suggest(opt, batches(5), lambda batch: loss_of(model, batch)) == bare
    assert opt.scale == 1.0


def test_the_posterior_integrates_to_one_and_the_interval_holds_eight_tenths():
    found = asked("sgd", 0.1)
    grid, density = torch.tensor(found.grid).double(), torch.tensor(found.density).double()
    assert torch.trapezoid(density, grid).item() == pytest.approx(1.0, abs=1e-3)
    is_inside = (grid >= math.log10(found.low)) & (grid <= math.log10(found.high))
    assert torch.trapezoid(density * is_inside, grid).item() == pytest.approx(0.8, abs=0.05)
    assert found.low < found.rate < found.high


def test_it_is_drawn_with_matplotlib_and_as_text_without():
    found = Suggestion.mixture([-2.0], [1.0], deviation=0.3, lr=0.1)
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot as plt

    axes = found.plot()
    assert axes.get_xscale() == "log"
    assert axes.get_title() == str(found)
    plt.close(axes.figure)


def test_without_matplotlib_the_plot_is_a_line_of_text(monkeypatch):
    def without_matplotlib(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    real = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    found = Suggestion.mixture([-2.0], [1.0], deviation=0.3, lr=0.1)
    assert found.plot() == found.sparkline()
    assert "█" in found.sparkline()


def test_no_batch_is_refused():
    model, optimizer = trained("sgd", plain_network)
    with pytest.raises(ValueError, match="no batch"):
        probstep.suggest(optimizer, [], lambda batch: loss_of(model, batch))


def test_parameters_that_the_loss_does_not_depend_on_are_refused_and_left_alone():
    model, other = plain_network(), plain_network()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    before = [p.detach().clone() for p in other.parameters()]
    with pytest.raises(ValueError, match="No rate can be suggested"):
        probstep.suggest(optimizer, batches(5), lambda batch: loss_of(model, batch))
    same([p.detach() for p in other.parameters()], before)


def test_a_loss_that_is_not_the_same_twice_is_refused_and_nothing_is_moved():
    w, calls = nn.Parameter(torch.ones(3)), []

    def loss(_):
        calls.append(0)
        return w.square().sum() + len(calls)

    with pytest.raises(probstep.NotTheSameLoss):
        probstep.suggest(torch.optim.SGD([w], lr=0.1), [1, 2], loss)
    assert torch.equal(w, torch.ones(3))


def test_an_endless_stream_of_batches_is_cut():
    w = nn.Parameter(torch.ones(3))
    endless = iter(lambda: torch.ones(3), None)
    found = probstep.suggest(
        torch.optim.SGD([w], lr=0.1), endless, lambda x: (w - 2 * x).norm() ** 2
    )
    assert found.rate > 0

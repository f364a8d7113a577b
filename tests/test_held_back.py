"""A step without a probe whose own loss explodes is held back, where that loss is known before it."""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from probstep import Every, ProbStep
from probstep.rules import PaperRule, RobustRule
from probstep.rules.protocol import Setting

STEPS, BAD_AT, FACTOR = 120, 100, 300.0
BASES = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.01),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.01, momentum=0.9),
    "Adam": lambda params: torch.optim.Adam(params),
}
WITHOUT = RobustRule(without=frozenset({"caution"}))


def batches(count):
    stream = torch.Generator().manual_seed(0)
    weights = torch.randn(10, 1, generator=stream)
    for _ in range(count):
        x = torch.randn(16, 10, generator=stream)
        yield x, torch.sin(x @ weights)


def trained(name, bad, rule=None, by_loss=False):
    """A net, its optimizer and its losses; from the 101st on some batches have inputs far too large."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    opt, losses = ProbStep(BASES[name](net.parameters()), rule=rule), []
    for step, (x, y) in enumerate(batches(STEPS + bad)):
        x = FACTOR * x if BAD_AT <= step < BAD_AT + bad else x
        loss_of = lambda x=x, y=y: mse_loss(net(x), y)  # noqa: E731
        if by_loss:
            opt.zero_grad()
            loss = loss_of()
            loss.backward()
            opt.step(loss=loss, reevaluate=loss_of)
        else:
            loss = opt.step(loss_of)
        losses.append(loss.item())
    return net, opt, losses


@pytest.mark.parametrize("by_loss", [False, True])
@pytest.mark.parametrize(("name", "bad"), [("SGD", 1), ("SGD", 15), ("momentum", 15)])
def test_bad_batches_do_not_throw_a_net_away(name, bad, by_loss):
    _, opt, losses = trained(name, bad, by_loss=by_loss)
    before = sum(losses[BAD_AT - 10 : BAD_AT])
    assert max(losses[BAD_AT : BAD_AT + bad]) > 1e3 * before / 10
    assert sum(losses[-10:]) < 2 * before
    assert "held back" in {event.name for event in opt.history().events}


@pytest.mark.filterwarnings("ignore:The scale has fallen")
@pytest.mark.parametrize("bad", [1, 15])
def test_without_caution_they_do(bad):
    _, _, losses = trained("SGD", bad, WITHOUT)
    assert not sum(losses[-10:]) < 1e3 * sum(losses[BAD_AT - 10 : BAD_AT])


def test_a_step_is_as_much_shorter_as_its_loss_is_above_the_usual_one():
    weight = nn.Parameter(torch.ones(3))
    opt = ProbStep(torch.optim.SGD([weight], lr=1.0), rule=RobustRule(budget=(5.0, 0.0)))
    for _ in range(50):
        opt.step(lambda: 1 + 0.01 * (weight - 2).square().sum())
    rate, forwards = opt.effective_lr[0], opt.metrics()["probe_forwards"]
    before = weight.detach().clone()
    opt.step(lambda: 100 * (1 + 0.01 * weight.sum()))
    assert opt.metrics()["probe_forwards"] == forwards
    part = 1 / (100 * (1 + 0.01 * before.sum().item()))
    moved = torch.full((3,), part * rate)  # the gradient is 1
    torch.testing.assert_close(before - weight.detach(), moved, rtol=0.02, atol=0.0)


@pytest.mark.parametrize(("name", "is_sparse"), [(n, False) for n in BASES] + [("SGD", True)])
def test_gradients_of_a_bad_batch_are_scaled_in_place(name, is_sparse):
    torch.manual_seed(0)
    table = nn.Embedding(4, 2, sparse=is_sparse)
    opt, rows = ProbStep(BASES[name](table.parameters())), torch.tensor([0, 1])
    for factor in [1.0] * 60 + [1e4]:
        y = torch.randn(2, 2)
        loss_of = lambda f=factor, y=y: f * (1 + (table(rows) - y).square().mean())  # noqa: E731
        opt.zero_grad()
        loss = loss_of()
        loss.backward()
        grad, whole = table.weight.grad, table.weight.grad.clone()
        opt.step(loss=loss, reevaluate=loss_of)
    assert table.weight.grad is grad
    part = (grad.to_dense().norm() / whole.to_dense().norm()).item()
    assert 1e-5 < part < 1e-3


@pytest.mark.parametrize("name", BASES)
def test_the_step_after_one_that_was_held_back_is_probed(name):
    _, opt, _ = trained(name, 0)
    weight = opt.param_groups[0]["params"][0]
    opt.step(lambda: weight.square().sum() * 1e4)
    assert opt.history().events[-1].name == "held back"
    before = opt.metrics()["probe_forwards"]
    opt.step(lambda: weight.square().sum())
    assert opt.metrics()["probe_forwards"] > before


@pytest.mark.filterwarnings("ignore:ProbStep.step.. got no way to evaluate")
@pytest.mark.parametrize("way", ["every seventh", "never"])
def test_momentum_keeps_nothing_of_a_bad_batch_where_the_next_step_is_not_probed(way):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = ProbStep(BASES["momentum"](net.parameters()), probe=Every(7))
    losses = []
    for step, (x, y) in enumerate(batches(200)):
        x = FACTOR * x if step == BAD_AT else x
        opt.zero_grad()
        loss = mse_loss(net(x), y)
        loss.backward()
        again = {"reevaluate": lambda x=x, y=y: mse_loss(net(x), y)}
        is_given = way == "every seventh" or step < BAD_AT
        opt.step(loss=loss, **(again if is_given else {}))
        losses.append(loss.item())
    assert losses[BAD_AT] > 1e3 * losses[BAD_AT - 1]
    assert sum(losses[-10:]) < 2 * sum(losses[BAD_AT - 10 : BAD_AT])


def test_rare_batches_that_are_hard_are_learnt_all_the_same():
    torch.manual_seed(0)
    net, every = nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 1)), 30
    opt, hard = ProbStep(torch.optim.SGD(net.parameters(), lr=0.05)), []
    for step in range(80 * every):
        is_hard = step % every == every - 1
        x = torch.randn(16, 20)
        x[:, 0] = 3.0 * is_hard
        y = 3.0 * is_hard + 0.1 * torch.randn(16, 1)
        loss = opt.step(lambda x=x, y=y: mse_loss(net(x), y))
        hard += [loss.item()] if is_hard else []
    assert "held back" in {event.name for event in opt.history().events}
    assert sum(hard[-5:]) < 0.01 * sum(hard[:5])


def test_nothing_is_held_back_where_losses_were_zero_so_far_or_are_few():
    rule = RobustRule()
    state = rule.init()
    for loss in (1.0, 1.0, 1.0):
        rule.notice(state, loss, 0.1, Setting())
    assert rule.part_to_take(state, 1e6, is_probed=False) == 1.0
    state = rule.init()
    for _ in range(20):
        rule.notice(state, 0.0, 0.1, Setting())
    assert rule.part_to_take(state, 1e6, is_probed=False) == 1.0


@pytest.mark.parametrize(("after", "part"), [(1.0, 0.1), (math.nan, 0.01), (math.inf, 0.01)])
def test_more_counts_the_next_time_only_if_the_loss_after_it_was_finite_and_little(after, part):
    rule = RobustRule()
    state = rule.init()
    for loss in (1.0,) * 20:
        rule.notice(state, loss, 0.1, Setting())
    assert rule.part_to_take(state, 100.0, is_probed=False) == pytest.approx(0.01)
    for loss in (100.0, after, *(1.0,) * 60):
        rule.notice(state, loss, 0.1, Setting())
    assert rule.part_to_take(state, 100.0, is_probed=False) == pytest.approx(part, rel=0.5)


def test_the_papers_rule_takes_whole_steps():
    rule = PaperRule()
    assert rule.part_to_take(rule.init(), 1e6, is_probed=False) == 1.0


def test_events_tell_the_loss_as_the_user_knows_it_also_where_it_is_maximised():
    weight = nn.Parameter(torch.ones(2))
    opt = ProbStep(torch.optim.SGD([weight], lr=0.01, maximize=True))
    for step in range(80):
        worst = 1e3 if step >= 60 else 0.0
        noise = torch.randn(2)
        opt.step(lambda worst=worst, noise=noise: -(1 + (weight - noise).square().mean() + worst))
    losses = {event.name: event.value for event in opt.history().events}
    assert losses["held back"] < -1e3
    assert losses["new level"] < -1e3

"""What goes wrong is said clearly and undone: wrong input, raising closures, infinite values."""

import math

import pytest
import torch
from torch import nn

import probstep
from probstep import PaperRule, ProbStep, RobustRule

from .cases import (
    FICKLE,
    batches,
    for_every_rule,
    loss_of,
    network,
    plain_network,
    step_with_closure,
)


class Oops(Exception):
    pass


def snapshot(model, opt):
    return {
        "parameters": [p.detach().clone() for p in model.parameters()],
        "buffers": [b.clone() for b in model.buffers()],
        "rng": torch.get_rng_state(),
        "rates": [group["lr"] for group in opt.param_groups],
        "moments": {k: v.clone() for s in opt.state.values() for k, v in s.items()},
        "memory": opt.metrics(),
        "grad mode": torch.is_grad_enabled(),
    }


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


class Failing:
    """A closure that raises at its n-th call."""

    def __init__(self, model, batch, at, backward):
        self.model, self.batch, self.at, self.backward = model, batch, at, backward
        self.calls = 0

    def __call__(self):
        self.calls += 1
        if self.calls == self.at:
            torch.rand(3)
            raise Oops
        loss = loss_of(self.model, self.batch)
        if self.backward:
            loss.backward()
        return loss


@for_every_rule
@pytest.mark.parametrize("backward", [False, True])
def test_a_closure_that_raises_in_the_first_pass_changes_nothing_but_the_random_stream(
    backward, rule
):
    model = network()
    opt = ProbStep(torch.optim.Adam(model.parameters()), rule)
    before = snapshot(model, opt)
    with pytest.raises(Oops):
        opt.step(Failing(model, batches(1)[0], at=1, backward=backward))
    after = snapshot(model, opt)
    torch.set_rng_state(before.pop("rng"))
    torch.rand(3)
    same(after.pop("rng"), torch.get_rng_state())
    same(after, before)
    assert all(p.grad is None for p in model.parameters())


RAISES_IN_A_PROBE = {
    "the only probe": ({"rule": PaperRule(), "lower_bound": 0.0}, 2),
    "the first of a search": ({"rule": RobustRule()}, 2),
    "a later one of a search": ({"rule": RobustRule()}, 5),
}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("where", RAISES_IN_A_PROBE)
def test_a_closure_that_raises_in_the_probe_takes_the_step_back(where, backward):
    settings, at = RAISES_IN_A_PROBE[where]
    model = network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=0.1), **settings)
    before = snapshot(model, opt)
    closure = Failing(model, batches(1)[0], at=at, backward=backward)
    with pytest.raises(Oops):
        opt.step(closure)
    after = snapshot(model, opt)
    for name in ("parameters", "rates", "moments", "grad mode", "memory"):
        same(after[name], before[name])
    assert all(p.grad is not None for p in model.parameters())
    assert all(p.requires_grad for p in model.parameters())
    # Buffers and random numbers are as the first pass left them.
    torch.set_rng_state(before["rng"])
    twin = network()
    twin.load_state_dict(model.state_dict())
    for b, old in zip(twin.buffers(), before["buffers"], strict=True):
        b.copy_(old)
    torch.set_rng_state(before["rng"])
    loss_of(twin, batches(1)[0])
    same(after["buffers"], [b.clone() for b in twin.buffers()])
    same(after["rng"], torch.get_rng_state())
    closure.at = 0
    opt.zero_grad()  # the closure leaves that to its caller
    opt.step(closure)  # and life goes on


@pytest.mark.parametrize(("rule", "probe"), [(PaperRule(), 1), (FICKLE, 1), (FICKLE, 3)])
def test_a_later_probe_that_raises_still_takes_the_parameters_back(rule, probe):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=0.1), rule)
    (batch,) = batches(1)
    step_with_closure(opt, model, batch)
    before = [p.detach().clone() for p in model.parameters()]
    memory = opt.metrics()
    with pytest.raises(Oops):
        opt.step(Failing(model, batch, at=1 + probe, backward=False))
    same([p.detach() for p in model.parameters()], before)
    assert opt.param_groups[0]["lr"] == 0.1
    assert opt.metrics() == memory


@for_every_rule
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_step_that_raised_can_be_taken_again_as_if_for_the_first_time(rule, at):
    losses = []
    for is_failing in (False, True):
        torch.manual_seed(0)
        model = plain_network()
        opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), rule)
        seen = []
        for batch in batches(25):
            try:
                loss = opt.step(Failing(model, batch, at if is_failing else 0, backward=False))
                seen.append(loss.item())
            except Oops:
                seen.append(step_with_closure(opt, model, batch).item())
        losses.append((seen, opt.metrics()))
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("rule", "scale"), [(PaperRule(), 1.2), (RobustRule(), pytest.approx(2000, rel=1e-3))]
)
def test_an_inner_optimizer_that_raises_gives_the_rates_back(rule, scale):
    a = nn.Parameter(torch.ones(1))
    opt = ProbStep(torch.optim.SGD([a], lr=0.1), rule)
    opt.step(lambda: (a**2 * 1e-3).sum())
    assert opt.scale == scale
    opt.base.step = Failing(None, None, at=1, backward=False)
    with pytest.raises(Oops):
        opt.step(lambda: (a**2).sum())
    assert opt.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_after_the_step_halves_the_scale_and_is_reported(bad):
    a = nn.Parameter(torch.ones(1))
    opt = ProbStep(torch.optim.SGD([a], lr=0.5), PaperRule())
    with pytest.warns(RuntimeWarning, match="not finite after a step"):
        opt.step(lambda: a.sum() if a.item() == 1.0 else a.sum() * bad)
    assert opt.scale == 0.5
    assert opt.last_probe.decision == "down"
    assert not math.isfinite(opt.last_probe.loss_after)


@for_every_rule
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_gradients_that_are_not_finite_skip_a_probed_step_with_a_warning(bad, rule):
    a = nn.Parameter(torch.ones(2))
    opt = ProbStep(torch.optim.Adam([a], lr=0.5), rule)
    opt.step(lambda: (a**2).sum())
    before, steps = a.detach().clone(), opt.state[a]["step"].item()
    with pytest.warns(RuntimeWarning, match="loss or a gradient was not finite"):
        opt.step(lambda: (a * torch.tensor([bad, 1.0])).sum())
    same(a.detach(), before)
    assert opt.state[a]["step"].item() == steps
    assert opt.last_probe.decision == "skipped"


@pytest.mark.parametrize("offset", [-5.0, 0.0, 5.0])
def test_the_ratio_does_not_depend_on_the_zero_of_the_loss(offset):
    a = nn.Parameter(torch.ones(2, dtype=torch.float64))
    opt = ProbStep(torch.optim.SGD([a], lr=0.1), PaperRule())
    opt.step(lambda: (a**2).sum() + offset)
    assert opt.last_probe.ratio == pytest.approx(1.8)


@pytest.mark.parametrize(("rule", "bounds"), [(PaperRule(), (None, 0.0)), (RobustRule(), (None,))])
def test_a_loss_of_exactly_zero_is_no_obstacle(rule, bounds):
    a = nn.Parameter(torch.zeros(2))
    for bound in bounds:
        opt = ProbStep(torch.optim.SGD([a], lr=0.1), rule, lower_bound=bound)
        opt.step(lambda: (a**2).sum())
        assert opt.last_probe.decision == "uninformative"
        same(a.detach(), torch.zeros(2))


def sgd(**settings):
    return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, **settings)


class NoRate(torch.optim.Optimizer):
    def step(self, closure=None): ...


class Unmade(torch.optim.Optimizer):
    def __init__(self):
        self.param_groups = [{"params": [nn.Parameter(torch.ones(1))], "lr": 0.1}]


WRONG_INPUT = {
    "an optimizer that torch has not made": (
        lambda: ProbStep(Unmade()),
        TypeError,
        "Unmade was made without torch.optim.Optimizer.__init__",
    ),
    "a class": (lambda: ProbStep(torch.optim.SGD), TypeError, "not a class"),
    "no optimizer": (lambda: ProbStep("sgd"), TypeError, "takes a torch.optim.Optimizer"),
    "twice": (lambda: ProbStep(ProbStep(sgd())), TypeError, "adapted already"),
    "lbfgs": (
        lambda: ProbStep(torch.optim.LBFGS([nn.Parameter(torch.ones(1))])),
        TypeError,
        "LBFGS searches along its own line",
    ),
    "a negative variance": (lambda: ProbStep(sgd(), noise=-1.0), ValueError, "at least 0"),
    "an infinite bound": (lambda: ProbStep(sgd(), lower_bound=-math.inf), ValueError, "finite"),
    "a rule's class": (
        lambda: ProbStep(sgd(), rule=PaperRule),
        TypeError,
        "such as probstep.PaperRule",
    ),
    "a number as schedule": (lambda: ProbStep(sgd(), probe=5), TypeError, r"probstep.Every\(10\)"),
    "a model as rule": (lambda: ProbStep(sgd(), nn.Linear(1, 1)), TypeError, "rule must be"),
    "no noise": (lambda: ProbStep(sgd(), noise=None), TypeError, "a function of the loss"),
    "a class as noise": (
        lambda: ProbStep(sgd(), noise=probstep.SampleNoise),
        TypeError,
        "noise must",
    ),
    "a word as bound": (
        lambda: ProbStep(sgd(), lower_bound="zero"),
        TypeError,
        "lower_bound must be",
    ),
    "a bound by default": (
        lambda: ProbStep(sgd(), lower_bound=0.0),
        ValueError,
        r"RobustRule, the default, .* Add rule=probstep.PaperRule\(\)",
    ),
    "noise by default": (
        lambda: ProbStep(sgd(), noise=probstep.SampleNoise()),
        ValueError,
        "lower_bound and noise go with PaperRule",
    ),
    "a lower bound to maximise": (
        lambda: ProbStep(sgd(maximize=True), lower_bound=probstep.Interpolation()),
        ValueError,
        "upper one",
    ),
    "no rate": (
        lambda: ProbStep(NoRate([nn.Parameter(torch.ones(1))], {})),
        ValueError,
        "no learning",
    ),
    "closure and loss": (
        lambda: ProbStep(sgd()).step(lambda: torch.ones(()), loss=torch.ones(())),
        TypeError,
        "not both",
    ),
    "a scale of zero": (lambda: ProbStep(sgd()).step(grad_scale=0.0), ValueError, "positive"),
    "a word as scale": (
        lambda: ProbStep(sgd()).step(grad_scale="x"),
        TypeError,
        "grad_scale must be a number or a tensor of one, not a str",
    ),
    "a loss as reevaluate": (
        lambda: ProbStep(sgd()).step(loss=torch.ones(()), reevaluate=torch.ones(())),
        TypeError,
        r"reevaluate must be a function .* not a tensor of .* reevaluate=lambda: loss_fn\(model",
    ),
    "a loss to reevaluate with": (
        lambda: ProbStep(sgd()).reevaluate_with(torch.ones(())),
        TypeError,
        "reevaluate must be a function",
    ),
    "parameters": (
        lambda: ProbStep(nn.Linear(1, 1).parameters()),
        TypeError,
        r"not a generator\. Write ProbStep\(torch\.optim\.AdamW\(model\.parameters\(\)\)\)",
    ),
    "a word as model": (
        lambda: ProbStep(sgd(), model="no"),
        TypeError,
        r"model must be a torch\.nn\.Module or None, not a str",
    ),
    "a word as group": (
        lambda: ProbStep(sgd(), process_group="x"),
        TypeError,
        r"process_group must be .* not a str\. Write .*new_group",
    ),
    "an unknown name of a rate": (
        lambda: ProbStep([sgd(), sgd()]).effective_lr["adam"],
        ValueError,
        "No rate has the name 'adam'. There are SGD0, SGD1.",
    ),
    "frozen parameters": (
        lambda: ProbStep(sgd()).step(lambda: torch.ones(())),
        RuntimeError,
        "depends on no parameter that requires a gradient.* 1. all parameters .* are frozen",
    ),
    "every zeroth": (lambda: probstep.Every(0), ValueError, "at least 1"),
    "half a step": (lambda: probstep.Every(0.5), ValueError, "whole number"),
    "no epoch": (lambda: probstep.DoublingEpochs(0), ValueError, "at least 1"),
    "a fraction of 2": (lambda: probstep.RunningMinimum(fraction=2), ValueError, "between 0 and 1"),
    "instant forgetting": (lambda: probstep.RunningMinimum(forget=0), ValueError, "positive"),
}


@pytest.mark.parametrize("what", WRONG_INPUT)
def test_wrong_input_is_refused_with_a_reason(what):
    make, error, message = WRONG_INPUT[what]
    with pytest.raises(error, match=message):
        make()


def test_groups_that_disagree_on_maximize_are_refused_at_once_and_when_added():
    a, b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    mixed = torch.optim.SGD([{"params": [a], "maximize": True}, {"params": [b]}], lr=0.1)
    with pytest.raises(ValueError, match="maximize"):
        ProbStep(mixed)
    opt = ProbStep(torch.optim.SGD([a], lr=0.1))
    with pytest.raises(ValueError, match="maximize"):
        opt.add_param_group({"params": [b], "maximize": True})
    assert len(opt.param_groups) == 1


@pytest.mark.parametrize("kind", [torch.optim.Rprop, torch.optim.ASGD])
def test_optimizers_that_do_not_step_with_their_rate_are_left_alone_with_a_warning(kind):
    ours, bare = (nn.Parameter(torch.ones(1)) for _ in range(2))
    with pytest.warns(RuntimeWarning, match=f"{kind.__name__} .* cannot be adapted"):
        opt = ProbStep(kind([ours], lr=0.1))
    other = kind([bare], lr=0.1)
    for _ in range(20):
        opt.step(ours.square().sum)
        other.zero_grad()
        bare.square().sum().backward()
        other.step()
    assert opt.is_frozen
    assert torch.equal(ours, bare)
    opt.load_state_dict(other.state_dict())  # a checkpoint that knows of no ProbStep
    assert opt.is_frozen


def test_a_list_with_such_an_optimizer_is_left_alone_too():
    a, b = (nn.Parameter(torch.ones(1)) for _ in range(2))
    with pytest.warns(RuntimeWarning, match="ASGD"):
        assert ProbStep([torch.optim.ASGD([a]), torch.optim.SGD([b])]).is_frozen


RETURNS = {
    "a float": (lambda loss: loss.item(), TypeError, "without .item"),
    "nothing": (lambda loss: None, TypeError, "NoneType"),
    "an integer": (lambda loss: loss.long(), TypeError, "floating-point"),
    "a vector": (lambda loss: loss.expand(3), ValueError, "SampleNoise"),
}


@for_every_rule
@pytest.mark.parametrize("what", RETURNS)
def test_a_closure_that_returns_no_loss_is_refused_and_nothing_changes(what, rule):
    convert, error, message = RETURNS[what]
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters()), rule)
    before = snapshot(model, opt)
    with pytest.raises(error, match=message):
        opt.step(lambda: convert(loss_of(model, batches(1)[0])))
    same(snapshot(model, opt), before)


@for_every_rule
@pytest.mark.parametrize("what", RETURNS)
def test_a_probe_that_returns_something_else_is_refused_and_nothing_changes(what, rule):
    convert, error, _ = RETURNS[what]
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters()), rule)
    before = snapshot(model, opt)
    loss = loss_of(model, batches(1)[0])
    loss.backward()
    with pytest.raises(error):
        opt.step(loss=loss, reevaluate=lambda: convert(loss_of(model, batches(1)[0])))
    after = snapshot(model, opt)
    for name in ("parameters", "rates", "moments"):
        same(after[name], before[name])
    assert opt.scale == 1.0


def test_a_later_probe_that_returns_something_else_says_what_was_put_back():
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters()), PaperRule())
    (batch,) = batches(1)
    step_with_closure(opt, model, batch)
    before = snapshot(model, opt)
    opt.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    with pytest.raises(ValueError, match="The parameters are as before the step; the moments"):
        opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch).double())
    after = snapshot(model, opt)
    for name in ("parameters", "rates", "memory"):
        same(after[name], before[name])


@for_every_rule
def test_a_checkpoint_that_a_closure_loads_before_it_raises_stays_loaded(rule):
    model, other = plain_network(), plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    for batch in batches(3):
        step_with_closure(opt, model, batch)
    late = ProbStep(torch.optim.Adam(other.parameters(), lr=1e-3), rule)

    def closure():
        late.load_state_dict(opt.state_dict())
        raise Oops

    with pytest.raises(Oops):
        late.step(closure)
    assert late.scale == opt.scale != 1.0
    assert late.metrics() == pytest.approx(opt.metrics(), nan_ok=True)


def test_sample_noise_refuses_a_mean_and_a_probe_of_another_batch():
    a = nn.Parameter(torch.ones(1))
    opt = ProbStep(torch.optim.SGD([a], lr=0.1), PaperRule(), noise=probstep.SampleNoise())
    with pytest.raises(ValueError, match='reduction="none"'):
        opt.step(lambda: (a**2).sum())
    sizes = [4, 3]
    with pytest.raises(ValueError, match="same loss of the same batch"):
        opt.step(lambda: a.expand(sizes.pop(0)) ** 2)
    assert a.item() == 1.0


def test_sample_noise_is_the_variance_of_the_mean():
    x = torch.tensor([1.0, 2.0, 3.0, 6.0])
    a = nn.Parameter(torch.ones(1))
    opt = ProbStep(torch.optim.SGD([a], lr=0.1), PaperRule(), noise=probstep.SampleNoise())
    opt.step(lambda: (a * x) ** 2)
    losses = x**2
    slope = 0.1 * (2 * losses.mean()) ** 2
    noise = losses.var() / 4
    expected = 1 - slope / (slope + noise) * 0.1 * 2 * losses.mean()
    assert a.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_running_minimum_of_negative_losses_is_refused():
    a = nn.Parameter(torch.ones(1))
    opt = ProbStep(torch.optim.SGD([a], lr=0.1), PaperRule(), lower_bound=probstep.RunningMinimum())
    with pytest.raises(ValueError, match="never negative"):
        opt.step(lambda: (a**2).sum() - 10)
    assert a.item() == 1.0


def test_a_backward_that_raises_leaves_the_gradients_as_they_were():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            raise Oops

    a = nn.Parameter(torch.ones(1))
    a.grad = torch.full((1,), 7.0)
    opt = ProbStep(torch.optim.SGD([a], lr=0.1))
    for in_place in (False, True):

        def closure(in_place=in_place):
            if in_place:
                a.grad.zero_()
            return Fails.apply(a).sum()

        with pytest.raises(Oops):
            opt.step(closure)
        assert a.grad.item() == (0.0 if in_place else 7.0)
        assert a.item() == 1.0


def test_a_rate_under_all_rounding_is_told_once():
    a = nn.Parameter(torch.ones(1))
    opt = ProbStep(torch.optim.SGD([a], lr=1e-12), PaperRule())
    with pytest.warns(RuntimeWarning, match="larger rate") as caught:
        for _ in range(50):
            opt.step(lambda: (a**2).sum() + 1)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_a_checkpoint_loaded_into_the_base_alone_starts_the_adaptation_anew():
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=0.1))
    bare = torch.optim.SGD(model.parameters(), lr=0.2)
    opt.base.load_state_dict(bare.state_dict())
    assert opt.effective_lr == [0.2]


def test_a_load_that_mixes_maximize_is_refused_and_changes_nothing():
    a, b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    groups = [{"params": [a]}, {"params": [b]}]
    opt = ProbStep(torch.optim.SGD(groups, lr=0.1))
    state = opt.state_dict()
    state["param_groups"][0]["maximize"] = True
    state["param_groups"][0]["lr"] = 9.0
    with pytest.raises(ValueError, match="maximize"):
        opt.load_state_dict(state)
    assert opt.effective_lr == [0.1, 0.1]

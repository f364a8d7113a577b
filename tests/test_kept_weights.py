"""Optimizers that keep weights in their state: a step is taken anew, never shortened afterwards."""

import copy

import pytest
import schedulefree
import torch
from torch import nn, optim

from probstep import PaperRule, ProbStep, RobustRule
from probstep.rules import Decision
from probstep.step.attempt import Attempt
from probstep.step.examine import found_by_trying
from probstep.step.kept import FAMILIAR
from probstep.step.ranks import Ranks

from .cases import OPTIMIZERS, batches, loss_of, plain_network, step_with_closure, train_bare


class Halving(RobustRule):
    """Searches the first step, takes every later one back twice, and stays at the rate of the last."""

    def is_due(self, state):
        return True

    def judge(self, state, seen):
        if self.is_searching(state):
            return super().judge(state, seen)._replace(factor=1.0)
        return Decision(1.0, 1.0, "keep", again=0.5 if seen.tries < 3 else None)


class OwnStep(optim.Optimizer):
    """An optimizer whose step is a function of one parameter, its gradient, its state and the rate."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.move(p, p.grad, self.state[p], group["lr"])


class Master(OwnStep):
    """Keeps 32-bit weights beside those of the model."""

    def move(self, p, grad, state, lr):
        master = state.setdefault("master", p.float().clone())
        master.sub_(lr * grad.float())
        p.copy_(master)


class MasterElsewhere(OwnStep):
    """Keeps them in a list of its own."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, lr)
        self.masters = [p.detach().double().clone() for p in self.param_groups[0]["params"]]

    @torch.no_grad()
    def step(self, closure=None):
        (group,) = self.param_groups
        for p, master in zip(group["params"], self.masters, strict=True):
            master.sub_(group["lr"] * p.grad)
            p.copy_(master)


class Averaging(OwnStep):
    """Sets the parameters to a running average of where it walks."""

    def move(self, p, grad, state, lr):
        walker = state.setdefault("walker", p.clone())
        walker.sub_(lr * grad)
        p.lerp_(walker, 0.5)


class Lookahead(OwnStep):
    """Every third step goes back half way to where it was three steps ago."""

    def move(self, p, grad, state, lr):
        slow = state.setdefault("slow", p.clone())
        state["k"] = state.get("k", 0) + 1
        p.sub_(lr * grad)
        if state["k"] % 3 == 0:
            slow.lerp_(p, 0.5)
            p.copy_(slow)


class Wrapping(optim.Optimizer):
    """Lookahead around any optimizer, which has a state of its own."""

    def __init__(self, params, lr=1e-3):
        self.inner = optim.Adam(params, lr=lr)
        super().__init__(self.inner.param_groups, {"lr": lr})
        self.param_groups = self.inner.param_groups
        self.steps = 0

    @torch.no_grad()
    def step(self, closure=None):
        params = self.param_groups[0]["params"]
        for p in params:
            self.state[p].setdefault("slow", p.clone())
        self.inner.step()
        self.steps += 1
        if self.steps % 3 == 0:
            for p in params:
                self.state[p]["slow"].lerp_(p, 0.5)
                p.copy_(self.state[p]["slow"])


class Consuming(Averaging):
    """Spoils its gradients and drops them."""

    def move(self, p, grad, state, lr):
        super().move(p, grad, state, lr)
        grad.mul_(0.0)
        p.grad = None


class Noisy(Averaging):
    """Draws from the global random stream."""

    def move(self, p, grad, state, lr):
        super().move(p, grad + 1e-3 * torch.randn_like(grad), state, lr)


class Waiting(OwnStep):
    """Only looks at the first gradient, as ADOPT does."""

    def move(self, p, grad, state, lr):
        if "size" in state:
            p.sub_(lr * grad / state["size"])
        state["size"] = grad.norm()


def schedule_free(params, lr=1e-3):
    optimizer = schedulefree.AdamWScheduleFree(params, lr=lr, foreach=False)
    optimizer.train()
    return optimizer


KINDS = {
    "master weights": Master,
    "master weights elsewhere": MasterElsewhere,
    "averaging": Averaging,
    "lookahead": Lookahead,
    "around another": Wrapping,
    "consuming": Consuming,
    "noisy": Noisy,
    "schedule-free": schedule_free,
}
for_every_kind = pytest.mark.parametrize("kind", KINDS)


def network(kind):
    torch.manual_seed(5)
    return plain_network(torch.bfloat16 if kind == "master weights" else torch.float32)


def data_for(kind, count):
    return batches(count, torch.bfloat16 if kind == "master weights" else torch.float32)


def weights_of(model):
    return [p.detach().clone() for p in model.parameters()]


def state_of(optimizer):
    return copy.deepcopy([dict(optimizer.state[p]) for p in optimizer.param_groups[0]["params"]])


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def is_found(opt):
    return opt.state_dict()["param_groups"][0]["probstep"]["keeps_weights"] == 1


@for_every_kind
def test_every_step_is_bit_for_bit_the_bare_optimizers_at_the_rate_that_was_kept(kind):
    model, twin = network(kind), network(kind)
    opt, bare = ProbStep(KINDS[kind](model.parameters()), Halving()), KINDS[kind](twin.parameters())
    for batch in data_for(kind, 8):
        start = torch.get_rng_state()
        loss = step_with_closure(opt, model, batch)
        torch.set_rng_state(start)
        bare.param_groups[0]["lr"] = 1e-3 * opt.scale
        assert train_bare(twin, bare, [batch]) == [loss]
        same(weights_of(model), weights_of(twin))
        same(state_of(opt.base), state_of(bare))
    assert is_found(opt)
    assert opt.metrics()["probes/reject"] == 2 * 7


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if not OPTIMIZERS[name].warns])
@pytest.mark.parametrize("rule", [PaperRule(), RobustRule()], ids=["paper", "robust"])
def test_ordinary_optimizers_are_not_taken_for_such(name, rule):
    model = plain_network()
    opt = ProbStep(OPTIMIZERS[name].make(model.parameters()), rule)
    step_with_closure(opt, model, batches(1)[0])
    assert not is_found(opt)


# torch casts a loaded state to the parameters' format, which master weights never survive.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "master weights"])
def test_a_resumed_run_goes_on_as_if_it_had_not_stopped(kind):
    ends = []
    for is_resumed in (False, True):
        model = network(kind)
        opt = ProbStep(KINDS[kind](model.parameters()), Halving())
        for k, batch in enumerate(data_for(kind, 6)):
            if k == 4 and is_resumed:
                saved = copy.deepcopy(opt.state_dict())
                inner = opt.base
                opt = ProbStep(KINDS[kind](model.parameters()), Halving())
                opt.load_state_dict(saved)
                assert is_found(opt)
                for name in ("masters", "steps"):  # what such an optimizer does not save
                    if hasattr(inner, name):
                        setattr(opt.base, name, getattr(inner, name))
                if hasattr(inner, "inner"):
                    opt.base.inner.state = inner.inner.state
                    opt.base.inner.param_groups = opt.base.param_groups
            step_with_closure(opt, model, batch)
        ends.append(weights_of(model))
    same(ends[0], ends[1])


def test_a_checkpoint_that_says_nothing_of_it_is_examined_anew():
    model = network("averaging")
    opt = ProbStep(Averaging(model.parameters()), RobustRule())
    first, second = batches(2)
    step_with_closure(opt, model, first)
    saved = copy.deepcopy(opt.state_dict())
    for group in saved["param_groups"]:
        group["probstep"].pop("keeps_weights", None)
    opt = ProbStep(Averaging(model.parameters()), Halving())
    opt.load_state_dict(saved)
    assert not is_found(opt)
    step_with_closure(opt, model, second)
    assert is_found(opt)


def test_a_stretched_step_is_the_bare_optimizers_at_a_longer_rate():
    lr, kind = 1e-4, MasterElsewhere
    model, twin = network("").double(), network("").double()
    opt = ProbStep(kind(model.parameters(), lr), PaperRule(up=1, down=1), lower_bound=0.0)
    bare = kind(twin.parameters())
    for batch in batches(4, torch.float64):
        loss = step_with_closure(opt, model, batch)
        loss_of(twin, batch).backward()
        polyak = 2 * loss / sum(p.grad.square().sum() for p in twin.parameters())
        bare.param_groups[0]["lr"] = polyak.item()
        bare.step()
        bare.zero_grad()
        torch.testing.assert_close(weights_of(model), weights_of(twin), rtol=1e-9, atol=1e-9)
        same(weights_of(model), opt.base.masters)


@for_every_kind
def test_a_probe_that_raises_takes_parameters_and_state_back(kind):
    model = network(kind)
    opt = ProbStep(KINDS[kind](model.parameters()), Halving())
    first, second = data_for(kind, 2)
    step_with_closure(opt, model, first)
    before = weights_of(model), state_of(opt.base)
    calls = []

    def closure():
        calls.append(1)
        if len(calls) == 3:
            raise KeyError
        return loss_of(model, second)

    with pytest.raises(KeyError):
        opt.step(closure)
    same((weights_of(model), state_of(opt.base)), before)


def test_hooks_fire_once_though_the_step_is_taken_anew():
    model = network("averaging")
    opt = ProbStep(Averaging(model.parameters()), Halving())
    calls = []
    opt.base.register_step_pre_hook(lambda *_: calls.append("before"))
    opt.base.register_step_post_hook(lambda *_: calls.append("after"))
    for batch in batches(3):
        step_with_closure(opt, model, batch)
    assert calls == ["before", "after"] * 3


@for_every_kind
def test_such_an_optimizer_learns_as_well_as_it_does_alone(kind):
    ends = []
    for is_adapted in (False, True):
        model = network(kind)
        base = KINDS[kind](model.parameters(), lr=1e-2)
        opt = ProbStep(base) if is_adapted else base
        for batch in data_for(kind, 60):
            if is_adapted:
                step_with_closure(opt, model, batch)
            else:
                train_bare(model, base, [batch])
        with torch.no_grad():
            ends.append(sum(loss_of(model, batch) for batch in data_for(kind, 10)).item())
    assert ends[1] < 1.5 * ends[0]


def test_an_optimizer_that_does_not_move_at_first_is_searched_when_it_does():
    model = plain_network()
    opt = ProbStep(Waiting(model.parameters()))
    (batch,) = batches(1)
    losses = [step_with_closure(opt, model, batch).item() for _ in range(10)]
    assert losses[0] == losses[1] > 1.1 * losses[-1]
    assert opt.metrics()["probes/search"] == 1


class EstimatesItsRate(OwnStep):
    """Has the settings of D-Adaptation."""

    def __init__(self, params, lr=1.0, **settings):
        optim.Optimizer.__init__(self, params, {"lr": lr, **settings})


@pytest.mark.parametrize(
    "settings",
    [{"d": 1e-6, "d0": 1e-6}, {"d": 1e-6, "growth_rate": float("inf")}, {"d": 1e-6, "step": 0}],
)
def test_an_optimizer_that_estimates_its_own_rate_is_refused_by_name(settings):
    base = EstimatesItsRate([nn.Parameter(torch.ones(1))], **settings)
    with pytest.raises(TypeError, match="EstimatesItsRate estimates its own learning rate"):
        ProbStep(base)


@pytest.mark.parametrize("kind", sorted(FAMILIAR, key=lambda kind: kind.__name__))
def test_trying_two_rates_finds_no_weights_in_an_optimizer_that_is_taken_to_have_none(kind):
    torch.manual_seed(0)
    w = nn.Parameter(torch.randn(3, 4))
    w.grad = torch.randn(3, 4).to_sparse() if kind is optim.SparseAdam else torch.randn(3, 4)
    settings = {optim.SGD: {"momentum": 0.9}, optim.RMSprop: {"momentum": 0.9}}
    base = kind([w], lr=0.1, **settings.get(kind, {"amsgrad": True} if kind is optim.Adam else {}))
    with torch.no_grad(), Attempt(base, Ranks()) as attempt:
        attempt.keep(is_search=True)
        assert not found_by_trying(attempt, base, Ranks())
        attempt.undo()


def test_a_familiar_optimizer_with_a_step_of_somebodys_own_is_tried():
    w = nn.Parameter(torch.randn(3))
    base, masters = optim.SGD([w], lr=0.1), {}

    def step():
        master = masters.setdefault(w, base.state[w].setdefault("master", w.detach().double()))
        master.sub_(base.param_groups[0]["lr"] * w.grad.double())
        w.data.copy_(master)

    base.step = step
    opt = ProbStep(base)
    opt.step(lambda: w.square().sum())
    assert is_found(opt)


@pytest.mark.parametrize("kind", [optim.ASGD, optim.Rprop])
def test_of_the_others_of_torch_the_state_depends_on_the_rate(kind):
    w = nn.Parameter(torch.randn(3, 4))
    w.grad = torch.randn(3, 4)
    base, ranks = kind([w], lr=0.1), Ranks()
    with torch.no_grad(), Attempt(base, ranks) as attempt:
        attempt.keep(is_search=True)
        assert found_by_trying(attempt, base, ranks)
        attempt.undo()

"""RobustRule: any initial rate, no damage, few probes; and all that holds for every rule."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import probstep
from probstep import ProbStep, RobustRule

from .cases import FORMS, OPTIMIZERS, batches, loss_of, network, plain_network, train_bare

BASES = {
    "sgd": lambda params, lr: torch.optim.SGD(params, lr=lr),
    "momentum": lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.9),
    "adagrad": lambda params, lr: torch.optim.Adagrad(params, lr=lr),
    "rmsprop": lambda params, lr: torch.optim.RMSprop(params, lr=lr),
    "adam": lambda params, lr: torch.optim.Adam(params, lr=lr),
    "adamw": lambda params, lr: torch.optim.AdamW(params, lr=lr),
}


def train(name, lr, steps=40, net=plain_network, data=None):
    torch.manual_seed(0)
    model = net()
    opt = ProbStep(BASES[name](model.parameters(), lr), RobustRule())
    losses = [FORMS["closure"](opt, model, batch).item() for batch in (data or batches(steps))]
    return losses, opt, model


@pytest.mark.parametrize("name", BASES)
def test_nothing_depends_on_the_initial_rate(name):
    expected, opt, _ = train(name, 1e-3)
    for lr in (1e-8, 1.0, 1e2, 1e6):
        losses, other, _ = train(name, lr)
        assert losses == pytest.approx(expected, rel=1e-4)
        assert other.effective_lr == pytest.approx(opt.effective_lr, rel=1e-3)


@pytest.mark.parametrize("name", BASES)
def test_the_loss_falls_with_default_momentum(name):
    losses, _, _ = train(name, 1e3, steps=150)
    assert sum(losses[-10:]) < 0.6 * sum(losses[:10])


def test_probes_stay_within_the_budget():
    for rule in (RobustRule(), RobustRule(budget=(5.0, 0.0))):
        model = plain_network()
        opt = ProbStep(torch.optim.Adam(model.parameters()), rule)
        for batch in batches(200):
            FORMS["closure"](opt, model, batch)
        at_once, per_step = rule.budget
        # The search, and the tries of one probed step, may run over.
        assert opt.metrics()["probe_forwards"] <= at_once + per_step * 200 + 20


def cliff(theta):
    return torch.where(theta > 0.5, theta**2, torch.full_like(theta, torch.inf)).sum()


@pytest.mark.filterwarnings("ignore:The scale has fallen")  # as it must, towards a cliff
def test_a_bad_step_is_taken_back_and_the_base_has_stepped_once():
    theta = nn.Parameter(torch.ones(1, dtype=torch.float64))
    opt = ProbStep(torch.optim.Adam([theta], lr=1e-3), RobustRule(), probe=probstep.EveryStep())
    calls = []
    opt.base.register_step_post_hook(lambda *a: calls.append(1))
    for k in range(1, 30):
        opt.step(lambda: cliff(theta))
        assert theta.item() > 0.5
        assert opt.state[theta]["step"].item() == len(calls) == k


class Infinite(torch.optim.SGD):
    """Its step is infinite from the given one on."""

    def __init__(self, params, lr, since):
        super().__init__(params, lr=lr)
        self.since, self.steps = since, 0

    def step(self, closure=None):
        super().step()
        self.steps += 1
        if self.steps >= self.since:
            self.param_groups[0]["params"][0].data.fill_(torch.inf)


@pytest.mark.filterwarnings("ignore:The loss was not finite")
@pytest.mark.parametrize("since", [1, 2])
def test_a_step_that_is_bad_at_every_length_is_taken_back_bit_for_bit(since):
    theta = nn.Parameter(torch.tensor([-0.0, 3.0]))
    opt = ProbStep(Infinite([theta], 1e-3, since), RobustRule())
    for _ in range(since):
        before = theta.detach().clone()
        opt.step(lambda: (theta**2).sum())
    assert torch.equal(theta, before)
    assert torch.equal(theta.signbit(), before.signbit())


def test_the_searched_step_starts_from_the_parameters_bit_for_bit():
    theta = nn.Parameter(torch.tensor([0.1, 3.0]))
    before = theta.detach().clone()
    opt = ProbStep(torch.optim.SGD([theta], lr=1e5), RobustRule())
    opt.step(lambda: (theta**2).sum())
    # eta * h is between 0.1 and 1.5 of the line's minimum: the step is along the gradient, and short.
    moved = (before - theta.detach()) / (2 * before)
    torch.testing.assert_close(moved[0], moved[1])
    assert 0.02 < moved[0] < 0.8


@pytest.mark.parametrize("form", FORMS)
def test_random_numbers_buffers_and_hooks_are_the_bare_optimizers(form):
    data = batches(8)
    torch.manual_seed(3)
    bare_model = network()
    train_bare(bare_model, OPTIMIZERS["adam"].make(bare_model.parameters()), data)
    expected = torch.get_rng_state()

    torch.manual_seed(3)
    model = network()
    opt = ProbStep(OPTIMIZERS["adam"].make(model.parameters()), RobustRule())
    for batch in data:
        FORMS[form](opt, model, batch)
    assert torch.equal(torch.get_rng_state(), expected)
    assert model[1].num_batches_tracked.item() == len(data)
    assert opt.metrics()["probes/unpaired"] == 0


def test_training_is_the_same_however_the_loss_arrives():
    data = batches(60)
    losses = {}
    for form in FORMS:
        torch.manual_seed(0)
        model = plain_network()
        opt = ProbStep(torch.optim.Adam(model.parameters()), RobustRule())
        losses[form] = [FORMS[form](opt, model, batch).item() for batch in data]
    assert all(seen == losses["closure"] for seen in losses.values())


def first_rate(form, *, params=torch.float32, autocast=None, loss=torch.float32, compiled=False):
    """The rate that a search finds, in various formats of parameters, model and loss."""
    torch.manual_seed(0)
    x = torch.randn(64, 10)
    y = (x[:, 0] > 0).long()
    layers = [m for k in range(4) for m in (nn.Linear(32 if k else 10, 32), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(32, 2)).to(params)
    model = torch.compile(model, backend="eager") if compiled else model
    base = torch.optim.SGD(model.parameters(), lr=1e-9, momentum=0.9)
    opt = ProbStep(base, RobustRule(), model=model if compiled else None)

    def compute():
        with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
            logits = model(x.to(params))
            logits = logits if params == torch.float64 else logits.float()
            return nn.functional.cross_entropy(logits, y).to(loss)

    if form == "closure":
        opt.step(compute)
    else:
        with opt.forward_pass() if form == "forward_pass" else nullcontext():
            value = compute()
        value.backward()
        opt.step(loss=value, reevaluate=compute)
    return opt.effective_lr[0]


@pytest.mark.parametrize(
    "formats",
    [
        {"autocast": torch.bfloat16},
        {"autocast": torch.float16},
        {"autocast": torch.bfloat16, "compiled": True},
        {"params": torch.bfloat16},
        {"params": torch.float16},
        {"loss": torch.float64},
        {"params": torch.float64, "loss": torch.float64},
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["closure", "forward_pass", "loss and reevaluate"])
def test_the_search_is_not_misled_by_rounding(form, formats):
    """A step below the rounding of model or parameters changes nothing, which looks like a valley."""
    assert 1 / 3 < first_rate(form, **formats) / first_rate(form) < 3


def test_gradients_after_a_searched_step_are_those_of_the_batch():
    model = plain_network()
    (batch,) = batches(1)
    expected = torch.autograd.grad(loss_of(model, batch), list(model.parameters()))
    opt = ProbStep(torch.optim.Adam(model.parameters()), RobustRule())
    FORMS["closure"](opt, model, batch)
    torch.testing.assert_close([p.grad for p in model.parameters()], list(expected), rtol=0, atol=0)


def test_unpaired_from_the_start_it_steps_at_the_users_own_rate():
    model = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5))
    (batch,) = batches(1)
    before = model[0].weight.detach().clone()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=0.25), RobustRule())
    opt.zero_grad()
    torch.rand(1)
    loss = loss_of(model, batch)
    loss.backward()
    with pytest.warns(RuntimeWarning, match="other random numbers"):
        opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch))
    torch.testing.assert_close(model[0].weight.detach(), before - 0.25 * model[0].weight.grad)
    assert opt.scale == 1.0


def test_a_first_batch_without_a_gradient_leaves_scale_and_parameters_and_the_next_is_searched():
    theta = nn.Parameter(torch.ones(2))
    opt = ProbStep(torch.optim.SGD([theta], lr=0.5), RobustRule())
    opt.step(lambda: (theta * 0).sum() + 1)
    assert opt.scale == 1.0
    assert theta.tolist() == [1.0, 1.0]
    opt.step(lambda: (theta**2).sum())
    assert opt.last_probe.decision == "search"
    assert opt.last_probe.loss_after < opt.last_probe.loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_on_a_quadratic_it_converges_and_the_scale_does_not_collapse(dtype, name):
    h = torch.logspace(0, -1.5, 8, dtype=dtype)
    theta = nn.Parameter(torch.ones(8, dtype=dtype))
    opt = ProbStep(BASES[name]([theta], 1e-5), RobustRule())
    for _ in range(600):
        opt.step(lambda: (h * theta**2).sum() / 2)
    assert (h * theta**2).sum().item() / 2 < 1e-3
    assert opt.effective_lr[0] > 1e-6


@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: lr_scheduler.CosineAnnealingLR(o, 60),
        lambda o: lr_scheduler.LambdaLR(o, lambda k: min(1.0, k / 20)),
        lambda o: lr_scheduler.OneCycleLR(o, 1e-2, total_steps=61),
    ],
)
def test_a_schedule_goes_on_top(schedule):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-2), RobustRule())
    scheduler = schedule(opt)
    data = batches(60)
    losses = []
    for batch in data:
        losses.append(FORMS["closure"](opt, model, batch).item())
        scheduler.step()
    assert sum(losses[-10:]) < sum(losses[:10])
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_an_unprobed_step_reads_only_what_the_step_before_left(monkeypatch):
    monkeypatch.setattr("probstep.step.unprobed.is_on_host", lambda _: False)
    model = plain_network()
    rule = RobustRule(budget=(1.0, 0.0))
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), rule)
    data = batches(4)
    losses = [FORMS["closure"](opt, model, batch).item() for batch in data[:2]]
    reads = []
    item = torch.Tensor.item
    monkeypatch.setattr(torch.Tensor, "tolist", pytest.fail)
    monkeypatch.setattr(torch.Tensor, "item", lambda t: reads.append(item(t)) or item(t))
    FORMS["closure"](opt, model, data[2])
    assert reads == losses[-1:]


def test_bound_and_noise_are_refused():
    base = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(ValueError, match="go with PaperRule"):
        ProbStep(base, RobustRule(), lower_bound=0.0)


def test_the_posterior_of_the_scale_is_shown():
    losses, opt, _ = train("adam", 1e-3)
    assert len(losses) == 40
    assert 0 < opt.metrics()["log_scale_deviation"] <= 1


def test_probstep_schedules_can_replace_its_own():
    model = plain_network()
    opt = ProbStep(
        torch.optim.SGD(model.parameters(), lr=1e-3), RobustRule(), probe=probstep.EveryStep()
    )
    for batch in batches(10):
        FORMS["closure"](opt, model, batch)
    assert opt.metrics()["probe_forwards"] >= 10


@pytest.mark.parametrize(("name", "waits"), [("sgd", 0), ("adam", 1)])
def test_a_surprising_loss_has_the_next_step_probed_and_with_momentum_the_one_after_it(name, waits):
    torch.manual_seed(0)
    model = plain_network()
    opt = ProbStep(BASES[name](model.parameters(), 1e-3), RobustRule(doubt=0.9))
    probes, surprise = [], 20
    for t, batch in enumerate(batches(surprise + 4)):
        weight = 10 if t == surprise else 1
        opt.step(lambda batch=batch, weight=weight: weight * loss_of(model, batch))
        probes.append(opt.history().probes[-1])
    answer = surprise + 1 + waits
    assert [t for t in range(surprise, len(probes)) if probes[t] > probes[t - 1]] == [answer]


def test_a_plateau_that_noise_hides_is_left():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 1))
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))
    for _ in range(1000):
        x = torch.randint(0, 2, (64, 20)) * 2.0 - 1.0
        y = (x[:, :3].prod(1) + 1) / 2  # the parity of three bits

        def loss(x=x, y=y):
            return nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)

        last = opt.step(loss)
    assert last.item() < 0.1

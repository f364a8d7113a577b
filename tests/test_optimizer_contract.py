"""ProbStep is a torch optimizer: groups, hooks, schedulers, every kind of parameter and gradient."""

import contextlib
import warnings

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from probstep import PaperRule, ProbStep, RobustRule

from .cases import (
    FICKLE,
    FROZEN,
    OPTIMIZERS,
    batches,
    for_every_rule,
    loss_of,
    plain_network,
    step_with_closure,
    train_bare,
)

SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda k: 0.9**k),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda k: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 3], 0.5),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.3, 3),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.3, total_iters=4),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 10),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 1e-3, 1e-1, 3, cycle_momentum=False),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=20),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(o, 0.3, 3), lr_scheduler.ExponentialLR(o, 0.9)]
    ),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.3, 3), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
}


def rates_of(opt, make_scheduler, steps=8):
    """The `lr` that a scheduler writes over a few steps."""
    model = plain_network()
    base = opt(model.parameters())
    scheduler = make_scheduler(base)
    seen = []
    for batch in batches(steps):
        if isinstance(base, ProbStep):
            step_with_closure(base, model, batch)
        else:
            train_bare(model, base, [batch])
        plateau = isinstance(scheduler, lr_scheduler.ReduceLROnPlateau)
        scheduler.step(1.0) if plateau else scheduler.step()
        seen.append(float(base.param_groups[0]["lr"]))
    return seen, base


@for_every_rule
@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_scheduler_composes_exactly_and_the_scale_survives(name, as_tensor, rule):
    def bare(params):
        return torch.optim.SGD(params, lr=torch.tensor(1e-3) if as_tensor else 1e-3, momentum=0.5)

    expected, _ = rates_of(bare, SCHEDULERS[name])
    seen, opt = rates_of(lambda params: ProbStep(bare(params), rule), SCHEDULERS[name])
    assert seen == expected
    assert opt.scale != 1
    assert opt.effective_lr == [seen[-1] * opt.scale]


def test_a_scheduler_that_was_made_for_the_inner_optimizer_goes_on_working():
    model = plain_network()
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = lr_scheduler.StepLR(base, 1, 0.5)
    opt = ProbStep(base, FROZEN)
    step_with_closure(opt, model, batches(1)[0])
    scheduler.step()
    assert opt.effective_lr == [0.05]


@for_every_rule
def test_a_tensor_lr_is_scaled_in_place_even_when_groups_share_it(rule):
    lr = torch.tensor(0.5)
    a, b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    opt = ProbStep(torch.optim.SGD([{"params": [a]}, {"params": [b]}], lr=lr), rule)
    opt.step(lambda: (a * b * 1e-3).sum())
    opt.step(lambda: (a * b * 1e-3).sum())
    assert opt.param_groups[0]["lr"] is lr
    assert lr.item() == 0.5
    assert a.item() == b.item()
    assert opt.effective_lr == [0.5 * opt.scale] * 2


@for_every_rule
def test_groups_keep_the_ratios_of_their_rates(rule):
    a, b = (nn.Parameter(torch.ones(2)) for _ in "ab")
    base = torch.optim.SGD([{"params": [a], "lr": 1e-3}, {"params": [b], "lr": 1e-2}])
    opt = ProbStep(base, rule)
    for _ in range(3):
        opt.step(lambda: (a.sum() + b.sum()) ** 2)
    scale = 1.2**3 if isinstance(rule, PaperRule) else opt.scale
    assert opt.effective_lr == pytest.approx([1e-3 * scale, 1e-2 * scale])
    assert (1 - b).sum().item() == pytest.approx(10 * (1 - a).sum().item(), rel=1e-4)


FROZEN_FIRST = {"by its rate": 0.0, "by its schedule": 1e-2}


@for_every_rule
@pytest.mark.parametrize("how", FROZEN_FIRST)
def test_a_first_group_that_stands_still_is_no_obstacle(rule, how):
    a, b = (nn.Parameter(torch.ones(2)) for _ in "ab")
    groups = [{"params": [a], "lr": FROZEN_FIRST[how]}, {"params": [b]}]
    opt = ProbStep(torch.optim.SGD(groups, lr=1e-2), rule)
    schedule = lr_scheduler.LambdaLR(opt, [lambda k: float(k > 3), lambda k: 1.0])
    for _ in range(4):
        opt.step(lambda: (a**2 + b**2).sum())
        schedule.step()
    assert a.tolist() == [1.0, 1.0]
    assert opt.scale > 1
    assert b[0].item() < 1
    opt.step(lambda: (a**2 + b**2).sum())
    assert (a[0].item() < 1) == (how == "by its schedule")


@for_every_rule
def test_a_rate_of_zero_that_the_host_did_not_read_is_a_step_of_no_length(rule, monkeypatch):
    a = nn.Parameter(torch.ones(2))
    opt = ProbStep(torch.optim.SGD([a], lr=1e-2), rule)
    schedule = lr_scheduler.LambdaLR(opt, lambda k: float(k > 0))
    monkeypatch.setattr(  # as for a tensor on a device
        "probstep.step.due.glance", lambda groups, first_rates, moved: (True, 1, False)
    )
    opt.step(lambda: (a**2).sum())
    assert (a.tolist(), opt.scale) == ([1.0, 1.0], 1.0)
    schedule.step()
    opt.step(lambda: (a**2).sum())
    assert a[0].item() < 1


@for_every_rule
@pytest.mark.parametrize("is_saved", [False, True])
@pytest.mark.parametrize("through", ["ProbStep", "the base", "a copy of a group"])
def test_a_group_added_later_joins_the_scale(through, is_saved, rule):
    a, b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    opt = ProbStep(torch.optim.SGD([a], lr=1e-3), rule)
    opt.step(lambda: (a**2).sum())
    scale = 1.2 if isinstance(rule, PaperRule) else opt.scale
    copied = opt.param_groups[0] if through == "a copy of a group" else {}
    adding = opt if through == "ProbStep" else opt.base
    adding.add_param_group({**copied, "params": [b], "lr": 1e-2})
    if is_saved:
        assert opt.state_dict()["param_groups"][1]["probstep"]["first_rates"] == [1e-3, 1e-2]
    assert opt.effective_lr == pytest.approx([1e-3 * scale, 1e-2 * scale])
    opt.step(lambda: (a**2 + b**2).sum())
    assert b.item() < 1


@pytest.mark.parametrize(("rule", "decision"), [(PaperRule(), "up"), (RobustRule(), "search")])
def test_an_empty_group_and_frozen_and_unused_parameters_are_no_obstacle(rule, decision):
    a, unused = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    frozen = nn.Parameter(torch.ones(1), requires_grad=False)
    nothing = nn.Parameter(torch.ones(0))
    base = torch.optim.Adam([{"params": [a, unused, frozen, nothing]}, {"params": []}], lr=1e-3)
    opt = ProbStep(base, rule)
    opt.step(lambda: (a * frozen).square().sum() + nothing.sum())
    assert a.item() < 1 == unused.item() == frozen.item()
    assert opt.last_probe.decision == decision


@for_every_rule
def test_a_step_without_any_gradient_is_no_obstacle(rule):
    a = nn.Parameter(torch.ones(1))
    opt = ProbStep(torch.optim.SGD([a], lr=0.1), rule)
    loss = torch.ones((), requires_grad=True) * 1.0
    with pytest.warns(RuntimeWarning, match="has a gradient"):
        opt.step(loss=loss, reevaluate=loss.clone)
    assert opt.scale == 1.0


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.SparseAdam])
def test_sparse_gradients_have_the_slope_of_their_dense_twins(kind):
    slopes = []
    for sparse in (True, False):
        torch.manual_seed(0)
        table = nn.Embedding(10, 4, sparse=sparse)
        base = kind(table.parameters(), lr=0.1) if sparse else None
        if base is None:
            base = torch.optim.SGD if kind is torch.optim.SGD else torch.optim.Adam
            base = base(table.parameters(), lr=0.1)
        opt = ProbStep(base, PaperRule())
        opt.step(lambda table=table: table(torch.tensor([1, 3, 3])).square().sum())
        slopes.append(opt.last_probe.slope)
    assert slopes[0] == pytest.approx(slopes[1])


def test_sparse_gradients_are_as_long_as_their_dense_twins_though_they_name_a_row_twice():
    losses, rows = [], torch.tensor([1, 3, 3, 3])
    for sparse in (True, False):
        torch.manual_seed(0)
        table = nn.Embedding(10, 4, sparse=sparse, dtype=torch.float64)
        opt = ProbStep(torch.optim.SGD(table.parameters(), lr=0.1), RobustRule())
        losses.append(
            [opt.step(lambda table=table: table(rows).pow(4).sum()).item() for _ in range(30)]
        )
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


@for_every_rule
def test_complex_parameters_have_the_slope_of_their_real_and_imaginary_parts(rule):
    z = nn.Parameter(torch.tensor([1 + 2j, -1 + 0.5j]))
    w = nn.Parameter(torch.view_as_real(z.detach()).clone())
    probes = []
    for p, f in ((z, lambda: z.abs().pow(2).sum()), (w, lambda: w.pow(2).sum())):
        opt = ProbStep(torch.optim.SGD([p], lr=0.1, weight_decay=0.1), rule)
        opt.step(f)
        probes.append(opt.last_probe)
    assert probes[0].slope == pytest.approx(probes[1].slope)
    assert probes[0].ratio == pytest.approx(probes[1].ratio)


@for_every_rule
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_parameters_of_any_precision_are_adapted_and_keep_it(dtype, rule):
    model = nn.Linear(6, 3).to(dtype)
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-2), rule)
    for x, y in batches(4, dtype):
        opt.step(lambda x=x, y=y: nn.functional.cross_entropy(model(x).float(), y))
    assert all(p.dtype == dtype for p in model.parameters())
    assert opt.scale > 1


@pytest.mark.parametrize(
    "settings", [{"rule": PaperRule(), "lower_bound": 0.0}, {"rule": RobustRule()}]
)
def test_parameters_of_mixed_precision_are_adapted_together(settings):
    a = nn.Parameter(torch.ones(2, dtype=torch.float64))
    b = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    opt = ProbStep(torch.optim.SGD([a, b], lr=1e-2), **settings)
    opt.step(lambda: (a**2).sum() + (b.double() ** 2).sum())
    assert (a.dtype, b.dtype) == (torch.float64, torch.bfloat16)
    assert opt.last_probe.loss_after < opt.last_probe.loss


def test_a_half_precision_loss_is_judged_by_its_own_rounding():
    a = nn.Parameter(torch.ones(2))
    opt = ProbStep(torch.optim.SGD([a], lr=1e-4), PaperRule())
    opt.step(lambda: (a**2).sum().bfloat16())
    assert opt.last_probe.decision == "uninformative"


@for_every_rule
@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if not OPTIMIZERS[n].warns])
def test_every_optimizer_lowers_the_loss_under_adaptation(name, rule):
    model = plain_network()
    opt = ProbStep(OPTIMIZERS[name].make(model.parameters()), rule)
    (batch,) = batches(1)
    losses = [step_with_closure(opt, model, batch).item() for _ in range(30)]
    up = "maximize" in name
    assert (losses[-1] > losses[0]) if up else (losses[-1] < losses[0])


@for_every_rule
def test_muon_is_adapted_too(rule):
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.Tanh(), nn.Linear(8, 3, bias=False))
    opt = ProbStep(torch.optim.Muon(model.parameters(), lr=1e-3), rule)
    (batch,) = batches(1)
    losses = [step_with_closure(opt, model, batch).item() for _ in range(20)]
    assert losses[-1] < losses[0]
    assert opt.scale > 1


class Consuming(torch.optim.SGD):
    """Changes the gradients behind autograd's back and then drops them, as some optimizers do."""

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.grad.data.mul_(0.5)
            p.data.add_(p.grad, alpha=-2 * self.param_groups[0]["lr"])
            p.grad = None


@for_every_rule
def test_an_optimizer_that_changes_and_drops_its_gradients_is_measured_rightly(rule):
    probes = []
    for kind in (Consuming, torch.optim.SGD):
        a = nn.Parameter(torch.tensor([1.0, 2.0]))
        opt = ProbStep(kind([a], lr=1e-2), rule)
        opt.step(lambda a=a: (a**2).sum())
        probes.append(opt.last_probe)
    assert probes[0] == probes[1]


@pytest.mark.parametrize("rule", [PaperRule(), FICKLE], ids=["paper", "searched and taken back"])
def test_hooks_fire_exactly_once_wherever_they_are_registered(rule):
    calls = []
    model = plain_network()
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    opt = ProbStep(base, rule)
    handles = [
        base.register_step_pre_hook(lambda *a: calls.append("base before")),
        base.register_step_post_hook(lambda *a: calls.append("base after")),
        opt.register_step_pre_hook(lambda *a: calls.append("before")),
        opt.register_step_post_hook(lambda *a: calls.append("after")),
        register_optimizer_step_pre_hook(lambda *a: calls.append("global before")),
        register_optimizer_step_post_hook(lambda *a: calls.append("global after")),
    ]
    for batch in batches(2):
        step_with_closure(opt, model, batch)
    for handle in handles:
        handle.remove()
    assert calls == 2 * [
        "before", "global before", "base before", "base after", "global after", "after",
    ]  # fmt: skip


def test_a_hook_of_the_base_that_clips_gradients_is_searched_with():
    rates = []
    for limit in (None, 0.5):
        a = nn.Parameter(torch.tensor([3.0, 4.0], dtype=torch.float64))
        base = torch.optim.SGD([a], lr=1e-3)
        opt = ProbStep(base, RobustRule())
        factor = 1.0
        if limit is not None:
            base.register_step_pre_hook(lambda *_, a=a, by=limit: [a.grad.mul_(by)].clear())
            factor = limit
        opt.step(lambda a=a: (a**2).sum(), **({} if limit is None else {"grad_scale": limit}))
        rates.append(opt.effective_lr[0] * factor)
        assert a.grad.tolist() == [6.0 * factor, 8.0 * factor]
    assert rates[0] == pytest.approx(rates[1], rel=1e-6)


@for_every_rule
def test_a_pre_hook_may_replace_the_arguments(rule):
    a = nn.Parameter(torch.ones(1))
    opt = ProbStep(torch.optim.SGD([a], lr=0.1), rule)
    other = lambda: (3 * a).sum()  # noqa: E731
    opt.register_step_pre_hook(lambda o, args, kwargs: ((o, other), {}))
    assert opt.step(lambda: a.sum()).item() == 3.0


def test_the_default_is_the_robust_rule():
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=0.1))
    assert opt.rule == RobustRule()
    assert "rule=RobustRule(" in repr(opt)


def test_it_is_an_optimizer_and_schedulers_give_no_warning():
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=0.1))
    assert isinstance(opt, torch.optim.Optimizer)
    scheduler = lr_scheduler.StepLR(opt, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step_with_closure(opt, model, batches(1)[0])
        scheduler.step()


def test_groups_and_state_can_be_replaced_through_the_wrapper():
    model = plain_network()
    base = torch.optim.Adam(model.parameters())
    opt = ProbStep(base)
    groups, state = [dict(g) for g in base.param_groups], {"anything": 1}
    opt.param_groups, opt.state = groups, state
    assert base.param_groups is groups
    assert base.state is state


def test_an_ema_of_the_weights_follows():
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    ema = torch.optim.swa_utils.AveragedModel(model)
    for batch in batches(3):
        step_with_closure(opt, model, batch)
        ema.update_parameters(model)
    assert torch.isfinite(ema(batches(1)[0][0])).all()


CLIP = 0.01


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_slope_does_not_depend_on_clipping(by_hand):
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule())
    (batch,) = batches(1)
    opt.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    if by_hand:
        norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        settings = {"grad_scale": CLIP / norm}
    else:
        norm, settings = opt.clip_grad_norm_(CLIP), {}
    assert norm > CLIP
    opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch), **settings)
    # A tiny step sees no curvature: the ratio is 2, not 2 * norm / CLIP.
    assert opt.last_probe.ratio == pytest.approx(2.0, abs=0.1)
    opt.zero_grad()
    loss_of(model, batch).backward()
    opt.reevaluate_with(lambda: loss_of(model, batch))
    opt.step()
    assert opt.last_probe.ratio == pytest.approx(2.0, abs=0.1)  # it was for that step only


# Gradients that are zeroed in place, and clipped no more, cannot be told from clipped ones.
@pytest.mark.parametrize(
    ("is_always_clipped", "set_to_none"), [(True, True), (True, False), (False, True)]
)
def test_the_clipping_of_a_step_that_was_left_out_is_forgotten(is_always_clipped, set_to_none):
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule())
    (batch,) = batches(1)
    for is_left_out in (True, True, False):
        model.zero_grad(set_to_none)  # not opt.zero_grad(): ProbStep hears nothing of it
        loss = loss_of(model, batch)
        loss.backward()
        if is_left_out or is_always_clipped:
            opt.clip_grad_norm_(CLIP)
    opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch))
    assert opt.last_probe.ratio == pytest.approx(2.0, abs=0.1)


def test_clipping_twice_multiplies():
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule())
    (batch,) = batches(1)
    loss = loss_of(model, batch)
    loss.backward()
    opt.clip_grad_norm_(10 * CLIP)
    opt.clip_grad_norm_(CLIP)
    opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch))
    assert opt.last_probe.ratio == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("by_hand", [False, True])
def test_the_searched_step_does_not_depend_on_clipping(by_hand):
    (batch,) = batches(1)
    moved = []
    for clip in (None, CLIP):
        torch.manual_seed(0)
        model = plain_network(torch.float64)
        before = nn.utils.parameters_to_vector(model.parameters()).detach()
        opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), RobustRule())
        loss = loss_of(model, (batch[0].double(), batch[1]))
        loss.backward()
        settings = {}
        if clip is not None and by_hand:
            settings["grad_scale"] = clip / nn.utils.clip_grad_norm_(model.parameters(), clip)
        elif clip is not None:
            opt.clip_grad_norm_(clip)
        again = lambda model=model: loss_of(model, (batch[0].double(), batch[1]))  # noqa: E731
        opt.step(loss=loss, reevaluate=again, **settings)
        moved.append(before - nn.utils.parameters_to_vector(model.parameters()).detach())
    torch.testing.assert_close(moved[0], moved[1], rtol=1e-3, atol=0)


@pytest.mark.parametrize("parts", [1, 3])
def test_a_closure_may_cover_several_micro_batches(parts):
    data = batches(parts)
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule())
    opt.step(lambda: sum(loss_of(model, part) for part in data) / parts)
    assert opt.last_probe.ratio == pytest.approx(2.0, abs=0.1)


class Overflow(torch.autograd.Function):
    """The identity, whose gradient overflows."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.inf


@for_every_rule
@pytest.mark.parametrize("overflow", [False, True])
def test_grad_scaler_unscales_and_an_overflow_is_no_step(overflow, rule):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    (batch,) = batches(1)
    before = [p.detach().clone() for p in model.parameters()]
    loss = loss_of(model, batch)
    scaler.scale(Overflow.apply(loss) if overflow else loss).backward()
    scaler.step(opt, loss=loss, reevaluate=lambda: loss_of(model, batch))
    scaler.update()
    moved = any(not torch.equal(a, p) for a, p in zip(before, model.parameters(), strict=True))
    assert moved == (not overflow)
    assert (opt.last_probe is None) == overflow
    if not overflow and isinstance(rule, PaperRule):
        assert opt.last_probe.ratio == pytest.approx(2.0, abs=0.1)


def test_grad_scaler_takes_a_closure_positionally():
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule())
    scaler = torch.amp.GradScaler("cpu")
    (batch,) = batches(1)
    scaler.scale(loss_of(model, batch)).backward()
    scaler.step(opt, lambda: loss_of(model, batch))
    assert opt.last_probe.ratio == pytest.approx(2.0, abs=0.1)


@for_every_rule
def test_with_no_loss_it_is_the_base_at_the_present_scale_and_warns_once(rule):
    data = batches(4)
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), rule)
    step_with_closure(opt, model, data[0])
    scale = 1.2 if isinstance(rule, PaperRule) else opt.scale
    with pytest.warns(RuntimeWarning, match="no way to evaluate the loss again") as caught:
        train_bare(model, opt, data[1:])
    assert len(caught) == 1
    assert opt.scale == scale


@for_every_rule
def test_a_step_at_rate_zero_needs_no_loss(rule):
    a = nn.Parameter(torch.ones(1))
    opt = ProbStep(torch.optim.SGD([a], lr=0.0), rule)
    a.grad = torch.ones(1)
    opt.step()
    assert a.item() == 1.0


def test_reevaluate_with_holds_for_the_next_step_only():
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule())
    first, second = batches(2)
    calls = []
    loss = loss_of(model, first)
    loss.backward()
    opt.reevaluate_with(lambda: calls.append(1) or loss_of(model, first), loss)
    opt.step()
    assert len(calls) == 2  # the proof that the loss is the same, and the probe
    with pytest.warns(RuntimeWarning, match="no way"):
        train_bare(model, opt, [second])
    assert len(calls) == 2


def test_reevaluate_with_without_a_loss_costs_two_forwards_and_three_more_once():
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), PaperRule())
    for steps, batch in enumerate(batches(2), 1):
        opt.zero_grad()
        loss_of(model, batch).backward()
        opt.reevaluate_with(lambda batch=batch: loss_of(model, batch))
        opt.step()
        # Loss and probe; at the first step the same number again, and the slope forth and back.
        assert opt.metrics()["probe_forwards"] == 2 * steps + 3
    assert opt.last_probe.ratio == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize(
    ("through", "backward"),
    [
        ("model", True),
        ("model", False),
        ("optimizer", True),
        ("optimizer", False),
        ("nothing", False),
    ],
)
def test_a_closure_is_understood_whatever_it_does_to_the_gradients(set_to_none, backward, through):
    (batch,) = batches(1)
    ends = []
    for adapt in (False, True):
        torch.manual_seed(0)
        model = plain_network()
        base = torch.optim.SGD(model.parameters(), lr=0.1)
        opt = ProbStep(base, FROZEN) if adapt else base
        owner = {"model": model, "optimizer": base, "nothing": None}[through]

        def closure(model=model, owner=owner):
            if owner is not None:
                owner.zero_grad(set_to_none=set_to_none)
            loss = loss_of(model, batch)
            if backward:
                loss.backward()
            return loss

        for _ in range(6):  # long enough for a habit
            if adapt:
                opt.step(closure)
            else:
                train_bare(model, base, [batch])
        ends.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0)


@pytest.mark.parametrize("begins_with_backward", [True, False])
def test_a_closure_may_change_its_habit_of_running_backward(begins_with_backward):
    (batch,) = batches(1)
    ends = []
    for adapt in (False, True):
        torch.manual_seed(0)
        model = plain_network()
        base = torch.optim.SGD(model.parameters(), lr=0.1)
        opt = ProbStep(base, FROZEN) if adapt else base
        for step in range(18):
            has_backward = (step // 6 % 2 == 0) == begins_with_backward

            def closure(model=model, opt=opt, has_backward=has_backward):
                loss = loss_of(model, batch)
                if has_backward:
                    opt.zero_grad()
                    loss.backward()
                return loss

            if adapt:
                opt.step(closure)
            else:
                train_bare(model, base, [batch])
        ends.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0)


@pytest.mark.parametrize("has_backward", [True, False])
@pytest.mark.parametrize("used", range(0, 40, 3))
def test_a_closure_with_a_habit_may_use_a_single_parameter_for_once(used, has_backward):
    ends = []
    for adapt in (False, True):
        weights = [nn.Parameter(torch.ones(1)) for _ in range(40)]
        base = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
        opt = ProbStep(base, FROZEN) if adapt else base
        for step in range(8):
            some = weights if step != 6 else weights[used : used + 1]

            def closure(some=some, opt=opt, runs_backward=has_backward or step != 6):
                opt.zero_grad()
                loss = torch.cat(list(some)).square().sum()
                if runs_backward:
                    loss.backward()
                return loss

            if not adapt:
                closure(runs_backward=False).backward()
            opt.step(closure) if adapt else base.step()
        ends.append([p.detach() for p in weights])
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0)


@pytest.mark.parametrize("odd", range(3, 9))
@pytest.mark.parametrize("every", [1, 3, 8])
def test_old_gradients_do_not_pass_for_new_ones_where_most_parameters_are_frozen(every, odd):
    moves = [i % every == every - 1 for i in range(64)]
    weights = [nn.Parameter(torch.ones(1), requires_grad=moving) for moving in moves]
    moving = [p for p in weights if p.requires_grad]
    opt = ProbStep(torch.optim.SGD(weights, lr=1e-9), FROZEN)  # so low that no weight moves
    for step in range(10):

        def closure(step=step):
            loss = (step + 1) * torch.cat(moving).square().sum()
            if step != odd:
                opt.zero_grad()
                loss.backward()
            return loss

        opt.step(closure)
        assert [p.grad.item() for p in moving] == [2.0 * (step + 1)] * len(moving)


def test_zero_grad_is_the_optimizers_own_where_it_has_one():
    class Careful(torch.optim.SGD):
        cleared = 0

        def zero_grad(self, set_to_none=True):
            self.cleared += 1
            super().zero_grad(set_to_none)

    base = Careful([nn.Parameter(torch.ones(1))], lr=0.1)
    ProbStep(base).zero_grad()
    assert base.cleared == 1


@for_every_rule
def test_maximize_is_minimising_the_negated_loss(rule):
    runs = []
    for sign in (1.0, -1.0):
        a = nn.Parameter(torch.tensor([2.0, -1.0]))
        opt = ProbStep(torch.optim.SGD([a], lr=0.1, momentum=0.9, maximize=sign < 0), rule)
        for _ in range(20):
            opt.step(lambda a=a, sign=sign: sign * ((a**2).sum() + 1))
        runs.append((opt.metrics(), a.tolist()))
    assert runs[0] == runs[1]


def test_maximize_works_on_the_negated_loss_with_an_upper_bound():
    probes = []
    for sign in (1.0, -1.0):
        a = nn.Parameter(torch.tensor([2.0]))
        base = torch.optim.SGD([a], lr=0.1, maximize=sign < 0)
        opt = ProbStep(base, PaperRule(), lower_bound=sign * 1.0)
        opt.step(lambda a=a, sign=sign: sign * ((a**2).sum() + 1))
        probes.append((opt.last_probe, a.item()))
    assert probes[0] == probes[1]


@for_every_rule
def test_only_the_inner_optimizers_own_state_is_in_its_state(rule):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters()), rule)
    step_with_closure(opt, model, batches(1)[0])
    assert all(set(state) == {"step", "exp_avg", "exp_avg_sq"} for state in opt.base.state.values())


def test_the_public_names_read_well():
    opt = ProbStep(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.5), FROZEN)
    assert opt.last_probe is None
    assert "SGD" in repr(opt)
    assert "scale=1" in repr(opt)
    with contextlib.suppress(AttributeError):
        opt.scale = 2.0
    assert opt.scale == 1.0

"""The checks of a first step: what passes, what is refused, what they cost; they leave no trace."""

import copy
import itertools
import warnings

import pytest
import torch
from torch import nn

from probstep import Every, NotTheSameLoss, PaperRule, ProbStep, RobustRule
from probstep.memory import Memory, Probe
from probstep.notices import PATIENCE, STUBBORN, Notices, wrong_slope
from probstep.rules import Observation, Proposal

from .cases import FICKLE, FORMS, batches, for_every_rule, loss_of, network, plain_network

EPS = torch.finfo(torch.float32).eps


def trained(
    steps=12, *, form="closure", net=plain_network, lr=1e-3, base=torch.optim.Adam, **settings
):
    torch.manual_seed(0)
    model = net()
    opt = ProbStep(base(model.parameters(), lr=lr), **settings)
    losses = [FORMS[form](opt, model, batch).item() for batch in batches(steps)]
    return opt, model, losses


@for_every_rule
@pytest.mark.parametrize("form", FORMS)
def test_the_checks_change_no_trajectory(form, rule):
    runs = [trained(form=form, net=network, rule=rule, check=check) for check in (True, False)]
    (opt, model, losses), (unchecked, twin, same_losses) = runs
    assert losses == same_losses
    assert opt.scale == unchecked.scale
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)
    for b, c in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(b, c)


COSTS = {
    "a search": ({"rule": RobustRule()}, "closure", 1),
    "a search, of a bare step": ({"rule": RobustRule()}, "registered", 1),
    "no search": ({"rule": PaperRule()}, "closure", 1),
    "no search, of a bare step": ({"rule": PaperRule()}, "registered", 1 + 2),
}


@pytest.mark.parametrize("case", COSTS)
def test_a_correct_program_pays_once(case):
    settings, form, price = COSTS[case]
    forwards = [
        [trained(steps, form=form, check=check, **settings)[0] for check in (True, False)]
        for steps in (1, 8)
    ]
    for checked, unchecked in forwards:
        paid = checked.metrics()["probe_forwards"] - unchecked.metrics()["probe_forwards"]
        assert paid == price


@for_every_rule
def test_a_resumed_run_proves_nothing_again(rule):
    opt, model, _ = trained(form="registered", rule=rule)
    fresh = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    fresh.load_state_dict(copy.deepcopy(opt.state_dict()))
    for one in (opt, fresh):
        parameters = copy.deepcopy(model.state_dict())
        for batch in batches(20)[12:]:
            FORMS["registered"](one, model, batch)
        model.load_state_dict(parameters)
    assert fresh.metrics() == opt.metrics()


def varied(model, batch, factors):
    """A closure whose loss is multiplied by the next factor each time."""
    return lambda: loss_of(model, batch) * next(factors)


@for_every_rule
@pytest.mark.parametrize(("roundings", "is_same"), [(8, True), (32, True), (200, False)])
def test_the_noise_of_kernels_passes_and_more_does_not(rule, roundings, is_same):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    factors = (1 + k * roundings * EPS for k in itertools.chain([0, 1, -1], itertools.repeat(0)))
    closure = varied(model, batches(1)[0], factors)
    if is_same:
        opt.step(closure)
    else:
        with pytest.raises(NotTheSameLoss):
            opt.step(closure)


@for_every_rule
def test_kernels_that_differ_without_gradients_pass(rule):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    (batch,) = batches(1)
    opt.step(lambda: loss_of(model, batch) * (1.0 if torch.is_grad_enabled() else 1 + 70 * EPS))


@for_every_rule
def test_another_function_without_gradients_is_named(rule):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    (batch,) = batches(1)
    with pytest.raises(
        NotTheSameLoss, match=r"1\. the model computes something else where gradients"
    ):
        opt.step(lambda: loss_of(model, batch) * (1.0 if torch.is_grad_enabled() else 1.1))


@for_every_rule
def test_two_batches_that_alternate_are_refused(rule):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    source = itertools.cycle(batches(2))
    with pytest.raises(NotTheSameLoss, match="draws a new batch"):
        opt.step(lambda: loss_of(model, next(source)))


@for_every_rule
def test_after_a_refusal_the_right_program_goes_on(rule):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    source, (batch, *_) = iter(batches(9)), batches(1)
    with pytest.raises(NotTheSameLoss):
        opt.step(lambda: loss_of(model, next(source)))
    assert opt.metrics()["steps"] == 0
    assert not opt.state
    opt.step(lambda: loss_of(model, batch))
    assert opt.metrics()["steps"] == 1


@for_every_rule
def test_a_first_loss_that_is_not_finite_leaves_the_proof_to_the_next_step(rule):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    first, second, *_ = batches(9)
    with pytest.warns(RuntimeWarning, match="not finite"):
        opt.step(lambda: loss_of(model, first) * torch.nan)
    source = iter(batches(9))
    with pytest.raises(NotTheSameLoss):
        opt.step(lambda: loss_of(model, next(source)))
    opt.step(lambda: loss_of(model, second))


@pytest.mark.parametrize("rule", [PaperRule(), FICKLE], ids=["paper", "robust"])
def test_a_pipeline_that_changes_later_is_said_once_and_teaches_nothing(rule):
    opt, model, _ = trained(6, rule=rule)
    first, second = batches(8)[-2:]
    small = loss_of(model, second).detach()
    scale, state = opt.scale, copy.deepcopy(opt.state_dict()["param_groups"][0]["probstep"]["rule"])
    for is_first in (True, False):
        opt.zero_grad()
        loss = loss_of(model, first)
        loss.backward()
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            opt.step(loss=loss, reevaluate=lambda: 3 * loss_of(model, second))
        assert [("another function" in str(w.message)) for w in heard] == [True] * is_first
        assert opt.last_probe.decision == "contradicted"
    assert small > 0
    assert opt.metrics()["probes/contradicted"] == 2
    if isinstance(rule, PaperRule):
        assert opt.scale == scale
        assert opt.state_dict()["param_groups"][0]["probstep"]["rule"] == state


def test_a_constant_that_comes_later_is_said():
    opt, model, _ = trained(6, rule=PaperRule())
    (batch,) = batches(1)
    opt.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    with pytest.warns(RuntimeWarning, match="another function"):
        opt.step(loss=loss, reevaluate=lambda: torch.tensor(loss.item()))


def clipped_by_torch(opt, model, batch, max_norm):
    opt.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    opt.step(loss=loss, reevaluate=lambda: loss_of(model, batch))


def test_habitual_clipping_that_begins_later_is_said():
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), probe=Every(1))
    first, *others = batches(12)
    clipped_by_torch(opt, model, first, max_norm=1e6)
    assert opt.metrics()["slope_factor"] == 1.0
    with pytest.warns(
        RuntimeWarning, match=r"The norm of the gradients was 0\.0\d+ .*clip_grad_norm_"
    ):
        for batch in others:
            clipped_by_torch(opt, model, batch, max_norm=0.05)


@for_every_rule
def test_clipping_by_the_optimizer_is_no_mistake(rule):
    model = plain_network()
    opt = ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), rule, probe=Every(1))
    for batch in batches(12):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.clip_grad_norm_(0.05)
        opt.step(loss=loss, reevaluate=lambda batch=batch: loss_of(model, batch))


@for_every_rule
def test_at_a_kink_nothing_is_claimed(rule):
    # Blank inputs and biases of zero: every unit stands at the kink of its ReLU.
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    nn.init.zeros_(model[0].bias)
    x, y = torch.zeros(12, 6), torch.arange(12) % 2
    x[0] = 1.0
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    opt.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    opt.reevaluate_with(lambda: nn.functional.cross_entropy(model(x), y))
    opt.step()
    assert opt.metrics()["slope_factor"] in (0.0, 1.0)


def test_a_stop_gradient_is_warned_of_and_trains_on():
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3))
    (batch,) = batches(1)

    def half():
        loss = loss_of(model, batch)
        return loss / 2 + loss.detach() / 2

    with pytest.warns(RuntimeWarning, match=r"about 0\.(5|499) times"):
        opt.step(half)
    assert opt.metrics()["slope_factor"] == pytest.approx(0.5, rel=0.02)


# A rate that is dead or absurd


def memory_of(rule=None, **health):
    memory = Memory.new(rule or RobustRule(), None)
    for name, value in health.items():
        setattr(memory.health, name, value)
    return memory


@pytest.mark.parametrize(
    ("scale", "says"), [(1e-7, "has fallen to 1e-07"), (1e7, "has risen to 1e.07"), (1e-5, None)]
)
def test_a_scale_far_from_all_that_was_seen_is_said_once(scale, says):
    memory = memory_of(found=1.0, highest=1.0)
    memory.scale = scale
    notices = Notices()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        notices.of_scale(memory)
        notices.of_scale(memory)
    assert len(heard) == (says is not None)
    if says:
        with pytest.warns(RuntimeWarning, match=says):
            Notices().of_scale(memory)


def seen(loss=1.0, slope=0.1, loss_after=0.95, **more):
    return Observation(Proposal(loss=loss, slope=slope, **more), loss_after=loss_after)


def probe(decision, observation):
    step = observation.step
    return Probe(step.loss, step.slope, observation.loss_after, 1.0, 1.0, decision)


def test_probes_that_see_nothing_for_a_while_are_said_at_any_time():
    memory, notices = memory_of(), Notices()
    memory.record(probe("up", seen()), 0, seen())
    blind = seen(slope=1e-9, rate=1e-8, resolution=1e-7)
    with pytest.warns(RuntimeWarning, match=f"none of the last {PATIENCE} probes"):
        for _ in range(PATIENCE):
            memory.record(probe("uninformative", blind), 0, blind)
            notices.of_probe(memory.last, memory)
    assert memory.health.blind == PATIENCE


def test_steps_that_keep_being_taken_back_are_said():
    memory, notices = memory_of(), Notices()
    with pytest.warns(
        RuntimeWarning, match=f"The last {STUBBORN} probed steps were all taken back"
    ):
        for _ in range(STUBBORN):
            memory.record(probe("down", seen()), 2, seen())
            notices.of_probe(memory.last, memory)
    memory.record(probe("up", seen()), 0, seen())
    assert memory.health.taken_back == 0


@pytest.mark.parametrize(
    ("factor", "first"),
    [
        (65540.0, "GradScaler"),
        (3.99, "1. the gradients are the sum of 4 micro-batches"),
        (0.251, "1. backward saw the loss divided by 4"),
        (0.19, "1. they were clipped by something else"),
        (1.47, "1. they are another function's"),
        (-0.3, "1. they are another function's"),
    ],
)
def test_a_factor_of_the_gradients_says_what_it_suggests(factor, first):
    assert first in wrong_slope(factor)


@for_every_rule
def test_a_grad_scaler_that_is_not_asked_is_named_under_autocast(rule):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    (batch,) = batches(1)

    def forward():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss_of(model, batch)

    with opt.forward_pass():
        loss = forward()
    scaler.scale(loss).backward()
    with pytest.warns(RuntimeWarning, match=r"about 6\d{4} times.*GradScaler"):
        opt.step(loss=loss, reevaluate=forward)


@for_every_rule
def test_a_grad_scaler_that_is_asked_hears_nothing(rule):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters(), lr=1e-3), rule)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    for batch in batches(3):

        def forward(batch=batch):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return loss_of(model, batch)

        opt.zero_grad()
        with opt.forward_pass():
            loss = forward()
        scaler.scale(loss).backward()
        scaler.step(opt, loss=loss, reevaluate=forward)
        scaler.update()
    assert opt.metrics()["steps"] == 3


@pytest.mark.parametrize("theta", [1e-157, 1e-160, 1e-161])
def test_a_loss_near_the_smallest_float_claims_nothing_of_the_gradients(theta):
    param = nn.Parameter(torch.tensor([theta], dtype=torch.float64))
    opt = ProbStep(torch.optim.SGD([param], lr=0.1))
    opt.step(lambda: (param**2).sum())
    assert opt.metrics()["slope_factor"] in (0.0, 1.0)


def test_a_second_optimizer_that_steps_on_the_same_loss_is_told_why_it_cannot():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3))
    opts = [ProbStep(torch.optim.SGD(part.parameters(), lr=0.1)) for part in model]
    x, y = torch.randn(8, 6), torch.randn(8, 3)
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    again = {"loss": loss, "reevaluate": lambda: nn.functional.mse_loss(model(x), y)}
    opts[0].step(**again)
    with pytest.raises(NotTheSameLoss, match="another optimizer has moved other parameters"):
        opts[1].step(**again)


@for_every_rule
@pytest.mark.parametrize("is_short", [False, True])
def test_autocast_around_one_of_the_two_losses_is_named_first(is_short, rule):
    model = plain_network()
    opt = ProbStep(torch.optim.Adam(model.parameters()), rule)
    (batch,) = batches(1)
    loss_in = (lambda: model(batch[0]).mean()) if is_short else (lambda: loss_of(model, batch))
    before = [p.detach().clone() for p in model.parameters()]
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_in()
    loss.backward()
    with pytest.raises(
        (NotTheSameLoss, ValueError),
        match=r"Usual causes?(, .* first: 1\.|:) it was computed inside autocast",
    ):
        opt.step(loss=loss, reevaluate=loss_in)
    torch.testing.assert_close([p.detach() for p in model.parameters()], before, rtol=0, atol=0)

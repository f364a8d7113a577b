"""With a horizon the rate comes down by itself at the end, as under a schedule of torch's."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LinearLR

import probstep
from probstep import ProbStep
from probstep.horizon import END, decay

from .cases import batches, for_every_rule, plain_network, step_with_closure

STEPS = 40


def network():
    torch.manual_seed(0)
    return plain_network()


def sgd(model, lr=0.05):
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def train(model, opt, data, scheduler=None):
    """Return the weights and the scale after every step."""
    seen = []
    for batch in data:
        step_with_closure(opt, model, batch)
        if scheduler is not None:
            scheduler.step()
        seen.append(([p.detach().tolist() for p in model.parameters()], opt.scale))
    return seen


def bare():
    return ProbStep(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5), horizon=STEPS)


def test_the_rate_is_left_alone_at_first_and_comes_down_in_a_straight_line():
    factors = [decay(step, horizon=STEPS) for step in range(STEPS)]
    falling = round(END * STEPS)
    assert factors[: STEPS - falling] == [1.0] * (STEPS - falling)
    expected = [left / falling for left in range(falling, 0, -1)]
    assert factors[STEPS - falling :] == pytest.approx(expected)


@for_every_rule
@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_horizon_is_a_schedule_bit_for_bit(rule, as_tensor):
    lr = torch.tensor(0.05, dtype=torch.float64) if as_tensor else 0.05
    one, other = network(), network()
    ours = ProbStep(sgd(one, lr), rule, horizon=STEPS)
    theirs = ProbStep(sgd(other, lr=0.05), rule)
    scheduler = LambdaLR(theirs, functools.partial(decay, horizon=STEPS))
    data = batches(STEPS)
    assert train(one, ours, data) == train(other, theirs, data, scheduler)
    assert ours.scale != 1


@for_every_rule
def test_it_multiplies_what_a_warm_up_makes_of_the_rate(rule):
    one, other = network(), network()
    ours = ProbStep(sgd(one), rule, horizon=STEPS)
    theirs = ProbStep(sgd(other), rule)
    warm_up = LinearLR(ours, 0.25, total_iters=4)

    def both(step):
        return decay(step, horizon=STEPS) * (0.25 + 0.75 * min(step, 4) / 4)

    data = batches(STEPS)
    found = train(one, ours, data, warm_up)
    expected = train(other, theirs, data, LambdaLR(theirs, both))
    assert [scale for _, scale in found] == pytest.approx([scale for _, scale in expected])


def test_the_effective_rate_has_come_down_and_the_users_rate_has_not():
    model = network()
    opt = ProbStep(sgd(model), probstep.PaperRule(up=1, down=1), horizon=STEPS)
    train(model, opt, batches(STEPS - 1))
    assert opt.effective_lr == [0.05 * decay(STEPS - 1, STEPS)]
    assert opt.metrics()["effective_lr"] == opt.effective_lr[0]
    assert opt.param_groups[0]["lr"] == 0.05


def test_max_lr_limits_the_rate_that_is_used():
    model = network()
    opt = ProbStep(sgd(model), horizon=STEPS, max_lr=1e-4)
    train(model, opt, batches(STEPS - 1))
    assert opt.effective_lr[0] <= 1e-4
    assert opt.scale * 0.05 > 1e-4  # no more than that is taken from the scale


@for_every_rule
@pytest.mark.parametrize("taken", [10, STEPS - 3])
def test_a_resumed_run_comes_down_as_an_uninterrupted_one(rule, taken):
    data = batches(STEPS)
    model = network()
    opt = ProbStep(sgd(model), rule, horizon=STEPS)
    train(model, opt, data[:taken])
    state = copy.deepcopy((model.state_dict(), opt.state_dict()))
    resumed = network()
    resumed.load_state_dict(state[0])
    again = ProbStep(sgd(resumed), rule, horizon=STEPS)
    again.load_state_dict(state[1])
    assert train(resumed, again, data[taken:]) == train(model, opt, data[taken:])


def test_beyond_the_horizon_the_last_rate_stays_and_it_is_said_once():
    model = network()
    opt = ProbStep(sgd(model), probstep.PaperRule(up=1, down=1), horizon=5)
    train(model, opt, batches(5))
    rates = []
    with pytest.warns(RuntimeWarning, match="horizon of 5 steps has been reached") as given:
        for batch in batches(3):
            rates.append(opt.effective_lr[0])
            step_with_closure(opt, model, batch)
    assert rates == [0.05 * decay(4, horizon=5)] * 3
    assert len(given) == 1
    assert copy.deepcopy(opt).horizon == 5


def test_a_horizon_that_is_over_is_refused():
    model = network()
    opt = ProbStep(sgd(model))
    train(model, opt, batches(5))
    with pytest.raises(ValueError, match="5 steps have been taken already"):
        opt.horizon = 4
    opt.horizon = 5
    with pytest.raises(ValueError, match="5 steps have been taken already"):
        ProbStep(sgd(network()), horizon=4).load_state_dict(opt.state_dict())
    ProbStep(sgd(network()), horizon=5).load_state_dict(opt.state_dict())


@for_every_rule
@pytest.mark.parametrize("cure", [8, None])
@pytest.mark.parametrize("through", ["ProbStep", "the base"])
def test_after_a_checkpoint_beyond_the_horizon_the_cure_that_was_named_works(through, cure, rule):
    data = batches(8)
    model = network()
    opt = ProbStep(sgd(model), rule)
    train(model, opt, data[:5])
    state = copy.deepcopy((model.state_dict(), opt.state_dict()))
    other = network()
    other.load_state_dict(state[0])
    late = ProbStep(sgd(other), rule, horizon=4)
    if through == "ProbStep":
        with pytest.raises(ValueError, match=r"set opt\.horizon to a larger number, or to None"):
            late.load_state_dict(state[1])
    else:
        late.base.load_state_dict(state[1])
    opt.horizon = late.horizon = cure
    assert late.horizon == cure
    assert train(other, late, data[5:]) == train(model, opt, data[5:])


@pytest.mark.parametrize("steps", [0, -1, 10.0, "10", True])
def test_what_is_no_number_of_steps_is_refused(steps):
    with pytest.raises(ValueError, match="whole number of at least 1"):
        ProbStep(sgd(network()), horizon=steps)


def test_an_error_in_the_loss_leaves_the_users_rates():
    opt = bare()

    def fail():
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        opt.step(fail)
    assert opt.param_groups[0]["lr"] == 0.5
    assert opt.effective_lr == [0.5]

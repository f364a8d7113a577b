"""What torch takes, ProbStep takes: unusual gradients, parameters, losses and threads."""

import math
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from probstep import Every, PaperRule, ProbStep, RobustRule
from probstep.memory import Memory
from probstep.step.finite import are_finite

SGD = torch.optim.SGD


def regression(**settings):
    """Train a linear regression for 50 steps; return its losses and the last scale."""
    torch.manual_seed(0)
    x, w = torch.randn(64, 5), nn.Parameter(torch.zeros(5, 1))
    y = x @ torch.arange(5.0).reshape(5, 1)
    opt = ProbStep(SGD([w], lr=1e-3, momentum=0.9, **settings))
    return [opt.step(lambda: (x @ w - y).square().mean()).item() for _ in range(50)], opt.scale


def test_nesterov_momentum_for_many_tensors_goes_the_way_of_that_for_one():
    # There torch adds the momentum to the gradients themselves.
    one, many = (regression(nesterov=True, foreach=foreach) for foreach in (False, True))
    assert many[0] == pytest.approx(one[0], rel=1e-4)
    assert many[1] == pytest.approx(one[1], rel=1e-4)


def test_a_parameter_of_no_dimension_may_have_a_bound():
    w = nn.Parameter(torch.tensor(3.0))
    opt = ProbStep(SGD([w], lr=0.01), PaperRule(), lower_bound=0.0)
    for _ in range(3):
        opt.step(lambda: w.square())
    assert abs(w.item()) < 3


def test_a_gradient_that_is_only_marked_as_conjugated_is_read():
    w, c = nn.Parameter(torch.ones(2, dtype=torch.complex64)), torch.tensor([1 + 2j, 3 - 1j])
    opt = ProbStep(SGD([w], lr=0.01))
    losses = []
    for _ in range(3):
        opt.zero_grad()
        loss = ((w.conj() * c).real.sum() - 1).square()
        loss.backward()
        assert w.grad.is_conj()
        opt.step(loss=loss, reevaluate=lambda: ((w.conj() * c).real.sum() - 1).square())
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_a_gradient_that_cannot_be_written_to_is_read():
    w = nn.Parameter(torch.ones(4))
    opt = ProbStep(SGD([w], lr=0.01))
    for _ in range(3):
        loss = w.sum().square()
        w.grad = (2 * w.detach().sum()).expand(4)
        opt.step(loss=loss, reevaluate=lambda: w.sum().square())
    assert w.sum().item() < 4


def test_a_norm_that_overflows_under_clipping_stops_nothing():
    torch.manual_seed(0)
    model, x = nn.Linear(4, 1), torch.randn(8, 4)
    opt = ProbStep(SGD(model.parameters(), lr=0.1), probe=Every(1))
    for factor in (1.0, 1e11, 1.0):

        def loss_of(factor=factor):
            return model(factor * x).square().mean()

        opt.zero_grad()
        loss = loss_of()
        loss.backward()
        opt.clip_grad_norm_(1.0)
        opt.step(loss=loss, reevaluate=loss_of)
    assert all(p.isfinite().all() for p in model.parameters())


def test_a_loss_that_is_not_finite_moves_nothing_on_a_probed_step_though_gradients_are():
    w = nn.Parameter(torch.ones(2))
    opt = ProbStep(SGD([w], lr=0.1), probe=Every(1))
    opt.step(lambda: w.square().sum())
    before = w.detach().clone()
    with pytest.warns(RuntimeWarning):
        opt.step(lambda: w.square().sum() + math.nan)
    assert torch.equal(w, before)


def test_what_a_user_does_to_the_loss_after_the_step_is_not_what_the_rule_hears():
    def history(spoils):
        w = nn.Parameter(torch.tensor([4.0]))
        opt = ProbStep(torch.optim.Adam([w], lr=0.1))
        for _ in range(20):
            loss = opt.step(lambda: w.square().sum())
            if spoils:
                loss.detach().mul_(32)
        return opt.history().columns(), opt.scale

    assert history(True) == history(False)


class Short(nn.Module):
    """Computes in 16 bits, and returns 32."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(x).float()


@pytest.mark.parametrize("seed", range(3))
def test_16_bits_inside_a_model_that_returns_32_are_noticed_however_the_loss_arrives(seed):
    scales = []
    for is_given in (True, False):
        torch.manual_seed(seed)
        x, model = torch.randn(256, 20), Short()
        y = x.sum(1, keepdim=True).sin()
        opt = ProbStep(SGD(model.parameters(), lr=1e-3), model=model if is_given else None)
        with nullcontext() if is_given else opt.forward_pass():
            loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step(loss=loss, reevaluate=lambda m=model, x=x, y=y: nn.functional.mse_loss(m(x), y))
        scales.append(opt.scale)
    assert scales[0] == pytest.approx(scales[1], rel=0.1)


def test_two_threads_look_at_their_own_gradients():
    found, interval = {True: 0, False: 0}, sys.getswitchinterval()

    def look(value):
        w = nn.Parameter(torch.ones(3))
        w.grad = torch.full((3,), value)
        sgd, is_finite = SGD([w], lr=0.1), math.isfinite(value)
        found[is_finite] += sum(are_finite(sgd) != is_finite for _ in range(15000))

    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=look, args=(value,)) for value in (1.0, math.nan)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert found == {True: 0, False: 0}


def test_another_default_format_at_the_import_does_no_harm():
    script = (
        "import torch; torch.set_default_dtype(torch.float64); import probstep; "
        "w = torch.nn.Parameter(torch.ones(2, dtype=torch.float32)); "
        "opt = probstep.ProbStep(torch.optim.SGD([w], lr=0.1)); "
        "[opt.step(lambda: w.square().sum()) for _ in range(20)]; print(w.sum().item() < 1)"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stdout == "True\n"


def test_another_default_device_is_not_that_of_the_parameters():
    w = nn.Parameter(torch.ones(1 << 15))  # so large that copies are made in one piece
    opt = ProbStep(SGD([w], lr=1e-3))
    with torch.device("meta"):
        loss = opt.step(lambda: w.square().mean())
    assert w.square().mean() < loss.item()


@pytest.mark.parametrize(
    "budget", [(math.inf, 0.0), (40.0, math.inf), (40.0, math.nan), (-1.0, 0.0)]
)
def test_a_budget_that_is_no_number_of_passes_is_refused(budget):
    with pytest.raises(ValueError, match="two finite numbers"):
        RobustRule(budget=budget)


@pytest.mark.parametrize(
    "damage",
    [
        {"scale": torch.ones(2)},
        {"scale": 10**400},
        {1: 2, "other": 3},
        {"ratios": {"values": [1.0]}},
    ],
)
def test_no_damage_of_a_checkpoint_raises(damage):
    rule = RobustRule()
    plain = Memory.new(rule, None).plain() | damage
    memory, faults = Memory.restored(plain, rule, None)
    assert faults
    assert memory.scale == 1.0

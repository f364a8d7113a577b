"""GeN (Bu and Xu, 2024): by hand, against torch's optimizers, and against the authors' package."""

import math

import pytest
import torch
from torch import nn

from probstep.baselines.bu2024gen import GeN, fitted_factor

from .plain import CURVATURES, START, dot, grad_of, moved, parameters, torch_loss, values


def test_the_rate_is_newtons_along_the_direction_smoothed_and_within_a_factor_of_two() -> None:
    params = parameters()
    optimizer = GeN(params, lr=0.02, momentum=0.5, every=2)
    w, buffer, rate = list(START), [0.0, 0.0], 0.02
    for step in range(1, 9):
        grad = grad_of(w)
        buffer = [0.5 * b + g for b, g in zip(buffer, grad, strict=True)]
        if step % 2 == 0:
            bend = sum(a * d * d for a, d in zip(CURVATURES, buffer, strict=True))
            newton = dot(grad, buffer) / bend
            if newton > 0:  # momentum may point uphill
                rate = 0.9 * rate + 0.1 * min(max(newton, rate / 2), 2 * rate)
        w = moved(w, rate, buffer)
        optimizer.step(lambda: torch_loss(params))
        assert values(params) == pytest.approx(w, rel=1e-9)
        group = optimizer.param_groups[0]
        assert group["lr"] * group["scale"] == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize(
    ("direction", "base"),
    [
        ("momentum", lambda params: torch.optim.SGD(params, 0.1, 0.9, weight_decay=0.01)),
        ("adamw", lambda params: torch.optim.AdamW(params, 0.1, weight_decay=0.01)),
    ],
)
def test_between_fits_it_is_its_base_optimizer(direction: str, base: object) -> None:
    ours, theirs = parameters(), parameters()
    optimizer = GeN(ours, lr=0.1, direction=direction, weight_decay=0.01, every=100)
    reference = base(theirs)
    for _ in range(5):
        optimizer.step(lambda: torch_loss(ours))
        reference.zero_grad()
        torch_loss(theirs).backward()
        reference.step()
        assert values(ours) == pytest.approx(values(theirs), rel=1e-12)


def test_groups_keep_the_ratio_of_their_rates() -> None:
    params = parameters()
    groups = [{"params": params[:1], "lr": 0.02}, {"params": params[1:], "lr": 0.01}]
    optimizer = GeN(groups, every=1)
    optimizer.step(lambda: torch_loss(params))
    rates = [group["lr"] * group["scale"] for group in optimizer.param_groups]
    assert rates[0] == 2 * rates[1] != 0.02


@pytest.mark.parametrize("losses", [(1.0, 1.0, 1.0), (0.0, 1.0, 1.5), (2.0, 1.0, 1.5)])
def test_flat_concave_and_rising_losses_leave_the_rate(losses: tuple[float, ...]) -> None:
    assert fitted_factor(*losses, smoothing=0.9, limit=2.0) == 1.0


def test_a_loss_that_is_not_finite_halves_the_rate() -> None:
    params = parameters()
    optimizer = GeN(params, lr=0.1, momentum=0.0, every=1)
    optimizer.step(lambda: torch.where(params[0] < 1.0, math.inf, torch_loss(params)).sum())
    assert optimizer.param_groups[0]["scale"] == 0.5


@pytest.mark.parametrize("direction", ["momentum", "adamw"])
def test_the_authors_package_finds_the_same_rates(direction: str) -> None:
    """On one batch, its base optimizer kept from counting a gradient twice where it fits."""
    gen = pytest.importorskip("GeN", reason="pip install gen-optim")
    torch.manual_seed(0)
    inputs, targets = torch.randn(40, 5, dtype=torch.float64), torch.randint(0, 3, (40,))
    ours = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    theirs = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    theirs.load_state_dict(ours.state_dict())
    base = {"momentum": lambda p: torch.optim.SGD(p, 0.01, 0.9), "adamw": torch.optim.AdamW}
    reference = base[direction](theirs.parameters())
    optimizer = GeN(
        ours.parameters(),
        lr=reference.param_groups[0]["lr"],
        direction=direction,
        weight_decay=reference.param_groups[0]["weight_decay"],
        every=4,
    )
    rates = []
    for step in range(1, 41):
        optimizer.step(lambda: nn.functional.cross_entropy(ours(inputs), targets))
        reference.zero_grad()
        nn.functional.cross_entropy(theirs(inputs), targets).backward()
        if step % 4 == 0:
            fit_theirs(gen, theirs, reference, (inputs, targets))
        reference.step()
        group = optimizer.param_groups[0]
        rates.append(group["lr"] * group["scale"])
        assert rates[-1] == pytest.approx(reference.param_groups[0]["lr"], rel=1e-5)
    assert len(set(rates)) == 11
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)


def fit_theirs(gen: object, net: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple) -> None:
    """Let the package fit, then give the base optimizer its state back, but for the rate."""
    state = {p: {k: v.clone() for k, v in s.items()} for p, s in optimizer.state.items()}
    gen.lr_parabola(net, optimizer, tr_iter=iter([batch]), device="cpu", task="image_cls")
    optimizer.state.clear()
    optimizer.state.update(state)

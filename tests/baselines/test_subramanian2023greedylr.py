import pytest
import torch

from probstep.baselines.subramanian2023greedylr import GreedyLR

LOSSES = [3.0, 2.0, 2.5, 2.4, 2.3, 1.0, 0.5, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1]


def rates(rule: GreedyLR, losses: list[float], start: float) -> list[float]:
    memory, rate, found = {"initial": start}, start, []
    for loss in losses:
        rate = rule.next_rate(memory, rate, loss)
        found.append(rate)
    return found


def test_the_rate_rises_after_good_losses_and_falls_after_bad_ones() -> None:
    up, down = 0.1 / 0.95, 0.1 / 0.95 * 0.95
    assert rates(GreedyLR(patience=1), [3.0, 2.0, 2.5, 2.4], 0.1) == [0.1, up, up, down]


def test_the_rate_keeps_within_its_bounds() -> None:
    falling, rising = [1.0 / i for i in range(1, 60)], [float(i) for i in range(1, 60)]
    assert rates(GreedyLR(patience=0, max_lr=0.2), falling, 0.1)[-1] == 0.2
    assert rates(GreedyLR(patience=0, min_lr=0.05), rising, 0.1)[-1] == 0.05


def test_a_rate_held_too_long_at_its_lower_bound_starts_anew() -> None:
    rule = GreedyLR(patience=0, min_lr=0.09, reset_after=2)
    rising = [1.0, 2.0, 3.0, 4.0, 5.0]
    raised = 0.1 / 0.95
    assert rates(rule, rising, 0.1) == pytest.approx([raised, 0.1, 0.095, 0.09025, 0.09])
    assert rates(rule, [*rising, 6.0], 0.1)[-1] == pytest.approx(0.1)


@pytest.mark.parametrize("patience", [0, 1, 2])
@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("reset_after", [2, 500])
def test_it_agrees_with_transformers(patience: int, window: int, reset_after: int) -> None:
    optimization = pytest.importorskip(
        "transformers.optimization", reason='pip install "probstep[transformers]"'
    )
    theirs = getattr(optimization, "GreedyLR", None)
    if theirs is None:
        pytest.skip("this version of transformers has no GreedyLR")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = theirs(
        optimizer,
        patience=patience,
        min_lr=0.08,
        max_lr=0.12,
        smooth=window > 1,
        window_size=window,
        reset_start=reset_after,
    )
    expected = []
    for loss in LOSSES * 3:
        scheduler.step(loss)
        expected.append(optimizer.param_groups[0]["lr"])
    rule = GreedyLR(
        patience=patience, min_lr=0.08, max_lr=0.12, window=window, reset_after=reset_after
    )
    assert rates(rule, LOSSES * 3, 0.1) == pytest.approx(expected, rel=1e-12)

"""What a group of cells amounts to: how many initial rates end near the best, and at which cost."""

from collections.abc import Iterable, Sequence
from statistics import median

from probstep.bench.report.numbers.cells import ACCURACIES, Cell, best, group_by


def score_metric(cells: Sequence[Cell]) -> str:
    """What a problem is judged by: its test accuracy, if it has one."""
    has_accuracy = any(cell.final("test_accuracy") is not None for cell in cells)
    return "test_accuracy" if has_accuracy else "train_loss"


def best_of(cells: Sequence[Cell], metric: str) -> float | None:
    """The best final value of the cells, as they are judged."""
    return best([cell.judged(metric) for cell in cells], metric)


def reliability(cells: Sequence[Cell], metric: str, least: float | None, share: float) -> float:
    """The share of the cells that end within a share of the best value.

    >>> reliability([], "train_loss", None, 0.05)
    0.0
    """
    if least is None or not cells:
        return 0.0
    room = share * abs(least)
    finals = [value for cell in cells if (value := cell.judged(metric)) is not None]
    if metric in ACCURACIES:
        near = [value for value in finals if value >= least - room]
    else:
        near = [value for value in finals if value <= least + room]
    return len(near) / len(cells)


def loss_ratios(cells: Sequence[Cell]) -> dict[str, list[float]]:
    """For each method its final losses over the best of their problems; diverged is infinite."""
    ratios: dict[str, list[float]] = {}
    for group in group_by([c for c in cells if c.has_ended], "problem").values():
        least = best_of(group, "train_loss")
        if least is None or least <= 0:  # a factor of it would mean nothing
            continue
        for cell in group:
            value = cell.judged("train_loss")
            ratio = float("inf") if value is None else value / least
            ratios.setdefault(cell.label, []).append(ratio)
    return ratios


def costs(cells: Iterable[Cell]) -> tuple[float, float] | None:
    """Seconds per epoch and forward passes per step, medians over runs; None without any."""
    runs = [h for c in cells for h in c.histories if h.steps > 0 and h.seconds > 0 and h.epochs]
    runs = [history for history in runs if history.epochs[-1]]
    if not runs:
        return None
    seconds = median(h.seconds / h.epochs[-1] for h in runs)
    return seconds, median(h.passes / h.steps for h in runs)

"""A cell against the best fixed rate: the ratio of their losses, and the steps to its loss."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from probstep.bench.report.numbers.cells import Cell, floored, group_by

METRIC = "train_loss"


@dataclass(frozen=True)
class Best:
    """The fixed rate that ends best, among those that were given the most seeds.

    It is chosen on the seeds that judge it, which favours it.

    Args:
        loss: What it ends with, not below the floor.
        is_at_edge: Whether no lower or no higher rate was tried.
    """

    cell: Cell
    loss: float
    is_at_edge: bool


@dataclass(frozen=True)
class Comparison:
    """A cell beside the best fixed rate around the same optimizer, under the same schedule.

    Args:
        ratio: Final training loss over that of the best fixed rate; infinite if it diverged.
        worst_seed: The same of its worst seed.
        share: Time to target: the share of its steps after which it has the loss that the best fixed
            rate ends with; infinite if it does not get there.
        points: Test accuracy minus that of the best fixed rate, in points of per cent.
    """

    cell: Cell
    best: Best
    ratio: float
    worst_seed: float
    share: float
    points: float | None


Place = tuple[str, str, str]  # problem, optimizer, schedule


def place_of(cell: Cell) -> Place:
    """What a cell shares with the fixed rates that it is compared with."""
    return cell.problem, cell.base, cell.schedule


def find_best_fixed(cells: Sequence[Cell]) -> dict[Place, Best]:
    """The best fixed rate of each problem, optimizer and schedule that has one."""
    fixed = [c for c in cells if c.column == "fixed" and c.rate and c.has_ended]
    groups = group_by(fixed, "problem", "base", "schedule").items()
    found = {place: _choose(group) for place, group in groups}
    return {place: best for place, best in found.items() if best is not None}


def compare(cells: Sequence[Cell], fixed: dict[Place, Best]) -> list[Comparison]:
    """Each cell that has ended and has a fixed rate to be compared with."""
    ended = [cell for cell in cells if cell.has_ended]
    return [compare_with(c, fixed[place_of(c)]) for c in ended if place_of(c) in fixed]


def compare_with(cell: Cell, best: Best) -> Comparison:
    """A cell against a best fixed rate."""
    final, points = cell.judged(METRIC), None
    ours, theirs = cell.final("test_accuracy"), best.cell.final("test_accuracy")
    if ours is not None and theirs is not None:
        points = 100 * (ours - theirs)
    ends = [floored(history, METRIC) for history in cell.histories if history.has_ended]
    worst = max(math.inf if end is None else end for end in ends)
    return Comparison(
        cell=cell,
        best=best,
        ratio=math.inf if final is None else final / best.loss,
        worst_seed=worst / best.loss,
        share=share_to_target(cell, best.loss),
        points=points,
    )


def share_to_target(cell: Cell, target: float) -> float:
    """The share of a cell's epochs after which its training loss is at the target; or infinite."""
    epochs, losses = cell.curve(METRIC)
    for epoch, loss in zip(epochs, losses, strict=True):
        if loss is not None and loss <= target * (1 + 1e-9):  # a mean of equal numbers rounds
            return epoch / max(cell.run.epochs, 1)  # a stranger's run may have none
    return math.inf


def steps_to_target(cell: Cell, target: float) -> float:
    """Likewise in training steps."""
    return share_to_target(cell, target) * cell.steps


def _choose(cells: Sequence[Cell]) -> Best | None:
    """The best of a grid of rates; None if none has a loss above zero to compare with."""
    most = max(len(cell.histories) for cell in cells)
    full = [cell for cell in cells if len(cell.histories) == most]
    found = [(cell.judged(METRIC), cell.final(METRIC), cell) for cell in full]
    known = [(judged, final, cell) for judged, final, cell in found if judged and final is not None]
    if not known or min(judged for judged, _, _ in known) <= 0:
        return None
    loss, _, chosen = min(known, key=lambda one: one[:2])  # at the floor the loss itself decides
    rates = [cell.rate for cell in full if cell.rate]
    return Best(chosen, loss, chosen.rate in (min(rates), max(rates)))

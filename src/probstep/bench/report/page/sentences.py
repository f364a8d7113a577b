"""The sentences that matter: what each rule did, what fixed rates did, at which cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from probstep.bench.means import geometric_mean
from probstep.bench.report.figures.grid import BASES
from probstep.bench.report.numbers.cells import OURS, Cell, group_by
from probstep.bench.report.numbers.comparisons import compare, find_best_fixed
from probstep.bench.report.numbers.measures import best_of, costs, reliability, score_metric
from probstep.drawing.axes import spell

SHARE = 0.05
SPELLED = 3  # more ranges than these nobody reads
SPEAKERS = {"default rule": "The default rule", "paper's rule": "The paper's rule"}


@dataclass(frozen=True)
class _Side:
    """The cells of one kind on a problem, what they are judged by, and the best of all kinds."""

    cells: list[Cell]
    metric: str
    least: float | None


def conclude(cells: Sequence[Cell]) -> list[str]:
    """A sentence for each rule, one for fixed rates and one for the cost; none without both."""
    pairs = [group for group in _pairs(cells) if {"fixed"} < {c.column for c in group}]
    if not pairs:
        return []
    fixed = _sides(pairs, "fixed")
    ours = {rule: _sides(pairs, rule) for rule in OURS if _sides(pairs, rule)}
    return [
        *(
            f"{SPEAKERS[rule]}: {_spell_ends(s)}{_spell_ratio(cells, s)}."
            for rule, s in ours.items()
        ),
        f"Fixed rates: {_spell_ends(fixed)}.",
        f"The cost: {'; '.join(_spell_cost(rule, pairs) for rule in ours)}.",
    ]


def _pairs(cells: Sequence[Cell]) -> list[list[Cell]]:
    ended = [c for c in cells if c.has_ended and c.column in ("fixed", *OURS) and c.rate]
    return list(group_by(ended, "problem", "base").values())


def _sides(pairs: Sequence[Sequence[Cell]], column: str) -> list[_Side]:
    """What there is of one kind, problem by problem."""
    sides = []
    for group in pairs:
        metric = score_metric(group)
        members = [cell for cell in group if cell.column == column]
        if members:
            sides.append(_Side(members, metric, best_of(group, metric)))
    return sides


def _spell_ends(sides: Sequence[_Side]) -> str:
    cells = [cell for side in sides for cell in side.cells]
    rates = sorted({cell.rate for cell in cells if cell.rate})
    near = sum(reliability(s.cells, s.metric, s.least, SHARE) * len(s.cells) for s in sides)
    ranges = ", ".join(_spell_range(side) for side in sides[:SPELLED])
    more = f" and {len(sides) - SPELLED} more" if len(sides) > SPELLED else ""
    return (
        f"from initial rates of {spell(rates[0])} to {spell(rates[-1])}, {round(near)} of {len(cells)} "
        f"ended within {SHARE:.0%} of the best ({ranges}{more})"
    )


def _spell_range(side: _Side) -> str:
    finals = [value for cell in side.cells if (value := cell.final(side.metric)) is not None]
    first = side.cells[0]
    name = f"{BASES.get(first.base, first.base)} on {first.problem}"
    lost = len(side.cells) - len(finals)
    gone = f", {lost} diverged" if lost else ""
    if not finals:
        return f"{name}: all diverged"
    if side.metric == "test_accuracy":
        return f"{name}: {min(finals):.0%} to {max(finals):.0%} test accuracy{gone}"
    return f"{name}: {spell(min(finals))} to {spell(max(finals))} training loss{gone}"


def _spell_ratio(cells: Sequence[Cell], sides: Sequence[_Side]) -> str:
    """Against the best fixed rate, over all problems and initial rates."""
    fixed = find_best_fixed(cells)
    ratios = [c.ratio for side in sides for c in compare(side.cells, fixed)]
    ratios = [ratio for ratio in ratios if 0 < ratio < math.inf]
    if not ratios:
        return ""
    return (
        f"; their final training loss is {geometric_mean(ratios):.2f} times that of the best fixed "
        f"rate, {max(ratios):.2f} times at worst"
    )


def _spell_cost(rule: str, pairs: Sequence[Sequence[Cell]]) -> str:
    """Beside fixed rates on the problems that have both."""
    both = [group for group in pairs if {"fixed", rule} <= {cell.column for cell in group}]
    before, after = (
        costs(cell for group in both for cell in group if cell.column == column)
        for column in ("fixed", rule)
    )
    if before is None or after is None:
        return f"of the {rule} the records hold no times"
    return (
        f"the {rule} takes {after[1]:.2f} forward passes per step instead of {before[1]:.2f}, and "
        f"{after[0] / before[0]:.2f} times the training time"
    )

"""The sentences that matter: what fixed rates did, what adapted ones did, at which cost."""

from collections.abc import Sequence

from probstep.bench.report.drawing.axes import spell
from probstep.bench.report.figures.grid import BASES
from probstep.bench.report.numbers.cells import Cell, best, group_by
from probstep.bench.report.page.tables import costs, reliability, score_metric

SHARE = 0.05
SPELLED = 3  # more ranges than these nobody reads


def conclude(cells: Sequence[Cell]) -> list[str]:
    """Three sentences on the problems and optimizers that have fixed and adapted rates; or none."""
    pairs = [group for group in _pairs(cells) if {"fixed", "adapted"} <= {c.column for c in group}]
    if not pairs:
        return []
    fixed, adapted = ([_side(group, column) for group in pairs] for column in ("fixed", "adapted"))
    return [
        f"Fixed rates: {_spell_ends(fixed)}",
        f"Adapted by probstep: {_spell_ends(adapted)}",
        f"The cost: {_spell_cost(fixed, adapted)}",
    ]


def _pairs(cells: Sequence[Cell]) -> list[list[Cell]]:
    ended = [c for c in cells if c.has_ended and c.column in ("fixed", "adapted") and c.rate]
    return list(group_by(ended, "problem", "base").values())


def _side(group: Sequence[Cell], column: str) -> tuple[list[Cell], str, float | None]:
    """The cells of one kind, what they are judged by, and the best of both kinds."""
    metric = score_metric(group)
    least = best([cell.final(metric) for cell in group], metric)
    return [cell for cell in group if cell.column == column], metric, least


def _spell_ends(sides: Sequence[tuple[list[Cell], str, float | None]]) -> str:
    cells = [cell for members, _, _ in sides for cell in members]
    rates = sorted({cell.rate for cell in cells if cell.rate})
    near = sum(reliability(m, metric, least, SHARE) * len(m) for m, metric, least in sides)
    ranges = ", ".join(_spell_range(members, metric) for members, metric, _ in sides[:SPELLED])
    more = f" and {len(sides) - SPELLED} more" if len(sides) > SPELLED else ""
    return (
        f"from initial rates of {spell(rates[0])} to {spell(rates[-1])}, {round(near)} of {len(cells)} "
        f"ended within {SHARE:.0%} of the best ({ranges}{more})."
    )


def _spell_range(cells: Sequence[Cell], metric: str) -> str:
    finals = [value for cell in cells if (value := cell.final(metric)) is not None]
    name = f"{BASES.get(cells[0].base, cells[0].base)} on {cells[0].problem}"
    lost = f", {len(cells) - len(finals)} diverged" if len(finals) < len(cells) else ""
    if not finals:
        return f"{name}: all diverged"
    if metric == "test_accuracy":
        return f"{name}: {min(finals):.0%} to {max(finals):.0%} test accuracy{lost}"
    return f"{name}: {spell(min(finals))} to {spell(max(finals))} training loss{lost}"


def _spell_cost(
    fixed: Sequence[tuple[list[Cell], str, float | None]],
    adapted: Sequence[tuple[list[Cell], str, float | None]],
) -> str:
    before, after = (costs(c for members, _, _ in s for c in members) for s in (fixed, adapted))
    if before is None or after is None:
        return "the records hold no times."
    return (
        f"{after[1]:.2f} forward passes per step instead of {before[1]:.2f}, and "
        f"{after[0] / before[0]:.2f} times the training time."
    )

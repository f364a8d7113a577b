"""The report's tables: rows of values, each with the text that is shown for it."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import median

from probstep.bench.means import geometric_mean, mean
from probstep.bench.methods import RATES
from probstep.bench.report.numbers.cells import ACCURACIES, Cell, group_by
from probstep.bench.report.numbers.comparisons import Comparison, compare, find_best_fixed
from probstep.bench.report.numbers.histories import number
from probstep.bench.report.numbers.measures import best_of, costs, reliability, score_metric
from probstep.drawing.axes import spell

Value = str | float | None
WITHIN = (0.01, 0.05, 0.10)
FINALS = tuple(f"{split}_{s}" for split in ("train", "valid", "test") for s in ("loss", "accuracy"))


@dataclass(frozen=True)
class Table:
    """A heading, a sentence that says what is told, and rows. None is shown as a dash."""

    slug: str
    title: str
    sentence: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]


def tabulate_reliability(cells: Sequence[Cell]) -> Table:
    """For each problem and method: how many initial rates end near the best of all methods."""
    rows: list[list[Value]] = []
    within = [f"within {share:.0%}" for share in WITHIN]
    for group in group_by([c for c in cells if c.has_ended], "problem").values():
        metric = score_metric(group)
        least = best_of(group, metric)
        for (label,), members in group_by(group, "label").items():
            rows.append(_reliability_row(label, members, metric, least))
    return Table(
        "reliability",
        "Reliability: how many initial rates end near the best",
        "Of all initial rates that a method was given, the share that ended within 1, 5 and 10 % of "
        "the best that any method reached on the problem: in test accuracy, or in training loss "
        "where there is no accuracy.",
        ("problem", "method", "score", "rates", "worst", "median", "best", *within),
        rows,
    )


def _reliability_row(
    label: str, cells: Sequence[Cell], metric: str, least: float | None
) -> list[Value]:
    finals = [v for cell in cells if (v := cell.final(metric)) is not None]
    worst_first = sorted(finals, reverse=metric not in ACCURACIES)
    lost = len(finals) < len(cells)
    return [
        cells[0].problem,
        label,
        metric.replace("_", " "),
        float(len(cells)),
        "diverged" if lost else (worst_first[0] if finals else None),
        median(finals) if finals else None,
        worst_first[-1] if finals else None,
        *(reliability(cells, metric, least, share) for share in WITHIN),
    ]


def tabulate_comparisons(cells: Sequence[Cell]) -> Table:
    """For each problem and method: its losses over that of the best fixed rate, and time to target."""
    found = compare(cells, find_best_fixed(cells))
    groups: dict[tuple[str, str, str], list[Comparison]] = {}
    for one in found:
        groups.setdefault((one.cell.problem, one.cell.label, one.cell.schedule), []).append(one)
    return Table(
        "best-fixed",
        "Against the best fixed rate",
        "The best fixed rate is that of the same optimizer and schedule, chosen on the seeds that judge "
        "it. The ratio is final training loss over its, the geometric mean over the initial rates, and "
        "the worst of them; losses below 1 % of the first count as 1 %. Time to target is the share of "
        "the training after which a run has the loss that the best fixed rate ends with, the median "
        "over the initial rates.",
        (
            "problem",
            "method",
            "schedule",
            "best fixed rate",
            "its loss",
            "rates",
            "ratio",
            "worst ratio",
            "share to target",
            "test accuracy, points",
        ),
        [_comparison_row(group) for group in groups.values()],
    )


def _comparison_row(group: Sequence[Comparison]) -> list[Value]:
    first = group[0]
    ratios = [one.ratio for one in group]
    points = [one.points for one in group if one.points is not None]
    share = median(one.share for one in group)
    return [
        first.cell.problem,
        first.cell.label,
        None if first.cell.schedule == "constant" else first.cell.schedule,
        first.best.cell.rate,
        first.best.loss,
        float(len(group)),
        "diverged" if max(ratios) == math.inf else _geometric(ratios),
        "diverged" if max(ratios) == math.inf else max(ratios),
        "never" if share == math.inf else share,
        round(mean(points), 2) if points else None,
    ]


def _geometric(ratios: Sequence[float]) -> float | None:
    return geometric_mean(ratios) if min(ratios) > 0 else None


def tabulate_overhead(cells: Sequence[Cell]) -> Table:
    """For each problem and method: time per epoch and forward passes per step, beside the fixed."""
    rows: list[list[Value]] = []
    for (problem, base), group in group_by(cells, "problem", "base").items():
        fixed = costs([c for c in group if c.column == "fixed"])
        for (label,), members in group_by(group, "label").items():
            own = costs(members)
            if own is not None:
                relative = [own[0] / fixed[0], own[1] - fixed[1]] if fixed else [None, None]
                rows.append([problem, label, base, own[0], relative[0], own[1], relative[1]])
    return Table(
        "overhead",
        "What it costs: time and forward passes",
        "Medians over runs, evaluations not counted. The factor and the extra passes are against the "
        "fixed rate around the same optimizer; times are those of the machine that made the records.",
        (
            "problem",
            "method",
            "optimizer",
            "seconds per epoch",
            "times fixed",
            "forward passes per step",
            "more than fixed",
        ),
        rows,
    )


def tabulate_failures(cells: Sequence[Cell]) -> Table:
    """Every run that diverged, failed or is unfinished, with its reason."""
    rows: list[list[Value]] = [
        [c.problem, c.label, c.rate, number(h.run.seed), h.status, float(h.epoch), h.reason]
        for c in cells
        for h in c.histories
        if h.status != "done"
    ]
    counts = Counter(str(row[4]) for row in rows)
    said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return Table(
        "failures",
        "What went wrong",
        f"Every run that did not reach its last epoch: {said}."
        if rows
        else "Every run reached its last epoch.",
        ("problem", "method", "initial rate", "seed", "status", "epoch", "reason"),
        rows,
    )


def tabulate_settings(cells: Sequence[Cell]) -> Table:
    """What a user of each method has to choose, and what it asks of the training loop."""
    rows = [_settings_row(m, group) for (m,), group in group_by(cells, "method").items()]
    return Table(
        "settings",
        "What a user has to choose",
        "What the rate means to each method, which settings its runs here were given, and what it "
        "needs of the training loop besides gradients.",
        ("method", "family", "its rate is", "default rate", "rates here", "settings here", "needs"),
        rows,
    )


def _settings_row(method: str, cells: Sequence[Cell]) -> list[Value]:
    row = cells[0].row
    rates = sorted({cell.rate for cell in cells if cell.rate is not None})
    spread = spell(rates[0]) if len(rates) == 1 else ""
    if len(rates) > 1:
        spread = f"{len(rates)}: {spell(rates[0])} to {spell(rates[-1])}"
    settings = list(dict.fromkeys(cell.settings for cell in cells if cell.settings))
    said = "; ".join(settings[:3]) + (f"; {len(settings) - 3} more" if len(settings) > 3 else "")
    if row is None:
        return [method, "from elsewhere", None, None, spread or None, said or None, None]
    needs = ", ".join(f.name for f in fields(row.needs) if getattr(row.needs, f.name))
    meaning = RATES[row.rate] if row.rate else "none: there is nothing to choose"
    texts = (spread or None, said or None, needs.replace("_", " ") or None)
    return [method, cells[0].column, meaning, row.default_rate, *texts]


def tabulate_finals(cells: Sequence[Cell]) -> Table:
    """Every cell: where it ended."""
    metrics = [*FINALS, "effective_rate"]
    rows: list[list[Value]] = [
        [c.problem, c.label, c.rate, float(len(c.histories)), *(c.final(m) for m in metrics)]
        for c in cells
        if c.has_ended
    ]
    return Table(
        "finals",
        "All final values",
        "The end of training, the mean over seeds; a dash is a cell with a run that diverged, or a "
        "value that the problem or method does not have.",
        ("problem", "method", "initial rate", "seeds", *(m.replace("_", " ") for m in metrics)),
        rows,
    )

"""The default rule, measured: docs/robust-benchmark.md, from the records of the plan `robust`.

A cell is a problem, with its batch size, and an optimizer. What decided constants of the rule is the
tuning half, the rest is held out.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from probstep.bench.means import geometric_mean, quantile
from probstep.bench.problems import PROBLEMS
from probstep.bench.report.drawing.chart import Figure
from probstep.bench.report.figures.ratios import draw_ratios
from probstep.bench.report.figures.sensitivity import draw_sensitivity
from probstep.bench.report.numbers.cells import Cell, make_cells
from probstep.bench.report.numbers.comparisons import (
    Best,
    Comparison,
    Place,
    compare,
    compare_with,
    find_best_fixed,
)
from probstep.bench.report.numbers.histories import History
from probstep.bench.report.numbers.summaries import read_summaries
from probstep.bench.report.page.markdown import write_table

RECORDS = ("robust.jsonl", "ablations.jsonl", "epoch_time.jsonl")
MADE_BY = "0.1.0"  # the version that made the records
START = 1e-3  # the initial rate that stands for all
TUNING = frozenset(
    {"digits_mlp", "fmnist_logreg", "regression", "digits_autoencoder", "fmnist_mlp, batch 512"}
)
OPTIMIZERS = ("sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw")
PEERS = (
    "momo_adam",
    "prodigy",
    "dadapt_adam",
    "schedulefree_adamw",
    "dog",
    "adam_hd",
    "l4_adam",
    "adam",
    "adamw",
)
LONG = 4000  # steps from which on a run is long


@dataclass(frozen=True)
class Study:
    """The records of the plan, and what follows from them."""

    histories: Sequence[History]
    ablations: Sequence[dict[str, Any]]
    times: Sequence[dict[str, Any]]

    @cached_property
    def cells(self) -> list[Cell]:
        """All cells."""
        return make_cells(self.histories)

    @cached_property
    def ours(self) -> list[Cell]:
        """The cells of the default rule."""
        return [cell for cell in self.cells if cell.column == "default rule"]

    @cached_property
    def fixed(self) -> dict[Place, Best]:
        """The best fixed rates."""
        return find_best_fixed(self.cells)

    @cached_property
    def comparisons(self) -> list[Comparison]:
        """Ours against them."""
        return compare(self.ours, self.fixed)


def read_study(records: Path) -> Study:
    """The study in a folder of records."""
    ablations, times = (_read_lines(records / name) for name in RECORDS[1:])
    return Study(read_summaries(records / RECORDS[0]), ablations, times)


def write_study(study: Study) -> str:
    """The page."""
    return "\n".join(_page(study)).rstrip() + "\n"


def draw_study(study: Study) -> list[Figure]:
    """Its figures."""
    on_digits = [c for c in study.cells if _is_in_rates(c)]
    rates = draw_sensitivity(on_digits, "train_loss")
    chosen = [c for c in study.comparisons if _is_shown(c, ["constant"])]
    ordered = sorted(chosen, key=lambda c: (half(c.cell), _spell_place(c.cell)), reverse=True)
    named = [(f"{_spell_place(c.cell)}{_mark(c)}", c) for c in ordered]
    return [figure for figure in (rates, draw_ratios(named)) if figure is not None]


def half(cell: Cell) -> str:
    """Whether the cell decided constants of the rule."""
    return "tuning" if _spell_place(cell) in TUNING else "held out"


def _page(study: Study) -> Iterator[str]:
    edges = sum(best.is_at_edge for best in study.fixed.values())
    yield f"""# The robust rule, measured

<!-- Made by `probstep page robust` from benchmarks/records; change it there. -->

{len(study.histories):,} runs of the plan `robust`; `benchmarks/records/robust.jsonl` has a line of each.
**The records are those of version {MADE_BY}**, made before the last change of its search. To make it
again: `probstep run robust --jobs 2 --out runs/robust`, then `probstep collect runs/robust --to
benchmarks/records/robust.jsonl` and `probstep page robust`.

A cell is a problem and an optimizer, at torch's defaults (momentum 0.9 for SGD). Its *ratio* is our
final training loss over that of the best fixed rate for the same optimizer and epochs, both as
geometric means over the seeds (three; two on the largest problems). The best fixed rate is chosen
on the very seeds that judge it, which favours it. A loss below 1 % of the untrained model's counts
as 1 %: on the digits losses go to zero, and one seed differs from the next by a factor of three and
more. The constants of the rule were chosen on the tuning half; the other half was looked at when
they were, but for `digits_conv`, where a net that died led to guards.

## Against the best fixed rate
"""
    yield from _bar(study.comparisons)
    yield f"""![The ratio of every cell](figures/cells.svg)

Each cell, ours from an initial rate of 1e-3: the ratio (the best fixed rate's loss, and that rate;
with a `*` it is at the edge of its grid, as for {edges} of {len(study.fixed)} grids).
"""
    yield from _all_cells(study.comparisons, ["constant"], _spell_ratio)
    yield """## Time to target

The share of the training after which ours, from an initial rate of 1e-3, has the loss that the best
fixed rate ends with.
"""
    yield from _all_cells(study.comparisons, ["constant"], _spell_share)
    yield "## From any initial rate\n"
    yield from _spread(study.ours)
    yield "## What it costs\n"
    yield from _cost(study.ours)
    yield "Wall-clock, the bare optimizer and ours in turn (`benchmarks/epoch_time.py`):\n"
    yield from _epoch_times(study.times)
    yield """## Against what people pick today

Final training loss over that of the best fixed Adam. Every method at its published default; fixed
Adam and AdamW at 1e-3. Schedule-Free averages its iterates, so it is to be compared with ours under
a linear decay.
"""
    yield from _peers(study)
    yield """## Under a decay to zero

The ratio to the best fixed rate under the same schedule.
"""
    yield from _scheduled(study.comparisons)
    yield from _all_cells(study.comparisons, ["cosine", "linear"], _spell_ratio)
    yield "## Without noise: Rosenbrock's function\n"
    yield from _rosenbrock(study.ours)
    yield """## What each part is for

The final loss without a part of the rule, or with another value of a setting, over that of the rule
as it is, on the small problems of the tuning half with all six optimizers
(`benchmarks/ablations.py`). Differences below about 5 % are noise; no floor is used.

These four do not punish recklessness: no net dies on them. That steps are taken back, surprises watched
and a rate not raised by a step that went too far is meant for nets that do.
"""
    yield from _ablations(study.ablations)


def _bar(comparisons: Sequence[Comparison]) -> Iterator[str]:
    plain = [c for c in comparisons if c.cell.schedule == "constant"]
    halves = {
        "tuning half": [c for c in plain if half(c.cell) == "tuning"],
        "held-out half": [c for c in plain if half(c.cell) == "held out"],
        "all": plain,
    }
    head = ["", "cells x rates", "geometric mean", "95th percentile", "worst", "single worst seed"]
    rows = [_bar_row(name, part) for name, part in halves.items() if part]
    bar = ["the bar", "", "1.05", "1.25", "1.5", "", "-1"]
    yield from write_table([*head, "test accuracy, points"], [bar, *rows])


def _bar_row(name: str, part: Sequence[Comparison]) -> list[object]:
    ratios = [c.ratio for c in part]
    points = [c.points for c in part if c.points is not None]
    return [
        name,
        len(part),
        f"{geometric_mean(ratios):.3f}",
        f"{quantile(ratios, 0.95):.2f}",
        f"{max(ratios):.2f}",
        f"{max(c.worst_seed for c in part):.1f}",
        f"{fmean(points):+.2f}" if points else "",
    ]


def _all_cells(
    comparisons: Sequence[Comparison], schedules: Sequence[str], spell: Any
) -> Iterator[str]:
    """A row per problem and schedule, a column per optimizer."""
    chosen = [c for c in comparisons if _is_shown(c, schedules)]
    found = {(_spell_place(c.cell), c.cell.schedule, c.cell.base): c for c in chosen}
    places = sorted(
        {(half(c.cell) != "tuning", _spell_place(c.cell), c.cell.schedule) for c in chosen}
    )
    bases = [base for base in OPTIMIZERS if any(c.cell.base == base for c in chosen)]
    rows = []
    for is_held_out, place, schedule in places:
        label = place if schedule == "constant" else f"{place}, {schedule}"
        across = [found.get((place, schedule, base)) for base in bases]
        said = ["" if one is None else spell(one) for one in across]
        rows.append([label, "held out" if is_held_out else "tuning", *said])
    yield from write_table(["problem", "half", *bases], rows)


def _spell_ratio(one: Comparison) -> str:
    mark = "*" if one.best.is_at_edge else ""
    loss = one.best.cell.final("train_loss")
    return f"{one.ratio:.2f} ({loss:.3g} at {one.best.cell.rate:g}{mark})"


def _spell_share(one: Comparison) -> str:
    return f"{one.share:.2f}" if one.share <= 1 else "not reached"


def _spread(ours: Sequence[Cell]) -> Iterator[str]:
    plain = [c for c in ours if c.schedule == "constant" and c.steps < LONG and _is_noisy(c)]
    finals = {(c.problem, c.method, c.rate): c.judged("train_loss") for c in plain}
    rows = []
    for rate in (1e-8, 1e-6, 1e-4, 1e-2, 1.0, 10.0, 100.0):
        pairs = [
            (value, finals[problem, method, START])
            for (problem, method, at), value in finals.items()
            if at == rate and (problem, method, START) in finals
        ]
        away = [abs(value / base - 1) for value, base in pairs if value and base]
        rows.append([f"{rate:g}", len(away), f"{100 * max(away):.2f} %"])
    head = ["initial rate", "cells", "largest distance of the final loss from that of 1e-3"]
    yield from write_table(head, rows)


def _cost(ours: Sequence[Cell]) -> Iterator[str]:
    runs = [h for c in ours if _is_noisy(c) for h in c.histories]
    short = [h.passes / h.steps - 1 for h in runs if 500 <= h.steps < LONG]
    long = [_late_passes(history) for history in runs if history.steps >= LONG]
    rows = [
        ["500 to 4,000 steps", 0.15, *_spell_passes(short)],
        ["5,000 steps, after the first tenth", 0.05, *_spell_passes(long)],
    ]
    head = ["forward passes beyond one per step", "the bar", "runs", "mean", "largest"]
    yield from write_table(head, rows)
    lost = sum(history.status != "done" for history in runs)
    yield f"Runs of ours that diverged or failed, from whatever initial rate: {lost} of {len(runs)}."
    yield ""


def _spell_passes(values: Sequence[float]) -> list[object]:
    return [len(values), f"{fmean(values):.3f}", f"{max(values):.3f}"]


def _late_passes(history: History) -> float:
    """The forward passes per step beyond one, after the first tenth."""
    tenth = history.run.epochs // 10
    steps = history.steps * (1 - tenth / history.run.epochs)
    passes = history.scores["forward_passes"]
    return (passes[-1] - passes[tenth]) / steps - 1


def _peers(study: Study) -> Iterator[str]:
    """Against the best fixed Adam, on the problems that all of them were run on."""
    adams = {p[0]: b for p, b in study.fixed.items() if p[1:] == ("adam", "constant")}
    ratios: dict[tuple[str, str], float] = {}
    for cell in study.cells:
        if (name := _spell_peer(cell)) and cell.problem in adams:
            ratios[name, _spell_place(cell)] = compare_with(cell, adams[cell.problem]).ratio
    names = ["robust_adam", "robust_adamw", "robust_adamw, linear decay", *PEERS]
    places = sorted({place for _, place in ratios})
    places = [place for place in places if all((name, place) in ratios for name in names)]
    means = {name: geometric_mean([ratios[name, place] for place in places]) for name in names}
    yield from write_table(
        ["method", "geometric mean", *places],
        [
            [name, f"{means[name]:.2f}", *(f"{ratios[name, place]:.2f}" for place in places)]
            for name in sorted(names, key=lambda name: means[name])
        ],
    )


def _spell_peer(cell: Cell) -> str:
    """The method, and its schedule; empty for what is not at its default."""
    if cell.column == "default rule":
        is_usual = cell.rate == START and cell.steps < LONG
        tail = "" if cell.schedule == "constant" else f", {cell.schedule} decay"
        return cell.method + tail if is_usual else ""
    is_default = cell.rate in (None, START) if cell.column == "fixed" else cell.method in PEERS
    return cell.method if is_default and cell.schedule == "constant" else ""


def _scheduled(comparisons: Sequence[Comparison]) -> Iterator[str]:
    rows = []
    for schedule in ("cosine", "linear"):
        ratios = [c.ratio for c in comparisons if c.cell.schedule == schedule]
        rows.append([schedule, len(ratios), f"{geometric_mean(ratios):.3f}", f"{max(ratios):.2f}"])
    yield from write_table(["schedule", "cells", "geometric mean (the bar: 1.05)", "worst"], rows)


def _rosenbrock(ours: Sequence[Cell]) -> Iterator[str]:
    cells = sorted(
        (cell for cell in ours if not _is_noisy(cell)), key=lambda c: (c.base, c.rate or 0)
    )
    runs = [(cell.base, history) for cell in cells for history in cell.histories]
    head = ["optimizer", "initial rate", "final loss", "steps", "extra forwards per step"]
    rows = [
        [
            base,
            f"{h.run.rate:g}",
            f"{h.last('train_loss'):.1e}",
            int(h.steps),
            f"{h.passes / h.steps - 1:.3f}",
        ]
        for base, h in runs
    ]
    yield from write_table(head, rows)


def _ablations(entries: Sequence[dict[str, Any]]) -> Iterator[str]:
    full = next(e for e in entries if e["name"] == "as it is")
    rows = []
    for e in entries:
        ratios = [a / b for a, b in zip(e["losses"], full["losses"], strict=True)]
        worst = max(range(len(ratios)), key=ratios.__getitem__)
        said = f"{ratios[worst]:.2f} ({e['cells'][worst]})"
        rows.append([e["name"], f"{geometric_mean(ratios):.3f}", said, f"{e['extra']:.3f}"])
    yield from write_table(["", "geometric mean", "worst cell", "extra forwards per step"], rows)


def _epoch_times(entries: Iterable[dict[str, Any]]) -> Iterator[str]:
    head = ["problem", "optimizer", "steps", "time over the bare optimizer's", "its first epoch"]
    rows = [
        [e["problem"], e["method"], e["steps"], f"{e['ratio']:.3f}", f"{e['first_epoch']:.3f}"]
        for e in entries
    ]
    yield from write_table(head, rows)


def _spell_place(cell: Cell) -> str:
    """The problem, with its batch size where that is not the problem's own."""
    size = cell.run.batch_size
    is_own = size in (None, PROBLEMS[cell.run.problem].batch_size)
    return cell.run.problem if is_own else f"{cell.run.problem}, batch {size}"


def _mark(one: Comparison) -> str:
    return " (tuning)" if half(one.cell) == "tuning" else ""


def _is_shown(one: Comparison, schedules: Sequence[str]) -> bool:
    return one.cell.schedule in schedules and one.cell.rate == START


def _is_noisy(cell: Cell) -> bool:
    return cell.run.problem != "rosenbrock"


def _is_in_rates(cell: Cell) -> bool:
    """Whether it is in the figure of the final loss over the initial rate."""
    if (cell.run.problem, cell.run.epochs, cell.schedule) != ("digits_mlp", 20, "constant"):
        return False
    halved = cell.options.get("momentum") == 0.5 or cell.options.get("betas") == [0.5, 0.999]
    return cell.base in ("sgd", "momentum", "adam") and not halved


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

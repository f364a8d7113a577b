"""The default rule, measured: the text of docs/robust-benchmark.md, and its figure.

What has not been run is said to be missing.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from probstep.bench.report.drawing.layout import lay_out
from probstep.bench.report.figures.ratios import draw_ratios
from probstep.bench.report.numbers.bars import HALVES
from probstep.bench.report.numbers.effort import EARLY, times_to_target
from probstep.bench.report.numbers.hazards import (
    LARGEST,
    PRESENT,
    RATES,
    Outcome,
    mean_ratio,
    spell_compared,
    spell_seeds,
)
from probstep.bench.report.numbers.parts import ABLATED, Absence
from probstep.bench.report.page.markdown import write_bars, write_paragraph, write_table
from probstep.drawing.scene import Scene
from probstep.rules.robust.rule import PARTS

from .study import OPTIMIZERS, SCHEDULES, SEEDS, SHORT, SIZES, WORST, Study

TIMED = ("ratio", "first_epoch", "later")  # what benchmarks/epoch_time.py tells


def draw_study(study: Study) -> dict[str, Scene]:
    """The ratio of every training of 1,000 steps; nothing if none has been run."""
    order = sorted(study.whole, key=lambda o: (o.half, _problem(o), o.family), reverse=True)
    named = [(f"{_problem(o)}, {_schedule(o)} ({o.half})", o) for o in order]
    figure = draw_ratios(named, WORST)
    return {} if figure is None else {"cells": lay_out(figure).whole()}


def write_study(study: Study) -> str:
    """The page."""
    return "\n".join(_page(study)).rstrip() + "\n"


def _page(study: Study) -> Iterator[str]:
    yield """# The default rule, measured

<!-- Made by `probstep page robust` from benchmarks/records; change it there. -->
"""
    yield from write_paragraph(_first_words(study))
    yield f"""## How it is measured

The rule is that of version {PRESENT[1]}. A row is a problem, an optimizer (momentum 0.9, Adam, AdamW at
torch's defaults) and a schedule. Its *ratio* is our final training loss over that of the best fixed
rate: of {RATES} rates, factors of three apart, the one that ends best on the very seeds that judge it,
which favours it. Losses are geometric means over seeds, floored at 1 % of the first loss. A training
that diverged has the ratio `inf`, which counts as {LARGEST:g} in a mean, and no test accuracy. A row
counts if both sides are on record, on the seeds that both have. The constants of the rule were chosen on
the tuning half; the kept half is of other problems. A bar is *reached* if it is on both halves; "not all
run" means that rows are missing.

To make it again: `python -m benchmarks.hazards run --suite ordinary --data DATA --ways WAYS --seeds 3
--label {PRESENT[1]}`, where WAYS is `ours,grid,prodigy,dadapt,schedulefree,momo,dog,gen`, then
`python -m benchmarks.hazards pack` and `probstep page robust`.

## Ordinary trainings
"""
    yield from _ordinary(study)
    yield "## Short runs\n"
    yield from _short(study)
    yield "## Batch sizes\n"
    yield from _sizes(study)
    yield """## Beside others

Each method at its published default, on the ordinary trainings of 1,000 steps. A number is the ratio to
the best fixed rate of the row's own optimizer: ours, then theirs, on the same rows and seeds.
"""
    yield from write_bars(study.bars["peers"])
    yield """The same by optimizer, both halves together. Prodigy is an Adam on every row, DoG an SGD: on
rows of momentum Prodigy is another optimizer, not only another rate.
"""
    yield from write_table(
        ("method", "rows of", "rows", "ours", "theirs"),
        (
            (name, kind, str(rows), f"{ours:.3f}", f"{theirs:.3f}")
            for name, kind, rows, ours, theirs in study.beside_peers()
        ),
    )
    yield """## Unusual trainings

[A page of their own](hazards.md) has every row, and the other methods on them.
"""
    yield from write_bars(study.bars["hazards"])
    yield "## What it costs\n"
    yield from _cost(study)
    yield "## What each part is for\n"
    yield from _parts(study.absences)


def _first_words(study: Study) -> str:
    ask = (
        "Take `ProbStep` around your optimizer and tune nothing: how far is that from having tried "
        f"{RATES} fixed rates and kept the best?"
    )
    bars = [bar for section in study.bars.values() for bar in section]
    known = [bar for bar in bars if bar.is_reached is not None]
    reached = sum(bar.is_reached is True for bar in known)
    told = (
        f"Of the {len(bars)} bars on this page, reached: {reached}; missed: {len(known) - reached}"
    )
    told += f"; not all run: {len(bars) - len(known)}." if known != bars else "."
    mean = mean_ratio(study.whole)
    if mean is None:
        return f"{ask} The ordinary trainings that tell have not been run with this version. {told}"
    worst = max(study.whole, key=lambda one: one.ratio)
    found = (
        f"Over {len(study.whole)} ordinary trainings of 1,000 steps the final training loss was "
        f"{mean:.2f} times that of the best of the {RATES}, in the geometric mean; the worst was "
        f"{worst.ratio:.2f} times it (`{worst.name}`)."
    )
    return f"{ask} {found} {told}"


# Ordinary trainings


def _ordinary(study: Study) -> Iterator[str]:
    yield from write_bars(study.bars["ordinary"])
    if not study.whole:
        return
    enough = sum(len(one.runs) >= SEEDS for one in study.whole)
    yield f"{enough} of {len(study.whole)} rows have the {SEEDS} seeds that the bar asks for.\n"
    yield f"""A point on the solid line has ended as the best fixed rate has, left of it lower. Points
right of the dotted line, at {WORST}, miss the bar.

![The ratio of every row](figures/cells.svg)
"""
    yield """Each row: the ratio (the best fixed rate's loss, and that rate; with a `*` it is at the edge
of the grid).
"""
    for schedule, name in SCHEDULES.items():
        part = study.of(f"ordinary, {schedule}")
        if part:
            yield f"### {name.capitalize()}\n"
            yield from _by_problem(part)
    yield from _times(study)


def _by_problem(part: Sequence[Outcome]) -> Iterator[str]:
    """A row per problem, a column per optimizer."""
    found = {(_problem(one), one.base): one for one in part}
    halves = {_problem(one): one.half for one in part}
    rows = [
        [problem, halves[problem], *(_spell(found.get((problem, base))) for base in OPTIMIZERS)]
        for problem in sorted(halves, key=lambda p: (halves[p] != "tuning", p))
    ]
    yield from write_table(["problem", "half", *OPTIMIZERS], rows)
    yield f"Rows: {len(part)}; seeds of a row: {spell_seeds(part)}.\n"


def _spell(one: Outcome | None) -> str:
    if one is None:
        return "not run"
    mark = "*" if one.is_at_edge else ""
    return f"{one.ratio:.2f} ({one.reference:.3g} at {one.best_rate:.2g}{mark})"


def _problem(one: Outcome) -> str:
    return one.name.partition("-")[0]


def _schedule(one: Outcome) -> str:
    return SCHEDULES[one.family.removeprefix("ordinary, ")]


def _times(study: Study) -> Iterator[str]:
    yield """### Time to the target

The share of the training after which the loss is first what the best fixed rate ends with: for ours, and
for that rate itself. The records have losses of single batches at some sixty steps; a loss is their mean
over a tenth of the training and over the seeds. So noise lets both arrive early, and they are to be
compared with each other only.
"""
    rows = []
    for schedule, name in SCHEDULES.items():
        for half in HALVES:
            part = [one for one in study.of(f"ordinary, {schedule}") if one.half == half]
            shares = [times for one in part if (times := times_to_target(one)) is not None]
            if shares:
                mine, its = (statistics.median(column) for column in zip(*shares, strict=True))
                arrived = sum(math.isfinite(share) for share, _ in shares)
                rows.append([name, half, len(shares), arrived, _share(mine), _share(its)])
    head = ["schedule", "half", "rows", "ours arrives", "median of ours", "of the best fixed rate"]
    yield from write_table(head, rows)


def _share(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "not reached"


# Short runs and batch sizes


def _short(study: Study) -> Iterator[str]:
    yield "The best fixed rate is that of the same length; the rate is constant.\n"
    yield from write_bars(study.bars["short"])
    for steps in SHORT:
        part = study.of(f"short, {steps} steps")
        if part:
            yield f"### {steps} steps\n"
            yield from _by_problem(part)


def _sizes(study: Study) -> Iterator[str]:
    yield "One problem, `fmnist_mlp`, of the tuning half; the worse of momentum and Adam.\n"
    yield from write_bars(study.bars["sizes"])
    found = {(one.family, one.base): one for size in SIZES for one in study.of(f"batch {size}")}
    if found:
        bases = OPTIMIZERS[:2]
        rows = [[s, *(_spell(found.get((f"batch {s}", b))) for b in bases)] for s in SIZES]
        yield from write_table(["batch size", *bases], rows)
        yield f"Rows: {len(found)}; seeds of a row: {spell_seeds(found.values())}.\n"


def _cost(study: Study) -> Iterator[str]:
    yield f"""Forward passes beyond one a step, of all trainings here, usual and unusual, that have at
least {EARLY:,} steps and tell how many were made when.
"""
    yield from write_bars(study.bars["cost"])
    yield """Time over the bare optimizer's, all in turn (`python -m benchmarks.epoch_time`). In brackets
a floor: the bare optimizer, a look at the loss and at all gradients after every step, and for as many
probes as ours has made a copy of the parameters, the products with it and a forward pass.
"""
    head = ["problem", "optimizer", "seeds", "steps", "all", "first epoch", "later epochs"]
    rows = [
        [e["problem"], e["method"], e["seeds"], e["steps"], *(_beside_floor(e, p) for p in TIMED)]
        for e in study.times
    ]
    yield from write_table(head, rows)


def _beside_floor(timed: Mapping[str, Any], part: str) -> str:
    """The time of a part of a training over the bare optimizer's, and the floor's.

    >>> _beside_floor({"later": 1.1, "floor": {"later": 1.05}}, "later")
    '1.100 (1.050)'
    """
    return f"{timed[part]:.3f} ({timed['floor'][part]:.3f})"


# The parts


def _parts(absences: Sequence[Absence]) -> Iterator[str]:
    if not absences:
        yield "Not run with this version: `python -m benchmarks.ablations --data DATA`.\n"
        return
    seeds = spell_seeds(absences[0].hazards)
    yield f"""The rule of version {ABLATED} without a part, on rows of the tuning half (seeds of a row:
{seeds}): some ordinary trainings, beside the whole rule, and the hazards, beside the plain optimizer
and beside the whole rule. *New* are hazards that fail only without the part, *gone* those that fail
only with it. To make it again: `python -m benchmarks.ablations --data DATA`.
"""
    head = ["without", "ordinary: rows", "mean ratio", "worst", "hazards: rows", "failed", "new"]
    rows = [_part(one) for one in absences if one.ordinary or one.hazards]
    yield from write_table([*head, "gone", "mean ratio", "worst beside plain"], rows)
    missing = [one.part for one in absences if not one.is_on_record]
    idle = [one.part for one in absences[1:] if one.is_on_record and not one.is_missed]
    if missing:
        yield from write_paragraph(
            f"Not run on both kinds: {', '.join(p or 'the whole' for p in missing)}."
        )
    if idle:
        yield from write_paragraph(
            "Without one of these no further hazard fails and no mean is worse by more than 1 %: "
            f"{', '.join(idle)}."
        )


def _part(one: Absence) -> list[object]:
    return [
        f"`{one.part}`: {PARTS[one.part]}" if one.part else "nothing: the whole rule",
        len(one.ordinary),
        _mean(one.ordinary),
        _worst(one.ordinary),
        len(one.hazards),
        len(one.failed),
        ", ".join(one.newly_failed),
        ", ".join(one.saved),
        _mean(one.moved),
        _worst(one.hazards),
    ]


def _mean(outcomes: Sequence[Outcome]) -> str:
    mean = mean_ratio(outcomes)
    return "" if mean is None else f"{mean:.3f}"


def _worst(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return ""
    worst = max(outcomes, key=lambda one: one.badness)
    return f"{spell_compared(worst)} ({worst.name})"

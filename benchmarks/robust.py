"""The benchmark of the robust rule: from the records of the plan `robust` to its page in the docs.

    probstep run robust --jobs 2 --out runs/robust     # two to three hours on two cores
    python benchmarks/robust.py collect runs/robust    # a line per run: benchmarks/records/robust.jsonl
    python benchmarks/robust.py page                   # docs/robust-benchmark.md, and its figures

A cell is a problem (with its batch size) and an optimizer. Its ratio is our final training loss over
that of the best fixed rate, both as geometric means over the seeds; the best fixed rate is chosen on
the same seeds, which favours it. What decided constants of the rule is the tuning half, the rest is
held out.
"""

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from robust_figures import FIGURES, draw
from robust_results import (
    BASES,
    Cell,
    Grid,
    Result,
    collect,
    geometric,
    make_cells,
    quantile,
    read,
)

HERE = Path(__file__).parent
ABLATIONS = HERE / "records" / "ablations.jsonl"
EPOCHS = HERE / "records" / "epoch_time.jsonl"
PAGE = HERE.parent / "docs" / "robust-benchmark.md"
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


# Tables


def row(*entries: object) -> str:
    return "| " + " | ".join(map(str, entries)) + " |"


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> Iterator[str]:
    head = list(head)
    yield row(*head)
    yield row(*["---"] * len(head))
    yield from (row(*entries) for entries in rows)
    yield ""


def bar(cells: list[Cell]) -> Iterator[str]:
    plain = [c for c in cells if c.schedule == "constant"]
    halves = {
        "tuning half": [c for c in plain if c.half == "tuning"],
        "held-out half": [c for c in plain if c.half == "held out"],
        "all": plain,
    }
    yield from table(
        ["", "cells x rates", "geometric mean", "95th percentile", "worst", "single worst seed",
         "test accuracy, points"],
        [["the bar", "", "1.05", "1.25", "1.5", "", "-1"], *(
            [half, len(part), f"{geometric(c.ratio for c in part):.3f}",
             f"{quantile([c.ratio for c in part], 0.95):.2f}", f"{max(c.ratio for c in part):.2f}",
             f"{max(c.worst_seed for c in part):.1f}",
             f"{statistics.fmean(c.accuracy for c in part if c.accuracy is not None):+.2f}"]
            for half, part in halves.items()
        )],
    )  # fmt: skip


def all_cells(cells: list[Cell], schedules: Iterable[str]) -> Iterator[str]:
    chosen = [c for c in cells if c.schedule in schedules and c.rate == 1e-3]
    places = sorted({(c.half != "tuning", c.place, c.schedule) for c in chosen}, key=str)
    bases = [b for b in BASES if any(c.base == b for c in chosen)]
    found = {(c.place, c.schedule, c.base): c for c in chosen}
    rows = []
    for _, place, schedule in places:
        cells_of = [found.get((place, schedule, base)) for base in bases]
        half = next(c.half for c in cells_of if c)
        label = place if schedule == "constant" else f"{place}, {schedule}"
        rows.append([label, half, *map(show_cell, cells_of)])
    yield from table(["problem", "half", *bases], rows)


def show_cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    mark = "*" if cell.best.at_edge else ""
    return f"{cell.ratio:.2f} ({cell.best.loss:.3g} at {cell.best.rate:g}{mark})"


def spread(results: list[Result]) -> Iterator[str]:
    finals = defaultdict(list)
    for r in results:
        if r.method.startswith("robust_") and r.schedule == "constant" and r.epochs < 100:
            finals[r.place, r.method, r.rate].append(r.final)
    medians = {key: statistics.median(values) for key, values in finals.items()}
    rows = []
    for rate in (1e-8, 1e-6, 1e-4, 1e-2, 1.0, 10.0, 100.0):
        away = [
            abs(value / medians[place, method, 1e-3] - 1)
            for (place, method, e), value in medians.items()
            if e == rate and (place, method, 1e-3) in medians
        ]
        rows.append([f"{rate:g}", len(away), f"{100 * max(away):.2f} %"])
    yield from table(
        ["initial rate", "cells", "largest distance of the median from that at 1e-3"], rows
    )


def cost(results: list[Result]) -> Iterator[str]:
    ours = [r for r in results if r.method.startswith("robust_") and r.problem != "rosenbrock"]
    runs = [r for r in ours if 500 <= r.steps < 4000]
    long = [r for r in ours if r.steps >= 4000]
    extra = [r.forward_passes[-1] / r.steps - 1 for r in runs]
    late_extra = list(map(late, long))
    rows = [
        ["500 to 4,000 steps", 0.15, *spell(extra)],
        ["5,000 steps, after the first tenth", 0.05, *spell(late_extra)],
    ]
    yield from table(
        ["forward passes beyond one per step", "the bar", "runs", "mean", "largest"], rows
    )
    ended = sum(r.status != "done" for r in ours)
    yield f"Runs of ours that diverged or failed, from whatever initial rate: {ended} of {len(ours)}."
    yield ""


def spell(values: list[float]) -> list[object]:
    return [len(values), f"{statistics.fmean(values):.3f}", f"{max(values):.3f}"]


def late(result: Result) -> float:
    """The forward passes per step beyond one, after the first tenth."""
    tenth = result.epochs // 10
    steps = result.steps * (1 - tenth / result.epochs)
    return (result.forward_passes[-1] - result.forward_passes[tenth]) / steps - 1


def peers(results: list[Result], grid: Grid) -> Iterator[str]:
    """Final losses over that of the best fixed Adam, for the problems that all of them were run on."""
    finals = defaultdict(list)
    for r in results:
        finals[label(r), r.place].append(r.final)
    methods = ["robust_adam", "robust_adamw", "robust_adamw, linear decay", *PEERS]
    places = [
        p for p in dict.fromkeys(r.place for r in results) if all((m, p) in finals for m in methods)
    ]
    places.sort(key=str)
    best = {key[0]: b.loss for key, b in grid.best.items() if key[2:] == ("constant", "adam")}
    ratios = {m: [geometric(finals[m, p]) / best[p] for p in places] for m in methods}
    order = sorted(methods, key=lambda m: geometric(ratios[m]))
    yield from table(
        ["method", "geometric mean", *places],
        [[m, f"{geometric(ratios[m]):.2f}", *(f"{x:.2f}" for x in ratios[m])] for m in order],
    )


def label(r: Result) -> str:
    """The method, and its schedule; empty for what is not at its default."""
    if r.method.startswith("robust_"):
        tail = "" if r.schedule == "constant" else f", {r.schedule} decay"
        return r.method + tail if r.rate == 1e-3 and r.epochs < 100 else ""
    is_default = r.rate in (None, 1e-3) if r.method in BASES else True
    return r.method if is_default and r.schedule == "constant" else ""


def rosenbrock(results: list[Result]) -> Iterator[str]:
    rows = [
        [r.method.removeprefix("robust_"), f"{r.rate:g}", f"{r.final:.1e}", r.steps,
         f"{r.forward_passes[-1] / r.steps - 1:.3f}"]
        for r in sorted(results, key=lambda r: (r.method, r.rate or 0))
        if r.problem == "rosenbrock" and r.method.startswith("robust_")
    ]  # fmt: skip
    yield from table(
        ["optimizer", "initial rate", "final loss", "steps", "extra forwards per step"], rows
    )


def ablations() -> Iterator[str]:
    entries = [json.loads(line) for line in ABLATIONS.read_text().splitlines()]
    full = next(e for e in entries if e["name"] == "as it is")
    rows = []
    for e in entries:
        ratios = [a / b for a, b in zip(e["losses"], full["losses"], strict=True)]
        worst = max(range(len(ratios)), key=ratios.__getitem__)
        name, mean = e["name"], f"{geometric(ratios):.3f}"
        rows.append([name, mean, f"{ratios[worst]:.2f} ({e['cells'][worst]})", f"{e['extra']:.3f}"])
    yield from table(["", "geometric mean", "worst cell", "extra forwards per step"], rows)


def epoch_time() -> Iterator[str]:
    entries = [json.loads(line) for line in EPOCHS.read_text().splitlines()]
    head = ["problem", "optimizer", "steps", "time over the bare optimizer's", "its first epoch"]
    rows = [
        [e["problem"], e["method"], e["steps"], f"{e['ratio']:.3f}", f"{e['first_epoch']:.3f}"]
        for e in entries
    ]
    yield from table(head, rows)


# The page


def page(results: list[Result], cells: list[Cell], grid: Grid) -> Iterator[str]:
    edges = sum(b.at_edge for b in grid.best.values())
    yield f"""# The robust rule, measured

<!-- Made by `python benchmarks/robust.py page` from benchmarks/records; change it there. -->

{len(results):,} runs of the plan `robust`; `benchmarks/records/robust.jsonl` has a line of each. To
make it again: `probstep run robust --jobs 2 --out runs/robust`, then `python benchmarks/robust.py
collect runs/robust` and `python benchmarks/robust.py page`.

A cell is a problem and an optimizer, at torch's defaults (momentum 0.9 for SGD). Its *ratio* is our
final training loss over that of the best fixed rate for the same optimizer and epochs, both as
geometric means over the seeds (three; two on the largest problems). The best fixed rate is chosen
on the very seeds that judge it, which favours it. The constants of the rule were chosen on the
tuning half; the other half was looked at when they were, but for `digits_conv`, where a net that
died led to guards. Where a loss goes to zero, as on the digits, one seed differs from the next by a
factor of three and more, so single seeds are shown apart.

## Against the best fixed rate
"""
    yield from bar(cells)
    yield f"""![The ratio of every cell](figures/cells.svg)

Each cell, ours from an initial rate of 1e-3: the ratio (the best fixed rate's loss, and that rate;
with a `*` it is at the edge of its grid, as for {edges} of {len(grid.best)} grids).
"""
    yield from all_cells(cells, ["constant"])
    yield "## From any initial rate\n"
    yield from spread(results)
    yield "## What it costs\n"
    yield from cost(results)
    yield "Wall-clock, the bare optimizer and ours in turn (`benchmarks/epoch_time.py`):\n"
    yield from epoch_time()
    yield """## Against what people pick today

Final training loss over that of the best fixed Adam. Every method at its published default; fixed
Adam and AdamW at 1e-3. Schedule-Free averages its iterates, so it is to be compared with ours under
a linear decay.
"""
    yield from peers(results, grid)
    yield """## Under a decay to zero

The ratio to the best fixed rate under the same schedule.
"""
    yield from scheduled(cells)
    yield from all_cells(cells, ["cosine", "linear"])
    yield "## Without noise: Rosenbrock's function\n"
    yield from rosenbrock(results)
    yield """## What each part is for

The final loss without a part of the rule, or with another value of a setting, over that of the rule
as it is, on the small problems of the tuning half with all six optimizers
(`benchmarks/ablations.py`). Differences below about 5 % are noise.

These four do not punish recklessness: no net dies on them. That steps are taken back, surprises watched
and a rate not raised by a step that went too far is meant for nets that do.
"""
    yield from ablations()


def scheduled(cells: list[Cell]) -> Iterator[str]:
    rows = []
    for schedule in ("cosine", "linear"):
        ratios = [c.ratio for c in cells if c.schedule == schedule]
        rows.append([schedule, len(ratios), f"{geometric(ratios):.3f}", f"{max(ratios):.2f}"])
    yield from table(["schedule", "cells", "geometric mean (the bar: 1.05)", "worst"], rows)


def main() -> None:
    match sys.argv[1:]:
        case ["collect", out]:
            collect(out)
        case ["page"]:
            results = read()
            grid = Grid(results)
            cells = make_cells(results, grid)
            PAGE.write_text("\n".join(page(results, cells, grid)).rstrip() + "\n")
            draw(results, cells)
            print(f"{PAGE} and {FIGURES}")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()

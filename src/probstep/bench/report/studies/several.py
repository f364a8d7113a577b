"""Two optimizers under one loss: docs/several-benchmark.md, from records of benchmarks/several.py."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probstep.bench.means import geometric_mean
from probstep.bench.report.page.markdown import write_table

RECORDS = ("several.jsonl",)
MEAN_BAR, WORST_BAR = 1.05, 1.3

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A problem with a pair of optimizers.

    Args:
        problem: What is trained.
        pair: By which optimizers.
        grid: The runs of the grid.
        ours: Our runs, each from other initial rates.
    """

    problem: str
    pair: str
    grid: Sequence[Record]
    ours: Sequence[Record]

    @property
    def best(self) -> Record:
        """The best run of the grid."""
        return min(self.grid, key=_loss)

    @property
    def is_at_edge(self) -> bool:
        """Whether the best has the lowest or the highest rate of the grid."""
        sides = [sorted({record["given"][k] for record in self.grid}) for k in (0, 1)]
        pairs = zip(self.best["given"], sides, strict=True)
        return any(rate in (side[0], side[-1]) for rate, side in pairs)

    def ratio(self, record: Record) -> float:
        """A run's loss over that of the best of the grid."""
        return _loss(record) / _loss(self.best)


def read_study(records: Path) -> list[Case]:
    """The cases on record, in their order."""
    lines = (records / RECORDS[0]).read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    cases = []
    for problem, pair in dict.fromkeys((r["problem"], r["pair"]) for r in found):
        own = [r for r in found if (r["problem"], r["pair"]) == (problem, pair)]
        ways = {way: [r for r in own if r["way"] == way] for way in ("grid", "ours")}
        if all(ways.values()):
            cases.append(Case(problem, pair, ways["grid"], ways["ours"]))
    return cases


def write_study(cases: Sequence[Case]) -> str:
    """The page."""
    return "\n".join(_page(cases)).rstrip() + "\n"


def _page(cases: Sequence[Case]) -> Iterator[str]:
    yield """# Several optimizers, measured

<!-- Made by `probstep page several` from benchmarks/records; change it there. -->

`ProbStep([a, b])`, see [several optimizers](several.md), against a grid over both rates: the oracle is
the best of its runs. A number is the loss of held-out data after the last step; a *ratio* is our loss
over that of the oracle. The runs are short and the models small: `benchmarks/several.py` has them.

To make it again: `python benchmarks/several.py --data DIR`, then `probstep page several`.
"""
    if not cases:
        yield "Nothing is on record yet."
        return
    ratios = [case.ratio(record) for case in cases for record in case.ours]
    mean, worst = geometric_mean(ratios), max(ratios)
    yield (
        f"**Geometric mean of the ratios: {mean:.3f}, the worst: {worst:.3f}**, over {len(ratios)} runs "
        f"of {len(cases)} cases. The bar was {MEAN_BAR} and {WORST_BAR}.\n"
    )
    yield from _overview(cases)
    for case in cases:
        yield f"## {case.problem}: {case.pair}\n"
        yield from _grid(case)


def _overview(cases: Sequence[Case]) -> Iterator[str]:
    head = ["problem", "optimizers", "steps", "oracle", "its rates", "given to ours", "ours", "ratio",
            "our last rates", "forwards per step"]  # fmt: skip
    rows = []
    for case in cases:
        edge = " (at the edge)" if case.is_at_edge else ""
        for record in case.ours:
            forwards = 1 + record["forwards"] / record["steps"]
            rows.append([
                case.problem, case.pair, record["steps"], _spell(_loss(case.best)),
                _rates(case.best["given"]) + edge, _rates(record["given"]), _spell(_loss(record)),
                f"{case.ratio(record):.3f}", _rates(record["rates"]), f"{forwards:.2f}",
            ])  # fmt: skip
    yield from write_table(head, rows)


def _grid(case: Case) -> Iterator[str]:
    """The grid, a row for each rate of the first optimizer, a column for each of the second."""
    first, second = (sorted({record["given"][k] for record in case.grid}) for k in (0, 1))
    names = case.pair.split(" + ")
    losses = {tuple(record["given"]): _loss(record) for record in case.grid}
    best = _loss(case.best)
    rows = []
    for a in first:
        row = [f"{a:.2g}"]
        for b in second:
            loss = losses.get((a, b))
            text = "" if loss is None else _spell(loss)
            row.append(f"**{text}**" if loss == best else text)
        rows.append(row)
    yield from write_table([f"{names[0]} \\ {names[1]}", *(f"{b:.2g}" for b in second)], rows)


def _loss(record: Record) -> float:
    return math.inf if record["loss"] is None else float(record["loss"])


def _spell(loss: float) -> str:
    return "diverged" if math.isinf(loss) else f"{loss:.4g}"


def _rates(rates: Sequence[float]) -> str:
    return ", ".join(f"{rate:.2g}" for rate in rates)

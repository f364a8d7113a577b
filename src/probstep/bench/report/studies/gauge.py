"""How far the gauge of a watched rate is right: a part of docs/watch.md, from benchmarks/gauge.py.

The truth is the rate over the best fixed rate of the plan `robust`, over the same seeds.
"""

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probstep.bench.report.numbers.best_rates import Best, find_best_rates, half_of
from probstep.bench.report.numbers.summaries import read_summaries
from probstep.bench.report.page.markdown import write_table
from probstep.rules.watch import DEVIATIONS, OPEN, interval

RECORDS = ("gauge.jsonl", "robust.jsonl")
HALVES = ("tuning", "held out")
BEFORE = 0.7  # what was left open before it was measured, whatever the limit


@dataclass(frozen=True)
class Verdict:
    """What a gauge said of a rate, and what is true.

    Args:
        half: Whether constants were chosen on its problem.
        when: "soon" after the start of the training, or at its "end".
        times: The rate over the middle of the best fixed rates, as it was planned.
        limit: What the gauge said is the limit.
        factor: What it said of the rate.
        variance: Of the logarithm of that, as far as probes scatter.
        low: The lower end of its interval.
        high: The upper end.
        true_low: The rate over the highest of the best fixed rates.
        true_high: The rate over the lowest of them.
    """

    half: str
    when: str
    times: float
    limit: str
    factor: float
    variance: float
    low: float
    high: float
    true_low: float
    true_high: float

    @property
    def holds(self) -> bool:
        """Whether the interval holds a factor that is true."""
        return self.low <= self.true_high and self.true_low <= self.high

    @property
    def off_by(self) -> float:
        """The factor from what it said to what is true; 1 if that is said."""
        return max(self.factor / self.true_high, self.true_low / self.factor, 1.0)

    @property
    def says(self) -> str:
        """On which side it says that the rate is; "open" if the interval holds 1."""
        return "too low" if self.high < 1 else "too high" if self.low > 1 else "open"

    @property
    def is_wrong(self) -> bool:
        """Whether it names a side, and the rate is not on that side of all the best ones."""
        is_low, is_high = self.true_high < 1, self.true_low > 1
        return (self.says == "too low" and not is_low) or (self.says == "too high" and not is_high)


@dataclass(frozen=True)
class Study:
    """All verdicts."""

    verdicts: Sequence[Verdict]
    pairs: int
    seeds: int


def read_study(records: Path) -> Study:
    """The study in a folder of records."""
    text = (records / RECORDS[0]).read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    pairs = {(line["problem"], line["method"]) for line in lines}
    seeds = {line["seed"] for line in lines}
    best = find_best_rates(pairs, read_summaries(records / RECORDS[1]), seeds)
    verdicts = [judge(line, best[line["problem"], line["method"]]) for line in lines]
    return Study(verdicts, len(pairs), len(seeds))


def judge(line: Mapping[str, Any], best: Best) -> Verdict:
    """A line of the records beside the best fixed rates.

    >>> said = {"factor": 0.001, "variance": 0.0, "limit": "curvature", "rate": 1e-4, "when": "end"}
    >>> planned = {"problem": "line", "method": "sgd", "times": 0.001}
    >>> verdict = judge(planned | said, Best((0.1,), loss=1.0, first={}))
    >>> verdict.holds, verdict.says, verdict.is_wrong
    (True, 'too low', False)
    """
    low, high = interval(line["factor"], line["variance"], line["limit"])
    return Verdict(
        half=half_of((line["problem"], line["method"])),
        **{key: line[key] for key in ("when", "times", "limit", "factor", "variance")},
        low=low,
        high=high,
        true_low=line["rate"] / max(best.rates),
        true_high=line["rate"] / min(best.rates),
    )


def write_study(study: Study) -> str:
    """The part of the page."""
    return "\n".join(_part(study)).rstrip() + "\n"


def _part(study: Study) -> Iterator[str]:
    yield f"""
The gauges of {study.pairs} trainings of the bench, a problem and an optimizer each, at five fixed rates
and with {study.seeds} seeds: *soon*, after 100 steps, and at the *end*. The truth is the rate over the
best fixed rate of the whole training, one of the plan `robust`. A *side* is named where the interval
does not hold 1. Too low is wrong unless all best rates are higher, too high unless all are lower. The
problems are those of [the suggested rates](suggest.md), without `fmnist_mlp`, which is slow. What noise
allows was then taken from the bound of version 0.2.0; that of 0.3.0 allows a fifth less where the gain
is known.
"""
    rows = [
        [half, when, *_summary([v for v in study.verdicts if (v.half, v.when) == (half, when)])]
        for half in HALVES
        for when in ("soon", "end")
    ]
    head = ["gauges", "interval holds", "off by", "side named", "wrong side"]
    yield from write_table(["half", "when", *head], rows)
    for title, key in (("rate over the best", _spell_times), ("limit", lambda v: v.limit)):
        yield from write_table([title, *head], _rows(study.verdicts, key))
    curvature, noise = (f"{math.exp(DEVIATIONS * OPEN[k]):.0f}" for k in ("curvature", "noise"))
    yield f"""*Off by* is a factor, either way: half of the gauges are nearer to the truth.

What the theory leaves open, a factor of {curvature} either way for curvature and of {noise} for noise,
was chosen so that the intervals of each hold in nine of ten on the tuning half. Before it was measured,
{math.exp(DEVIATIONS * BEFORE):.2g} was thought to be enough for both.
That holds in {_share_before(study):.0%}. A rate that is ten times too low is often not told from a
right one, and that noise is the limit says little of a side: read the interval, not the factor.

To make it again: `python -m benchmarks.gauge`, then `probstep page gauge`.
"""


def _share_before(study: Study) -> float:
    """The share of the intervals that would hold with what was left open before."""
    return statistics.fmean(
        math.log(one.off_by) <= DEVIATIONS * math.sqrt(one.variance + BEFORE**2)
        for one in study.verdicts
    )


def _rows(verdicts: Sequence[Verdict], key: Callable[[Verdict], str]) -> list[list[Any]]:
    """A row for each value of the key, in the order of the rates."""
    ordered = sorted(verdicts, key=lambda verdict: verdict.times)
    names = dict.fromkeys(map(key, ordered))
    return [[name, *_summary([v for v in ordered if key(v) == name])] for name in names]


def _summary(part: Sequence[Verdict]) -> list[str]:
    named = sum(verdict.says != "open" for verdict in part)
    return [
        f"{len(part)}",
        f"{statistics.fmean(verdict.holds for verdict in part):.0%}",
        f"{statistics.median(verdict.off_by for verdict in part):.2g}",
        f"{named}",
        f"{sum(verdict.is_wrong for verdict in part)}",
    ]


def _spell_times(verdict: Verdict) -> str:
    times = verdict.times
    return f"1/{1 / times:.0f}" if times < 1 else f"{times:.0f}"

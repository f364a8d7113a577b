"""What a run of benchmarks/hazards costs, and when it arrives: read from its trace."""

import math
from collections.abc import Sequence

from probstep.bench.means import mean
from probstep.bench.report.numbers.cells import FLOOR
from probstep.bench.report.numbers.hazards import Outcome, Record

EARLY = 1000  # steps, after which the forward passes must have become few
LAST = 0.1  # the share of the steps over which a loss is averaged


def early_passes(run: Record) -> float | None:
    """The extra forward passes per step of the first 1,000 steps; None if the run does not tell.

    >>> early_passes({"steps": 1000, "forwards": 90.0})
    0.09
    """
    if run.get("steps", 0) < EARLY:
        return None
    if run["steps"] == EARLY:
        return float(run["forwards"]) / EARLY
    counted = _count_early(run)
    return None if counted is None else counted / EARLY


def late_passes(run: Record) -> float | None:
    """Those of the steps after them."""
    counted = _count_early(run)
    if counted is None or run["steps"] <= EARLY:
        return None
    return (float(run["forwards"]) - counted) / (int(run["steps"]) - EARLY)


def _count_early(run: Record) -> float | None:
    """The extra forward passes of the first 1,000 steps, between two points of the trace."""
    trace = run.get("trace") or {}
    points = list(zip(trace.get("step", ()), trace.get("forwards", ()), strict=False))
    before = [(step + 1, count) for step, count in points if step < EARLY]
    after = [(step + 1, count) for step, count in points if step + 1 >= EARLY]
    if not (before and after):
        return None
    (low, least), (high, most) = before[-1], after[0]
    share = (EARLY - low) / (high - low) if high > low else 0.0
    return float(least + share * (most - least))


def times_to_target(one: Outcome) -> tuple[float, float] | None:
    """After which share of the steps ours, and the reference, have the loss that the latter ends with.

    A trace has losses of single batches, at some sixty steps. So a loss is the mean over a tenth of the
    steps and over the seeds, and the reference is read in the same way: it may arrive before its end,
    too. A share is infinite where a way does not arrive; None if a trace is missing.
    """
    ours, theirs = _curve(one.runs), _curve(one.references)
    if not (ours and theirs):
        return None
    floor = FLOOR * mean([abs(float(r["first"])) for r in one.references])
    target = max(theirs[-1][1], floor) * (1 + 1e-9)
    mine, its = (next((s for s, loss in c if loss <= target), math.inf) for c in (ours, theirs))
    return mine, its


def _curve(runs: Sequence[Record]) -> list[tuple[float, float]]:
    """Shares of the steps, from a tenth on, and the mean loss of the tenth before."""
    traces = [run.get("trace") or {} for run in runs]
    if any(run["status"] != "done" for run in runs) or not all(t.get("step") for t in traces):
        return []
    steps = traces[0]["step"]
    columns = zip(*(trace["loss"] for trace in traces), strict=True)
    losses = [mean([math.inf if loss is None else loss for loss in column]) for column in columns]
    length = steps[-1] + 1
    points = list(zip(steps, losses, strict=True))
    return [
        ((step + 1) / length, mean([x for s, x in points if step - LAST * length < s <= step]))
        for step, _ in points
        if step + 1 >= LAST * length
    ]

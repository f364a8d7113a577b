"""C1 and C13: what an adapted step costs in passes, time and memory."""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from .evidence import OURS, Evidence
from .verdict import NO_RECORDS, Verdict, passes_per_step

ROUNDED = 0.01  # of a pass
MOST_COPIES = 1.5  # that round to the paper's one
PAPER_LIMIT = 1.5  # what the paper says that an epoch takes at most, over the bare optimizer's


def judge_cost(evidence: Evidence) -> Verdict:
    """One more forward pass per step, and how much longer an epoch takes."""
    passes = [passes_per_step(end.cell) for end in evidence.choose(OURS)]
    times = [line for line in evidence.costs if line["kind"] == "time"]
    if not passes:
        return NO_RECORDS
    is_one_more = abs(fmean(passes) - 2) < ROUNDED  # a step whose loss is not finite has none
    said = f"{fmean(passes):.2f} forward passes per step instead of 1"
    if not times:
        why = (
            "The passes are counted in every run. The time is not on record yet: it is to be taken "
            "on a machine that does nothing else, by `python benchmarks/paper_cost.py time`."
        )
        return Verdict("partly" if is_one_more else "refuted", said, why, len(passes))
    ratios = [line["ratio"] for line in times]
    said += f"; an epoch takes {fmean(ratios):.2f} times as long ({_list_ratios(times)})"
    is_cheap = fmean(ratios) <= PAPER_LIMIT
    why = "Both ways in turn on the same batches, one thread, no evaluation."
    return Verdict("confirmed" if is_one_more and is_cheap else "partly", said, why, len(passes))


def judge_memory(evidence: Evidence) -> Verdict:
    """The step is kept explicitly: a copy of the parameters."""
    lines = [line for line in evidence.costs if line["kind"] == "memory"]
    if not lines:
        return NO_RECORDS
    peaks = [line["copies"] for line in lines]
    kept = max(line["kept"] for line in lines)
    said = (
        f"{median(peaks):.2f} copies while a step is taken (median of {len(peaks)} nets and "
        f"optimizers), {kept:.2f} between steps"
    )
    why = (
        f"By `python benchmarks/paper_cost.py memory`: {_list_copies(lines)}. The most bytes of "
        "tensors alive in a step beyond those of the bare optimizer's; in the smallest net other "
        "tensors count."
    )
    return Verdict("confirmed" if median(peaks) <= MOST_COPIES else "refuted", said, why)


def _list_ratios(lines: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"{line['problem']} {line['base']} {line['ratio']:.2f}" for line in lines)


def _list_copies(lines: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"{line['problem']} {line['base']} {line['copies']:.2f}" for line in lines)

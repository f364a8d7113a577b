"""C1 and C13: what an adapted step costs in passes, time and memory."""

import math
from collections.abc import Iterator
from statistics import fmean, median

from probstep.bench.report.page.markdown import write_table

from .evidence import NETS, OURS, Evidence
from .verdict import NO_RECORDS, Verdict, Word, count, passes_per_step

ROUNDED = 0.01  # of a pass
MOST_COPIES = 1.5  # that round to the paper's one
PAPER_LIMIT = 1.5  # what the paper says that an epoch takes at most, over the bare optimizer's
PAPER_CASE = "cifar10_3c3d", "adam"  # what the paper took its times of
COLUMNS = {  # of the table: optimizer, what is measured, how it is written
    "bare step with Adam, ms": ("adam", "bare_ms", ".4g"),
    "epoch, Adam": ("adam", "ratio", ".2f"),
    "epoch, Momentum": ("momentum", "ratio", ".2f"),
    "copies, Adam": ("adam", "copies", ".2f"),
    "copies, Momentum": ("momentum", "copies", ".2f"),
}


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
    ratios = {(line["problem"], line["base"]): line["ratio"] for line in times}
    own, mean = ratios.get(PAPER_CASE, math.inf), fmean(ratios.values())
    cheap = [ratio <= PAPER_LIMIT for ratio in ratios.values()]
    said += (
        f"; an epoch takes {own:.2f} times as long with Adam on cifar10_3c3d, where the paper "
        f"measured, {min(ratios.values()):.2f} to {max(ratios.values()):.2f} times over all nets, "
        f"{mean:.2f} times on average"
    )
    why = (
        f"At most {PAPER_LIMIT:g} times as long in {count(cheap)} cases ([the table](#what-it-costs)). "
        "What a pass takes beside the rest of a step depends on net and machine. The average is ruled "
        "by the smallest nets, whose bare step is so short that the calls of Python count, too; the "
        "paper's is of a sweep on one net, on a machine that it does not name."
    )
    word: Word = "refuted"
    if is_one_more and any(cheap):
        word = "confirmed" if max(own, mean) <= PAPER_LIMIT else "partly"
    return Verdict(word, said, why, len(passes))


def write_costs(evidence: Evidence) -> Iterator[str]:
    """How much longer an epoch takes on each net, and what a step keeps: a row per net."""
    rows = [
        (f"`{net}`", *(_find(evidence, net, *column) for column in COLUMNS.values()))
        for net in NETS.values()
        if any(line["problem"] == net for line in evidence.costs)
    ]
    if rows:
        yield from write_table(("net", *COLUMNS), rows)
    else:
        yield "*Not measured yet.*\n"


def _find(evidence: Evidence, net: str, base: str, name: str, form: str) -> str:
    found = [
        e[name] for e in evidence.costs if (e["problem"], e["base"]) == (net, base) and name in e
    ]
    return f"{found[0]:{form}}" if found else ""


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
        "The most bytes of tensors alive in a step beyond those of the bare optimizer's; in the "
        "smallest net other tensors count ([the table](#what-it-costs))."
    )
    return Verdict("confirmed" if median(peaks) <= MOST_COPIES else "refuted", said, why)

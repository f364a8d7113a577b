"""C2 and C3: how far the runs on record are the paper's."""

from collections.abc import Iterable

from probstep.bench.problems import PROBLEMS
from probstep.drawing.axes import spell

from .evidence import (
    FIXED,
    HYPER,
    NETS,
    OURS,
    OURS_09,
    End,
    Evidence,
    paper_problem,
)
from .verdict import NO_RECORDS, Verdict, Word


def judge_settings(evidence: Evidence) -> Verdict:
    """Initial rates and momenta."""
    if not evidence.ends:
        return NO_RECORDS
    ours, others = evidence.choose(OURS), evidence.choose(FIXED, HYPER)
    rates = [len({e.rate for e in group}) for group in _by_net(ours).values()]
    low, high = min(e.rate for e in ours), max(e.rate for e in ours)
    extra = evidence.choose(OURS_09)
    fewest, most = min(rates), max(rates)
    starts = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    said = (
        f"{starts} initial rates from {spell(low)} to {spell(high)} per net; "
        f"{len(extra)} runs of the paper's rule at momentum 0.9 beside it"
    )
    why = (
        "The settings are the paper's: 0.5 for the paper's rule, 0.9 for the others, torch's defaults "
        f"for the rest. PyTorch is {' and '.join(evidence.origin.torch)} instead of 1.4."
    )
    is_whole = min(rates) >= 6 and low == 1e-5 and high == 1.0
    return Verdict("confirmed" if is_whole else "partly", said, why, len(ours) + len(others))


def judge_budget(evidence: Evidence) -> Verdict:
    """Epochs, samples and penalties."""
    if not evidence.ends:
        return NO_RECORDS
    found = {e.problem: e.cell.run for e in evidence.ends}
    runs = {problem: found[problem] for problem in NETS if problem in found}
    full = [p for p, r in runs.items() if r.epochs == paper_problem(p).paper_epochs]
    l2 = all(PROBLEMS[p].l2 == paper_problem(p).l2 for p in runs)
    epochs = [run.epochs for run in runs.values()]
    samples = sorted({run.subset or 0 for run in runs.values()} - {0})
    said = f"{min(epochs)} to {max(epochs)} epochs"
    if samples:
        said += f" of {samples[0]:,} to {samples[-1]:,} samples"
    said += " ([the table](#what-differs-from-the-paper))"
    why = (
        f"The penalties are the paper's ({(l2 and 'all') or 'not all'}), the number of epochs on "
        f"{', '.join(full) or 'no net'}. Two cores cannot do more: every statement below is about "
        "short trainings on small subsets."
    )
    is_whole = l2 and len(full) == len(NETS) and not any(run.subset for run in runs.values())
    word: Word = "confirmed" if is_whole else "not at this scale"
    return Verdict(word, said, why, len(evidence.ends))


def _by_net(ends: Iterable[End]) -> dict[tuple[str, str], list[End]]:
    groups: dict[tuple[str, str], list[End]] = {}
    for end in ends:
        groups.setdefault((end.problem, end.base), []).append(end)
    return groups

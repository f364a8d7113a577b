"""What is on record of the plans, and how long it trained."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from probstep.bench.plans import list_runs, read_plan
from probstep.bench.records import Run
from probstep.bench.report.numbers.cells import Cell
from probstep.bench.report.page.markdown import write_table

from .differences import PLAN
from .evidence import RECORDS, ROBUST, Evidence, Origin
from .since import PLAN as BESIDE


@dataclass(frozen=True)
class Effort:
    """The training of some runs on a core that does nothing else.

    Args:
        unknown: Of how many runs nothing of their kind is on record.
    """

    hours: float
    unknown: int


def estimate_effort(runs: Iterable[Run], cells: Sequence[Cell]) -> Effort:
    """Let every run be as fast as the fastest on record of its net and method.

    The clock of a busy machine tells more than the work; the fastest run was disturbed least.
    """
    paces: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        for history in cell.histories:
            if history.status == "done" and history.seconds:
                kind = history.run.problem, history.run.method
                paces.setdefault(kind, []).append(history.seconds / history.run.epochs)
    seconds, unknown = 0.0, 0
    for run in runs:
        if found := paces.get((run.problem, run.method)):
            seconds += run.epochs * min(found)
        else:
            unknown += 1
    return Effort(seconds / 3600, unknown)


def write_records(evidence: Evidence) -> Iterator[str]:
    """What is on record, of which commit, and what it took."""
    yield """## The records

No number on this page is typed by hand: `make results` makes it and its figures from the files in
benchmarks/records. A record carries commit, versions and seed.
"""
    head = ("file", "runs", "planned", "commit", "hours by the clock", "undisturbed")
    yield from write_table(head, list(_list_records(evidence)))
    whole = estimate_effort(list_runs(read_plan(PLAN)), evidence.cells)
    rest = (
        f", without {whole.unknown} runs of whose kind none is on record" if whole.unknown else ""
    )
    yield f"""The hours are of training on one core, without the evaluations after each epoch. The clock
is that of a machine that did other work, too; undisturbed, each run is taken to be as fast as the
fastest of its net and method. So the whole plan `{PLAN}` takes {whole.hours:.1f} hours{rest}. It is
ranked, the most telling runs first, so that a part of it is a result, too. {_missing(evidence)}
"""


def _list_records(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    small, beside = (list_runs(read_plan(plan)) for plan in (PLAN, BESIDE))
    is_robust = {run.key: run.method.startswith("robust_") for run in beside}
    robust, others = ([r for r in beside if is_robust[r.key] == side] for side in (True, False))
    origins = evidence.beside_origins
    theirs = [origin for way, origin in origins.items() if way != ROBUST]
    yield _row(f"`{RECORDS[0]}`", small, [evidence.origin], evidence.cells)
    ours = [origins[ROBUST]] if ROBUST in origins else []
    yield _row(f"`{RECORDS[2]}`, RobustRule", robust, ours, evidence.beside)
    yield _row(f"`{RECORDS[2]}`, the others", others, theirs, evidence.beside)
    yield f"`{RECORDS[1]}`", f"{len(evidence.costs)} lines", "", "", "", ""


def _row(
    name: str, planned: Sequence[Run], origins: Sequence[Origin], cells: Sequence[Cell]
) -> tuple[str, ...]:
    keys = frozenset[str]().union(*(origin.keys for origin in origins))
    effort = estimate_effort([run for run in planned if run.key in keys], cells)
    hours = sum(origin.hours for origin in origins)
    counts = f"{len(keys):,}", f"{len(planned):,}"
    return name, *counts, _name_commits(*origins), f"{hours:.1f}", f"{effort.hours:.1f}"


def _missing(evidence: Evidence) -> str:
    """What of the plan is not on record."""
    runs = [run for run in list_runs(read_plan(PLAN)) if run.key not in evidence.origin.keys]
    counts = Counter(run.problem for run in runs)
    parts = ", ".join(f"{problem} {n}" for problem, n in counts.most_common())
    return f"Not on record, in runs: {parts}." if runs else "All of it is on record."


def _name_commits(*origins: Origin) -> str:
    commits = dict.fromkeys(commit for origin in origins for commit in origin.commits)
    return ", ".join(f"`{commit[:7]}`" for commit in commits) or "none"

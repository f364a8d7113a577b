"""What the command line does, once it is parsed: one function per command, a console to talk to."""

import threading
import webbrowser
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from probstep.bench.export import FORMS, NAMES
from probstep.bench.methods import METHODS
from probstep.bench.names import check_name
from probstep.bench.overview import draw_table, summarise
from probstep.bench.plans import list_plans
from probstep.bench.problems import PROBLEMS
from probstep.bench.progress import Tally, displaying, print_json
from probstep.bench.records import Record, Run, last_epoch, read_curves, read_records, store
from probstep.bench.records.planned import write_planned
from probstep.bench.report.numbers.histories import read_histories, read_last
from probstep.bench.report.numbers.summaries import write_summaries
from probstep.bench.runs.estimate import (
    Cost,
    Costs,
    estimate,
    long_first,
    measure_epoch,
    same_method,
    same_problem,
    total_time,
)
from probstep.bench.runs.missing import is_missing
from probstep.bench.runs.runner import Setup, execute
from probstep.bench.texts import printable
from probstep.plotting.plot import plot
from probstep.sparkline import BLOCKS, can_show

Recorded = Mapping[str, Sequence[Record]]  # by the run's key


def run_plan(runs: Sequence[Run], setup: Setup, console: Console) -> int:
    """Make what is missing of the runs; the exit code is 0 if none of them failed."""
    recorded = _recorded(setup.out)
    missing = _missing(runs, recorded, setup)
    store.prepare(setup.out)  # before anything is measured, to fail at once
    missing, costs = _in_order(missing, setup)
    coming = {run.key for run in missing}
    write_planned(setup.out, [*(r for r in runs if r.key not in coming), *missing])
    with displaying(console, _tally(runs, recorded, costs)) as display:
        for event in execute(missing, setup):
            display.update(event)
    return _conclude(runs, setup, console)


def without_recorded(
    runs: Sequence[Run], path: Path, console: Console, *, retry: bool = False
) -> list[Run]:
    """The runs that are not in a file of curves; say how many are.

    Raises:
        ValueError: A line of the file is no run.
    """
    recorded = {records[0].run.key: records for records in read_curves(path)}
    left = [run for run in runs if is_missing(recorded.get(run.key, ()), retry=retry)]
    facts = {"file": str(path), "runs": len(runs), "recorded": len(runs) - len(left)}
    if console.is_terminal:
        text = f"{facts['recorded']} of {facts['runs']} runs are in {path}; {len(left)} are left."
        console.print(escape(printable(text)), highlight=False)
    else:
        print_json(console, {"event": "recorded", **facts})
    return left


def forecast_plan(runs: Sequence[Run], setup: Setup, console: Console) -> int:
    """Say how many runs there are, how many are missing, and how long these will take."""
    missing = _missing(runs, _recorded(setup.out), setup)
    costs = _measure(missing, setup)
    known = [cost.seconds for cost in costs.values() if cost.seconds is not None]
    facts = {
        "runs": len(runs),
        "recorded": len(runs) - len(missing),
        "to_do": len(missing),
        "not_measured": len(costs) - len(known),
        "workers": setup.workers.count,
        "seconds": round(total_time(known, setup.workers.count), 1),
    }
    if console.is_terminal:
        console.print(_time_table(missing, costs), _spell_forecast(facts))
        for reason in _reasons(costs):
            console.print(escape(printable(f"Not measured: {reason}")))
    else:
        print_json(console, {"event": "forecast", **facts, "reasons": _reasons(costs)})
    return 0


def show_records(out: Path, console: Console, *, as_json: bool = False) -> int:
    """Show how far the runs in an output directory are."""
    unread: list[Path] = []
    rows = summarise(read_last(out, unread))
    if not rows and not unread:
        raise ValueError(f"There are no records in {out}. `probstep run` makes some.")
    if as_json:
        for row in rows:
            print_json(console, row)
    else:
        console.print(draw_table(rows), markup=False, highlight=False, soft_wrap=True)
    if unread:
        Console(stderr=True, soft_wrap=True).print(_spell_unread(unread), highlight=False)
    return 0


def report_records(out: Path, to: Path | None, console: Console) -> int:
    """Make the report of an output directory; say what matters and where the page is."""
    from probstep.bench.report.build import make_report  # matplotlib takes a second to import

    made = make_report(out, to)
    for sentence in made.sentences:
        console.print(escape(sentence), highlight=False)
    console.print(escape(f"Report: {made.page}"), highlight=False)
    return 0


def plot_checkpoint(checkpoint: Path, to: Path | None, console: Console) -> int:
    """Draw the training that a checkpoint remembers; say what it was and where the picture is."""
    picture = plot(checkpoint)
    path = picture.save(to or checkpoint.with_suffix(".html"))
    is_ascii = not can_show(BLOCKS, console.encoding)
    console.print(escape(picture.history.summary(ascii_only=is_ascii)), highlight=False)
    console.print(escape(f"Picture: {path}"), highlight=False)
    return 0


def export_records(out: Path, form: str, to: Path | None, console: Console) -> int:
    """Write the records of an output directory into one file; say what is in it and where it is."""
    unread: list[Path] = []
    to = to or out / NAMES[form]
    runs = read_records(out, unread)
    first = next(runs, None)
    if first is None:
        raise ValueError(f"There are no records in {out}. `probstep run` makes some.")
    count = FORMS[form](chain([first], runs), to)
    unit = "run" if form.endswith("curves") else "record"
    console.print(escape(f"{count} {unit}{'s' * (count != 1)}: {to}"), highlight=False)
    if unread:
        Console(stderr=True, soft_wrap=True).print(_spell_unread(unread), highlight=False)
    return 0


def follow_records(out: Path, port: int, console: Console, *, in_browser: bool = False) -> int:
    """Serve a page on an output directory that follows its runs, until interrupted."""
    from probstep.bench.live import serve  # it draws: slow to import, likewise

    if not out.is_dir():
        raise ValueError(f"There is no directory {out}. `probstep run` makes one.")
    with serve(out, port) as address:
        console.print(f"Live page: {address} (Ctrl-C ends it)", highlight=False)
        if in_browser:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


def collect_records(out: Path, to: Path, console: Console) -> int:
    """Write a line per finished run of an output directory, small enough to keep."""
    count = write_summaries(read_histories(out), to)
    console.print(escape(f"{count} runs in {to}"), highlight=False)
    return 0


def publish_page(name: str, records: Path, docs: Path, console: Console) -> int:
    """Make a page of the documentation from records."""
    from probstep.bench.report.publish import PAGES, publish  # matplotlib, likewise

    check_name(name, PAGES, kind="page")
    for path in publish(name, records, docs):
        console.print(escape(str(path)), highlight=False)
    return 0


def list_names(kind: str, console: Console) -> int:
    """Show the rows of a table: the problems, the methods or the plans."""
    columns, rows = LISTS[kind]()
    table = Table(*columns)
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)
    return 0


def _list_problems() -> tuple[tuple[str, ...], Iterable[tuple[str, ...]]]:
    rows = ((p.name, str(p.batch_size), str(p.epochs), p.note) for p in PROBLEMS.values())
    return ("problem", "batch size", "epochs", "note"), rows


def _list_methods() -> tuple[tuple[str, ...], Iterable[tuple[str, ...]]]:
    rows = ((m.name, m.family, str(m.default_rate), m.source) for m in METHODS.values())
    return ("method", "family", "default rate", "source"), rows


def _list_plans() -> tuple[tuple[str, ...], Iterable[tuple[str, ...]]]:
    return ("plan", "about"), list_plans().items()


LISTS = {"problems": _list_problems, "methods": _list_methods, "plans": _list_plans}


def spell_seconds(seconds: float) -> str:
    """A time as a person would say it.

    >>> spell_seconds(41.2), spell_seconds(600), spell_seconds(9000)
    ('41 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _recorded(out: Path) -> Recorded:
    return {records[0].run.key: records for records in read_records(out)}


def _missing(runs: Sequence[Run], recorded: Recorded, setup: Setup) -> list[Run]:
    return [run for run in runs if is_missing(recorded.get(run.key, ()), retry=setup.retry)]


def _in_order(runs: Sequence[Run], setup: Setup) -> tuple[list[Run], Costs]:
    """The runs in the order in which they are made, and what is known of their time."""
    costs = {run.key: Cost(float(run.epochs)) for run in runs}
    if setup.backend == "serial":
        return list(runs), costs
    if len({same_problem(run) for run in runs}) > 1:
        costs = _measure(runs, setup, same_problem)
    return long_first(runs, costs), costs


def _measure(
    runs: Sequence[Run], setup: Setup, kind: Callable[[Run], Hashable] = same_method
) -> Costs:
    """What the runs will take; on a terminal, what is being measured is shown meanwhile."""
    torch.set_num_threads(setup.threads)
    with Console(stderr=True).status("Measuring a few steps") as status:
        return estimate(
            runs,
            partial(measure_epoch, data_dir=setup.data_dir, device=setup.device),
            kind,
            lambda text: status.update(escape(f"Measuring a few steps, {text}")),
        )


def _reasons(costs: Costs) -> list[str]:
    return list(dict.fromkeys(cost.reason for cost in costs.values() if cost.reason is not None))


def _tally(runs: Sequence[Run], recorded: Recorded, costs: Costs) -> Tally:
    """How much is done; the costs are those of what is missing."""
    seconds = {key: cost.seconds for key, cost in costs.items()}
    weights = {r.key: (seconds.get(r.key) or r.epochs) / r.epochs for r in runs}
    tally = Tally(weights, {run.key: run.epochs for run in runs})
    for run in runs:
        reached = last_epoch(recorded.get(run.key, ()))
        tally.reach(run.key, max(0, reached) if run.key in costs else run.epochs)
    return tally


def _conclude(runs: Sequence[Run], setup: Setup, console: Console) -> int:
    """Say how the runs ended, and where to look."""
    recorded = _recorded(setup.out)
    ends = [recorded[run.key][-1] for run in runs if run.key in recorded]
    counts = Counter(end.status if end.is_final else "unfinished" for end in ends)
    counts["unfinished"] += len(runs) - len(ends)
    counts = +counts
    reasons = Counter(end.reason for end in ends if end.status == "failed" and end.reason)
    advice = [text for status, text in ADVICE.items() if counts[status]]
    if console.is_terminal:
        said = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        console.print(f"{len(runs)} runs: {said}. See: probstep show {escape(str(setup.out))}")
        for reason, count in reasons.most_common():
            console.print(escape(printable(f"{count} failed: {reason}")))
        for text in advice:
            console.print(text)
    else:
        facts = {"event": "end", "out": str(setup.out), "runs": len(runs), **counts}
        why = {"reasons": dict(reasons.most_common())} if reasons else {}
        print_json(console, {**facts, **why, **({"advice": " ".join(advice)} if advice else {})})
    return 1 if counts["failed"] else 0


ADVICE = {
    "failed": "Failed runs are not made again, unless the same command has --retry.",
    "unfinished": "The unfinished runs are in the hands of another process.",
}


def _time_table(runs: Sequence[Run], costs: Costs) -> Table:
    table = Table("problem", "method", "runs", "time on one worker")
    for problem, method in dict.fromkeys((run.problem, run.method) for run in runs):
        values = [costs[r.key].seconds for r in runs if (r.problem, r.method) == (problem, method)]
        known = [value for value in values if value is not None]
        time = spell_seconds(sum(known)) if known else "could not be measured"
        table.add_row(escape(problem), escape(method), str(len(values)), time)
    return table


def _spell_forecast(facts: Mapping[str, float]) -> str:
    counts = f"{facts['runs']} runs, {facts['recorded']} recorded, {facts['to_do']} to do"
    unknown = facts["not_measured"]
    if unknown and unknown == facts["to_do"]:
        return f"{counts}: how long they take could not be measured."
    time = f"{counts}: about {spell_seconds(facts['seconds'])} with --jobs {facts['workers']}"
    return f"{time}, plus {unknown} runs that could not be measured." if unknown else f"{time}."


def _spell_unread(paths: Sequence[Path]) -> str:
    runs = "1 run" if len(paths) == 1 else f"{len(paths)} runs"
    reason = "damaged, or written by a newer version of probstep"
    return f"{runs} could not be read ({reason}), such as {escape(printable(str(paths[0])))}."

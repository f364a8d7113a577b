"""Many runs: which there are, which are missing, and one after the other or several at once."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .hazard import Hazard
from .records import Record, Run, append, read, run_of
from .suites import rows_of
from .training import run as train
from .ways import find_way

Rule = str | Callable[[], Any]  # module:factory, or the factory itself


def list_runs(
    rows: Iterable[Hazard], suite: str, ways: Sequence[str], label: str, seeds: Iterable[int]
) -> Iterator[Run]:
    """Yield the runs of some rows, seed by seed, so that an interrupted plan is whole for the first."""
    rows = list(rows)
    for seed in seeds:
        for row in rows:
            for way in ways:
                for rate in row.grid if way == "grid" else (row.rate,):
                    yield Run(suite, row.name, way, label if way == "ours" else "", seed, rate)


def do(run: Run, rule: Rule | None, data: Path | None) -> Record:
    """Train one run on one thread and return its record."""
    torch.set_num_threads(1)
    row = next(row for row in rows_of(run.suite, data) if row.name == run.hazard)
    way = find_way(run.way, rule if run.way == "ours" else None)
    outcome = train(row, way, run.seed, run.rate)
    about = {"family": row.family, "half": row.half, "measured": row.measured, "base": row.base}
    return {**asdict(run), **about, **outcome}


def run_missing(
    runs: Iterable[Run],
    out: Path,
    rule: Rule | None,
    data: Path | None,
    jobs: int,
    say: Callable[[str], None],
) -> None:
    """Do the runs that a file lacks, and append a record of each as it ends."""
    has = {run_of(record).key for record in read(out)}
    missing = [run for run in runs if run.key not in has]
    for k, record in enumerate(perform(missing, partial(do, rule=rule, data=data), jobs)):
        append(out, record)
        name = " ".join(filter(None, [record["hazard"], record["way"], record["label"]]))
        ended = record["error"] if record["status"] == "raised" else record["final"]
        say(f"{k + 1}/{len(missing)} {name} {record['seed']}: {ended} ({record['seconds']} s)")


def perform(runs: Sequence[Run], task: Callable[[Run], Record], jobs: int) -> Iterator[Record]:
    """Yield records as they come: in this process, or from several."""
    if jobs == 1:
        yield from map(task, runs)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(task, run) for run in runs]):
            yield future.result()

"""A shorthand for runs, and what is left of records when their times are taken away."""

from dataclasses import replace
from pathlib import Path

from probstep.bench.records import Run, read_records, store
from probstep.bench.runs.runner import Setup, execute

TINY = Path(__file__).with_name("tiny.py")


def make_run(problem="tiny", method="sgd", rate=0.1, seed=0, epochs=4, **values):
    return Run(problem, method, rate, seed, epochs, **values)


def timeless(out):
    """All records of a directory, by run, without their times."""
    runs = [[replace(record, time={}) for record in records] for records in read_records(out)]
    return {records[0].run.key: records for records in runs}


def make_records(out, runs, tiny, **setup):
    store.prepare(out)
    for _ in execute(runs, Setup(out=out, sources=(tiny,), **setup)):
        pass
    return timeless(out)

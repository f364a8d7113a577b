"""How long runs will take, from a few measured steps; and an order in which little time is lost."""

import heapq
import itertools
import math
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import redirect_stdout
from pathlib import Path

from probstep.bench.methods import take_step
from probstep.bench.records import Run
from probstep.bench.training import Training, evaluate

STEPS = 5  # measured, after one to warm up

Seconds = dict[str, float | None]  # of each run by its key; None where nothing could be measured


def same_problem(run: Run) -> Hashable:
    """What runs share whose epochs take about as long."""
    return run.problem, run.batch_size, run.subset


def same_method(run: Run) -> Hashable:
    """What runs share whose epochs take as long."""
    return run.problem, run.batch_size, run.subset, run.method


def estimate(
    runs: Iterable[Run],
    measure: Callable[[Run], float | None],
    kind: Callable[[Run], Hashable] = same_method,
) -> Seconds:
    """Seconds that each run will take, from one measured epoch for each kind of run.

    >>> runs = [Run("line", "sgd", rate=0.1, seed=s, epochs=10 + s) for s in (0, 1)]
    >>> list(estimate(runs, measure=lambda run: 0.5).values())
    [5.0, 5.5]
    """
    per_epoch: dict[Hashable, float | None] = {}
    seconds: Seconds = {}
    for run in runs:
        if kind(run) not in per_epoch:
            per_epoch[kind(run)] = measure(run)
        epoch = per_epoch[kind(run)]
        seconds[run.key] = None if epoch is None else epoch * run.epochs
    return seconds


def measure_epoch(run: Run, data_dir: Path | None = None) -> float | None:
    """Seconds per epoch, from the run's first steps; None if it does not get that far."""
    try:
        with redirect_stdout(sys.stderr):  # what a method prints is not part of our output
            return _measure_epoch(run, data_dir)
    except Exception:  # the run itself will record why
        return None


def long_first(runs: Iterable[Run], seconds: Mapping[str, float | None]) -> list[Run]:
    """The runs, longest first, so that no long one starts last; unmeasured ones before all.

    >>> runs = [Run("line", "sgd", rate=0.1, seed=0, epochs=n) for n in (1, 3, 2)]
    >>> [r.epochs for r in long_first(runs, {r.key: 0.5 * r.epochs for r in runs})]
    [3, 2, 1]
    """
    costs = {key: math.inf if value is None else value for key, value in seconds.items()}
    return sorted(runs, key=lambda run: -costs[run.key])


def total_time(seconds: Iterable[float], workers: int) -> float:
    """How long the workers take if the next run goes to whoever is free first.

    >>> total_time([4.0, 2.0, 2.0], workers=2)
    4.0
    """
    busy_until = [0.0] * workers
    for value in sorted(seconds, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + value)
    return max(busy_until)


def _seconds_per_step(training: Training) -> float:
    batches = itertools.islice(training.task.batches(), STEPS + 1)
    marks = [time.perf_counter()]
    for batch in batches:
        take_step(training.method, training.optimizer, training.task, batch)
        marks.append(time.perf_counter())
    first = 1 if len(marks) > 2 else 0  # the first step allocates
    return (marks[-1] - marks[first]) / (len(marks) - 1 - first)


def _measure_epoch(run: Run, data_dir: Path | None) -> float:
    training = Training.from_seed(run, data_dir)
    step = _seconds_per_step(training)
    began = time.perf_counter()
    evaluate(training.method, training.optimizer, training.task)
    return step * training.task.steps_per_epoch + time.perf_counter() - began

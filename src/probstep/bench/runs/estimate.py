"""How long runs will take, from a few measured steps; and an order in which little time is lost."""

import heapq
import itertools
import math
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from probstep.bench.methods import take_step
from probstep.bench.records import Run
from probstep.bench.runs.training import Training

STEPS = 5  # measured, after one to warm up
ENOUGH = 1.0  # seconds of steps after which no further one is measured
FEW = 16  # samples in a step of a large model, to which a whole batch is so many times that work
SLOW = 0.2  # seconds of a step with few samples from which on a model is large


@dataclass(frozen=True)
class Cost:
    """Seconds that something takes; or None, and why they could not be measured."""

    seconds: float | None
    reason: str | None = None


Costs = dict[str, Cost]  # of each run by its key


def same_problem(run: Run) -> Hashable:
    """What runs share whose epochs take about as long."""
    return run.problem, run.batch_size, run.subset


def same_method(run: Run) -> Hashable:
    """What runs share whose epochs take as long."""
    return run.problem, run.batch_size, run.subset, run.method


def estimate(
    runs: Iterable[Run],
    measure: Callable[[Run], float],
    kind: Callable[[Run], Hashable] = same_method,
    tell: Callable[[str], None] = lambda _: None,
) -> Costs:
    """What each run will take, from one measured epoch for each kind of run.

    Args:
        runs: The runs.
        measure: Seconds per epoch of a run; what it raises is kept as the reason.
        kind: What runs share that are not measured again.
        tell: Hears what is being measured.

    >>> runs = [Run("line", "sgd", rate=0.1, seed=s, epochs=10 + s) for s in (0, 1)]
    >>> [cost.seconds for cost in estimate(runs, measure=lambda run: 0.5).values()]
    [5.0, 5.5]
    """
    runs = list(runs)
    samples = {kind(run): run for run in reversed(runs)}
    epochs: dict[Hashable, Cost] = {}
    for run in runs:
        if kind(run) not in epochs:
            tell(f"{len(epochs) + 1} of {len(samples)}: {run.method} on {run.problem}")
            epochs[kind(run)] = _try(measure, run)
    return {run.key: _times(epochs[kind(run)], run.epochs) for run in runs}


def measure_epoch(run: Run, data_dir: Path | None = None, device: str = "cpu") -> float:
    """Seconds per epoch, from a few steps and one batch in evaluation: no whole evaluation.

    A step of a large model is measured with few samples, as its time is that of its samples.
    """
    with redirect_stdout(sys.stderr):  # what a method prints is not part of our output
        if run.batch_size is None or run.batch_size > FEW:
            step, epoch = _measure_epoch(replace(run, batch_size=FEW), data_dir, device)
            if step > SLOW:
                return epoch
        return _measure_epoch(run, data_dir, device)[1]


def long_first(runs: Iterable[Run], costs: Mapping[str, Cost]) -> list[Run]:
    """The runs, longest first, so that no long one starts last; unmeasured ones before all.

    >>> runs = [Run("line", "sgd", rate=0.1, seed=0, epochs=n) for n in (1, 3, 2)]
    >>> [r.epochs for r in long_first(runs, {r.key: Cost(0.5 * r.epochs) for r in runs})]
    [3, 2, 1]
    """
    seconds = {key: cost.seconds for key, cost in costs.items()}
    known = {key: math.inf if value is None else value for key, value in seconds.items()}
    return sorted(runs, key=lambda run: -known[run.key])


def total_time(seconds: Iterable[float], workers: int) -> float:
    """How long the workers take if the next run goes to whoever is free first.

    >>> total_time([4.0, 2.0, 2.0], workers=2)
    4.0
    """
    busy_until = [0.0] * workers
    for value in sorted(seconds, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + value)
    return max(busy_until)


def _try(measure: Callable[[Run], float], run: Run) -> Cost:
    try:
        return Cost(measure(run))
    except Exception as error:  # the run itself will record it
        return Cost(None, f"{type(error).__name__}: {error}")


def _times(epoch: Cost, epochs: int) -> Cost:
    return epoch if epoch.seconds is None else Cost(epoch.seconds * epochs)


def _measure_epoch(run: Run, data_dir: Path | None, device: str) -> tuple[float, float]:
    """Seconds per step and per epoch."""
    training = Training.from_seed(run, data_dir, device)
    step = _seconds_per_step(training)
    return step, step * training.task.steps_per_epoch + _seconds_of_evaluation(training)


def _seconds_per_step(training: Training) -> float:
    batches = itertools.islice(training.task.batches(), STEPS + 1)
    marks = [time.perf_counter()]
    for batch in batches:
        take_step(training.method, training.optimizer, training.task, batch)
        marks.append(time.perf_counter())
        if marks[-1] - marks[1] > ENOUGH:
            break
    first = 1 if len(marks) > 2 else 0  # the first step allocates, and imports
    return (marks[-1] - marks[first]) / (len(marks) - 1 - first)


def _seconds_of_evaluation(training: Training) -> float:
    """Of all splits, from one batch; as many training samples are evaluated as validation ones."""
    task = training.task
    batch = next(iter(task.batches()))
    task.model.eval()
    began = time.perf_counter()
    with torch.no_grad():
        task.losses(batch)
    samples = 2 * task.sizes["valid"] + task.sizes["test"]
    return (time.perf_counter() - began) * samples / task.batch_size

"""What a person, or a program, sees while runs are made.

On a terminal: a bar over all runs with the time left, and a line per worker. Elsewhere: a line of
JSON for each finished run and each note. Reads events; knows no backend and writes no record.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from probstep.bench.overview import format_number
from probstep.bench.records import Record, finite
from probstep.bench.runs.backends import Event
from probstep.bench.runs.runner import Job
from probstep.bench.runs.training import Epoch, Message, Note, Tick
from probstep.bench.texts import printable

COLUMNS = ("worker", "problem", "method", "rate", "seed", "epoch", "train loss", "effective rate")


class Display(Protocol):
    """Something that follows the runs."""

    def update(self, event: Event[Job, Message]) -> None:
        """Take notice of what a worker says."""
        ...


@dataclass
class Tally:
    """How much of a plan is done, in units of work: seconds if they are known, else epochs.

    >>> tally = Tally({"a": 2.0}, {"a": 4})
    >>> tally.total, tally.reach("a", 1.0), tally.done
    (8.0, None, 2.0)
    """

    weights: Mapping[str, float]  # of an epoch, by run
    epochs: Mapping[str, int]
    reached: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """The work of all runs."""
        return sum(self.weights[key] * self.epochs[key] for key in self.epochs)

    @property
    def done(self) -> float:
        """The work done so far."""
        return sum(self.weights[key] * epoch for key, epoch in self.reached.items())

    @property
    def finished(self) -> int:
        """How many runs have ended."""
        return sum(self.epochs[key] == epoch for key, epoch in self.reached.items())

    def reach(self, key: str, epoch: float) -> None:
        """Note how far a run is."""
        self.reached[key] = epoch

    def follow(self, event: Event[Job, Message]) -> None:
        """Note how far an event shows a run to be."""
        run, message = event.job.run, event.message
        if isinstance(message, Tick):
            self.reach(run.key, message.epoch - 1 + message.step / message.steps_per_epoch)
        elif isinstance(message, Epoch):
            record = message.record
            self.reach(run.key, run.epochs if record.is_final else record.epoch)


def print_json(console: Console, values: Mapping[str, object]) -> None:
    """One line of JSON; to nobody, from now on, if who was listening has gone.

    So `probstep run PLAN | head` ends the display, not the runs.
    """
    try:
        print(json.dumps(finite(values), allow_nan=False), file=console.file, flush=True)
    except BrokenPipeError:
        nobody = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nobody, console.file.fileno())
        os.close(nobody)


@contextmanager
def displaying(console: Console, tally: Tally) -> Iterator[Display]:
    """A display that suits the console, until the block is left."""
    if not console.is_terminal:
        yield Lines(console, tally)
        return
    bars = Bars(console, tally)
    with Live(console=console, get_renderable=bars.render, refresh_per_second=4):
        yield bars


@dataclass
class Lines:
    """A line of JSON per finished run, and per note."""

    console: Console
    tally: Tally

    def update(self, event: Event[Job, Message]) -> None:
        """Say what has ended."""
        self.tally.follow(event)
        if isinstance(event.message, Epoch) and event.message.record.is_final:
            self._say({"event": "run", **_essence(event.message.record), **self._count()})
        elif isinstance(event.message, Note):
            text = event.message.text
            self._say({"event": "note", "run": event.job.run.key, "text": text})
        elif event.lost is not None:
            self._say({"event": "lost", "run": event.job.run.key, "reason": event.lost})

    def _count(self) -> dict[str, int]:
        return {"finished": self.tally.finished, "of": len(self.tally.epochs)}

    def _say(self, values: Mapping[str, object]) -> None:
        print_json(self.console, values)


class Bars:
    """One bar for all runs, one line per worker."""

    def __init__(self, console: Console, tally: Tally) -> None:
        self.console = console
        self.tally = tally
        self.workers: dict[int, tuple[str, ...]] = {}
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            expand=True,
            speed_estimate_period=600,
        )
        self.task: TaskID = self.bar.add_task("", total=tally.total)

    def update(self, event: Event[Job, Message]) -> None:
        """Move the bar and rewrite the worker's line."""
        self.tally.follow(event)
        if isinstance(event.message, Note):
            self.console.print(escape(printable(f"{event.job.run}: {event.message.text}")))
        elif event.lost is not None:
            text = f"{event.job.run} goes to another worker: {event.lost}"
            self.console.print(escape(printable(text)))
        elif event.is_end:
            self.workers.pop(event.worker, None)
        else:
            self.workers[event.worker] = _line(event, self.workers.get(event.worker))

    def render(self) -> Group:
        """The bar and the lines as they are now."""
        runs = f"{self.tally.finished} of {len(self.tally.epochs)} runs"
        self.bar.update(self.task, completed=self.tally.done, description=runs)
        table = Table(*COLUMNS, box=None, pad_edge=False)
        for worker, cells in sorted(self.workers.items()):
            table.add_row(str(worker + 1), *cells)
        return Group(table, self.bar) if self.workers else Group(self.bar)


def _line(event: Event[Job, Message], before: tuple[str, ...] | None) -> tuple[str, ...]:
    run, message = event.job.run, event.message
    rate = "-" if run.rate is None else f"{run.rate:g}"
    head = (escape(run.problem), escape(run.method), rate, str(run.seed))
    if isinstance(message, Epoch):
        record = message.record
        scores = (format_number(record.train_loss), format_number(record.effective_rate))
        return (*head, f"{record.epoch}/{run.epochs}", *scores)
    last = before[-2:] if before and before[:4] == head else ("-", "-")
    if isinstance(message, Tick):
        share = message.step / message.steps_per_epoch
        return (*head, f"{message.epoch - 1 + share:.2f}/{run.epochs}", *last)
    return (*head, f"-/{run.epochs}", *last)


def _essence(record: Record) -> dict[str, object]:
    run = record.run
    return {
        "run": run.key,
        "problem": run.problem,
        "method": run.method,
        "rate": run.rate,
        "seed": run.seed,
        "status": record.status,
        "reason": record.reason,
        "epoch": record.epoch,
        "train_loss": record.train_loss,
        "test_accuracy": record.test_accuracy,
        "seconds": record.time.get("training_seconds"),
    }

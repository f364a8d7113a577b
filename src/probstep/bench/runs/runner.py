"""Runs go through a backend into the records; what is recorded is not done again.

This process is the only one that writes. The workers compute and tell; see backends/.
"""

import contextlib
import sys
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import torch

from probstep.bench.plans import Source, add_source
from probstep.bench.records import Record, Run, Status, last_epoch, last_sizes, store
from probstep.bench.records.store import Claim
from probstep.bench.runs.backends import BACKENDS, Event, Workers
from probstep.bench.runs.missing import is_missing
from probstep.bench.runs.training import Epoch, Message, Note, mark, train

TRIES = 3  # a worker may die by no fault of its run, but hardly three times


@dataclass(frozen=True)
class Setup:
    """How runs are made, none of which decides their outcome.

    Args:
        out: The output directory.
        device: Where the nets are trained, as torch spells it.
        threads: Torch threads of each worker; the rounding of sums depends on it.
        sources: Python files with further problems and methods.
        retry: Whether failed runs are done again.
    """

    out: Path
    backend: str = "serial"
    workers: Workers = field(default_factory=Workers)
    data_dir: Path | None = None
    device: str = "cpu"
    threads: int = 1
    sources: tuple[Source, ...] = ()
    retry: bool = False


@dataclass(frozen=True)
class Job:
    """What a worker needs to know to do its part of a run."""

    run: Run
    setup: Setup
    checkpoint: bytes | None
    recorded: int
    sizes: dict[str, int] | None = None


def execute(runs: Iterable[Run], setup: Setup) -> Iterator[Event[Job, Message]]:
    """Make the runs, record them, and pass on what the workers say.

    The output directory must be there: `store.prepare` makes it, or says why it cannot be made.
    However this ends (interrupted, closed early, disk full), what was recorded stays, the runs in
    flight get a record that says so, and the next call continues from their checkpoints.

    Raises:
        OSError: The output directory cannot be written to; the message says what to do.
        ValueError: There are records that cannot be continued; the message says why.
    """
    _add_sources(setup)  # here too: what is on record is compared with them
    desk = _Desk(setup, deque(runs))
    backend = BACKENDS[setup.backend](desk.next_job, work, setup.workers)
    try:
        for event in backend:
            desk.write(event)
            yield event
    finally:
        backend.close()  # type: ignore[attr-defined]  # a generator: its workers end here
        desk.give_up()


def work(job: Job) -> Iterator[Message]:
    """The worker's part: train, and say what happens. Nothing is written here."""
    _add_sources(job.setup)
    threads = torch.get_num_threads()
    torch.set_num_threads(job.setup.threads)
    try:
        setup = job.setup
        yield from _apart(
            train(job.run, setup.data_dir, job.checkpoint, job.recorded, job.sizes, setup.device)
        )
    finally:
        torch.set_num_threads(threads)


def _add_sources(setup: Setup) -> None:
    for source in setup.sources:
        add_source(source)


def _apart(messages: Iterator[Message]) -> Iterator[Message]:
    """The messages; what the work prints goes to stderr, what it warns of becomes a note, once."""
    told: set[str] = set()
    while True:
        with redirect_stdout(sys.stderr), warnings.catch_warnings(record=True) as caught:
            message = next(messages, None)
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            if text not in told:
                told.add(text)
                yield Note(text)
        if message is None:
            return
        yield message


@dataclass
class _Desk:
    """Hands out jobs and writes down what comes back; holds the claims of the runs in flight."""

    setup: Setup
    waiting: deque[Run]
    claims: dict[str, Claim] = field(default_factory=dict)
    losses: Counter[str] = field(default_factory=Counter)

    def next_job(self) -> Job | None:
        """Claim the next run that is neither finished nor in other hands."""
        while self.waiting:
            run = self.waiting.popleft()
            claim = store.claim(self.setup.out, run)
            if claim is None:
                continue
            try:
                is_left = is_missing(claim.records, retry=self.setup.retry)
            except ValueError:
                claim.release()  # before it is ours: no mark is to be written
                raise
            self.claims[run.key] = claim
            if is_left:
                return self._make_job(claim)
            self._release(claim)
        return None

    def _make_job(self, claim: Claim) -> Job:
        records = claim.records
        checkpoint = claim.load_checkpoint()
        return Job(claim.run, self.setup, checkpoint, last_epoch(records), last_sizes(records))

    def write(self, event: Event[Job, Message]) -> None:
        """Record what a worker says."""
        claim = self.claims[event.job.run.key]
        if isinstance(event.message, Epoch):
            claim.append(event.message.record)  # first: a checkpoint is never ahead of the records
            if event.message.checkpoint is not None:
                claim.save_checkpoint(event.message.checkpoint)
        if event.lost is not None:
            self._try_again(claim, event.lost)
        if event.is_end:
            self._release(claim)

    def give_up(self) -> None:
        """Mark the runs in flight as interrupted and let go of them."""
        for claim in list(self.claims.values()):
            with contextlib.suppress(OSError):  # a full disk has been told of already
                claim.reread()
                if is_missing(claim.records):
                    claim.append(_next_mark(claim, "interrupted"))
            self._release(claim)

    def _try_again(self, claim: Claim, reason: str) -> None:
        self.losses[claim.run.key] += 1
        if self.losses[claim.run.key] < TRIES:
            self.waiting.appendleft(claim.run)
        else:
            claim.append(_next_mark(claim, "failed", f"{TRIES} workers were lost: {reason}"))

    def _release(self, claim: Claim) -> None:
        if claim.records and claim.records[-1].status in ("done", "diverged"):
            claim.drop_checkpoint()
        claim.release()
        del self.claims[claim.run.key]


def _next_mark(claim: Claim, status: Status, reason: str | None = None) -> Record:
    return mark(claim.run, last_epoch(claim.records) + 1, status, reason)

"""Local processes that live until the last job is done.

They are forked from a server that has imported the work and done nothing else: torch is imported
once, not once per worker, and no thread pool, lock or claim of this process is copied.
"""

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from probstep.bench.runs.backends.event import Event, Job, Message, NextJob, Work, Workers

PRELOADED = ("torch._dynamo",)  # torch imports it at an optimizer's first step, which takes seconds


@dataclass
class _Worker:
    number: int
    process: BaseProcess
    connection: Connection
    job: Any = None


def do_jobs(
    next_job: NextJob[Job], work: Work[Job, Message], workers: Workers
) -> Iterator[Event[Job, Message]]:
    """Do the jobs in that many processes; a process that dies is replaced and its job given up."""
    pool: dict[int, _Worker] = {}
    try:
        while True:
            _hand_out(pool, next_job, work, workers.count)
            busy = {w.connection: w for w in pool.values() if w.job is not None}
            if not busy:
                return
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                event: Event[Job, Message] = _hear(worker)
                if event.lost is not None:
                    del pool[worker.number]
                yield event
    finally:
        for worker in pool.values():
            _end(worker)


def _hand_out(pool: dict[int, _Worker], next_job: NextJob[Job], work: Any, count: int) -> None:
    for number in range(count):
        if number in pool and pool[number].job is not None:
            continue
        job = next_job()
        if job is None:
            return
        if number not in pool:
            pool[number] = _start(number, work)
        pool[number].job = job
        with contextlib.suppress(BrokenPipeError):  # it died while idle: heard of at once
            pool[number].connection.send(job)


def _start(number: int, work: Any) -> _Worker:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__, *PRELOADED])
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work), daemon=True)
    process.start()
    theirs.close()
    return _Worker(number, process, ours)


def _serve(connection: Connection, work: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone
        while True:
            for message in work(connection.recv()):
                connection.send(message)
            connection.send(None)


def _hear(worker: _Worker) -> Event[Any, Any]:
    job = worker.job
    try:
        message = worker.connection.recv()
    except (EOFError, ConnectionResetError):
        _end(worker)
        return Event(worker.number, job, lost=_cause(worker.process.exitcode))
    if message is None:
        worker.job = None
    return Event(worker.number, job, message)


def _end(worker: _Worker) -> None:
    worker.connection.close()
    if worker.job is not None:
        worker.process.terminate()
    worker.process.join(timeout=5)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()


def _cause(code: int | None) -> str:
    if code is not None and code < 0:
        return f"its process was ended by {signal.Signals(-code).name}"
    return f"its process ended with exit code {code}"

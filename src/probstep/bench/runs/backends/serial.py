"""One job after the other in this process."""

from collections.abc import Iterator

from probstep.bench.runs.backends.event import Event, Job, Message, NextJob, Work, Workers


def do_jobs(
    next_job: NextJob[Job], work: Work[Job, Message], workers: Workers
) -> Iterator[Event[Job, Message]]:
    """Do the jobs one after the other; there is one worker, whatever is asked for.

    >>> jobs = iter([2, 1])
    >>> [e.message for e in do_jobs(lambda: next(jobs, None), lambda n: iter(range(n)), Workers())]
    [0, 1, None, 0, None]
    """
    del workers
    while (job := next_job()) is not None:
        for message in work(job):
            yield Event(0, job, message)
        yield Event(0, job)

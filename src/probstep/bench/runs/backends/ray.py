"""The workers of a Ray cluster: a local one, or the one at an address."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from probstep.bench.runs.backends.event import Event, Job, Message, NextJob, Work, Workers


@dataclass
class _Task:
    worker: int
    job: Any
    stream: Any


def do_jobs(
    next_job: NextJob[Job], work: Work[Job, Message], workers: Workers
) -> Iterator[Event[Job, Message]]:
    """Do the jobs as Ray tasks, one processor each; a job whose worker dies is given up.

    With an address the cluster's processors, or its GPUs, decide how many jobs run at a time. The
    cluster needs probstep installed and the data at hand, but no shared file system: events come back
    by Ray.
    """
    ray = _import_ray()
    count = _connect(ray, workers)
    options = {"num_cpus": 1, "max_retries": 0, "num_returns": "streaming"}
    if workers.has_gpu:
        options["num_gpus"] = 1
    remote = ray.remote(**options)(work)
    tasks: list[_Task] = []
    try:
        while True:
            free = [n for n in range(count) if n not in {task.worker for task in tasks}]
            for number in free:
                if (job := next_job()) is None:
                    break
                tasks.append(_Task(number, job, remote.remote(job)))
            if not tasks:
                return
            ready, _ = ray.wait([task.stream for task in tasks], num_returns=1)
            task = next(task for task in tasks if task.stream is ready[0])
            event: Event[Job, Message] = _hear(ray, task)
            if event.is_end:
                tasks.remove(task)
            yield event
    finally:
        ray.shutdown()


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ModuleNotFoundError(
            "The backend `ray` needs Ray. Install it with: pip install 'probstep[ray]'"
        ) from error
    return ray


def _connect(ray: Any, workers: Workers) -> int:
    """Join the cluster at the address, or start one here; how many workers there are."""
    if workers.address is None:
        local = {"address": "local", "num_cpus": workers.count, "include_dashboard": False}
        ray.init(**local, log_to_driver=False)  # not the cluster that happens to run here
        return workers.count
    ray.init(address=workers.address, log_to_driver=False)
    of_which = "GPU" if workers.has_gpu else "CPU"
    return max(1, int(ray.cluster_resources().get(of_which, 1)))


def _hear(ray: Any, task: _Task) -> Event[Any, Any]:
    with contextlib.suppress(StopIteration):
        try:
            return Event(task.worker, task.job, ray.get(next(task.stream)))
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()
            return Event(task.worker, task.job, lost=reason[0] if reason else type(error).__name__)
    return Event(task.worker, task.job)

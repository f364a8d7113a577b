"""Run functions on several gloo processes and collect what each rank returns.

Starting a process costs seconds, so one start serves all functions of a test file.
"""

import os
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TIMEOUT = timedelta(seconds=120)  # for one exchange between the ranks
PATIENCE = 240  # seconds for all functions; none needs a quarter of that


def on_ranks(size: int, functions: dict[str, Callable[[int, int], Any]]) -> dict[str, list[Any]]:
    """Return what each `function(rank, size)` returns on each rank; an exception is returned as text."""
    with tempfile.TemporaryDirectory() as folder:
        _wait(mp.start_processes(_entry, (size, folder, functions), nprocs=size, join=False))
        results = [_load(Path(folder) / f"{rank}.pt") for rank in range(size)]
    return {name: [result.get(name) for result in results] for name in functions}


def _wait(started: mp.ProcessContext) -> None:
    deadline = time.monotonic() + PATIENCE
    while not started.join(max(0.0, deadline - time.monotonic())):
        if time.monotonic() > deadline:
            for process in started.processes:
                process.kill()
            raise TimeoutError(f"The ranks have not ended within {PATIENCE} seconds.")


def _load(path: Path) -> Any:
    return torch.load(path, weights_only=False) if path.exists() else {}  # a rank may have died


def _entry(
    rank: int, size: int, folder: str, functions: dict[str, Callable[[int, int], Any]]
) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(str(Path(folder) / "store"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    results = {}
    for name, function in functions.items():
        try:
            results[name] = function(rank, size)
        except Exception:
            results[name] = traceback.format_exc()
    torch.save(results, Path(folder) / f"{rank}.pt")
    os._exit(0)  # a rank whose neighbour has died must not wait for it on the way out

"""What one probe costs on many ranks: measured on a few, modelled for many.

    python benchmarks/scale.py [ROUNDS]

Measured: a DDP step of an MLP on 1, 2 and 4 gloo processes; bare, unprobed and probed in turn, round
after round. On a shared machine the CPU time of a rank (median of rounds) says what a probe costs; the
wall time (fastest round) says it only as long as every rank has a core to itself. Counted: the
collectives that a probed step adds, and their bytes; how far the ranks' parameters drift apart in 20
adapted steps on different data. Modelled: the same step on up to 4096 ranks, by the formula and the
assumptions of `Cluster`.
"""

import itertools
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import probstep

MEASURED, MODELLED = (1, 2, 4), (1, 8, 64, 512, 4096)
FROZEN = probstep.PaperRule(up=1, down=1)


@dataclass(frozen=True)
class Cluster:
    """The assumptions of the model; none of them is measured here.

    Args:
        step: Seconds of a bare step, the same on any number of ranks (weak scaling).
        forward: The part of a step that is its forward pass.
        bookkeeping: The copy of the parameters and the slope, in units of a step.
        hop: Seconds for a few bytes from one rank to another, launch of the kernel included.
        sync: Seconds for which the host waits for the device, once per read of the probe's numbers.
        jitter: Standard deviation of a forward pass's time over ranks, in units of that time.
    """

    step: float = 0.3
    forward: float = 1 / 3
    bookkeeping: float = 0.02
    hop: float = 10e-6
    sync: float = 50e-6
    jitter: float = 0.02

    def all_reduce(self, ranks: int) -> float:
        """Seconds of a tiny all-reduce: up and down a binary tree, latency alone."""
        return 2 * math.ceil(math.log2(ranks)) * self.hop if ranks > 1 else 0.0

    def wait(self, ranks: int) -> float:
        """How much longer the slowest of all forward passes takes: expected maximum of normals."""
        return self.jitter * math.sqrt(2 * math.log(ranks)) if ranks > 1 else 0.0

    def probe(self, ranks: int, collectives: int = 2) -> float:
        """What a probed step takes more than a bare one, in units of the bare one."""
        local = self.forward * (1 + self.wait(ranks)) + self.bookkeeping
        return local + collectives * (self.all_reduce(ranks) + self.sync) / self.step


def network() -> nn.Module:
    torch.manual_seed(0)
    sizes = (256, 512, 512, 10)
    layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def steps_of(rank: int) -> dict[str, Callable[[], object]]:
    """What is timed, each with a model of its own."""
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(1024, 256, generator=generator)
    y = torch.randint(10, (1024,), generator=generator)

    def parts(probe: probstep.Every | None):
        model = DistributedDataParallel(network())
        base = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        opt = base if probe is None else probstep.ProbStep(base, FROZEN, probe=probe)
        return opt, lambda: nn.functional.cross_entropy(model(x), y)

    bare_opt, bare_loss = parts(None)
    unprobed, unprobed_loss = parts(probstep.Every(10**9))
    probed, probed_loss = parts(probstep.EveryStep())
    numbers = torch.zeros(3, dtype=torch.float64)
    unprobed.step(unprobed_loss)  # the first step is probed

    def bare() -> None:
        bare_opt.zero_grad()
        bare_loss().backward()
        bare_opt.step()

    def forward() -> None:
        with torch.no_grad():
            bare_loss()

    return {
        "bare": bare,
        "unprobed": lambda: unprobed.step(unprobed_loss),
        "probed": lambda: probed.step(probed_loss),
        "forward": forward,
        "all-reduce": lambda: dist.all_reduce(numbers),
    }


@contextmanager
def counted() -> Iterator[list[int]]:
    """Give a list of the bytes of every all-reduce that Python starts meanwhile (DDP's own do not)."""
    sizes: list[int] = []
    all_reduce = dist.all_reduce

    def count(tensor: torch.Tensor, *args: object, **kwargs: object) -> object:
        sizes.append(tensor.numel() * tensor.element_size())
        return all_reduce(tensor, *args, **kwargs)

    dist.all_reduce = count
    try:
        yield sizes
    finally:
        dist.all_reduce = all_reduce


def measure(rank: int, ranks: int, folder: str, rounds: int) -> None:
    """Leave in the folder: seconds of each part, bytes of the collectives, the drift."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    steps = steps_of(rank)
    wall: dict[str, list[float]] = {name: [] for name in steps}
    cpu: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            dist.barrier()
            start = time.perf_counter(), time.process_time()
            step()
            wall[name].append(time.perf_counter() - start[0])
            cpu[name].append(time.process_time() - start[1])
    with counted() as sizes:
        steps["probed"]()
    apart = drift(rank)
    if rank == 0:
        medians = {name: statistics.median(seconds) for name, seconds in cpu.items()}
        fastest = {name: min(seconds) for name, seconds in wall.items()}
        torch.save((medians, fastest, sizes, apart), Path(folder) / "measured.pt")
    dist.barrier()
    dist.destroy_process_group()


def drift(rank: int, steps: int = 20) -> float:
    """Return the largest distance between two ranks' parameters, relative to their norm."""
    model = DistributedDataParallel(network())
    opt = probstep.ProbStep(torch.optim.SGD(model.parameters(), lr=1e-3), probstep.PaperRule())
    generator = torch.Generator().manual_seed(rank)
    for _ in range(steps):
        x = torch.randn(64, 256, generator=generator)
        y = torch.randint(10, (64,), generator=generator)
        opt.step(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y))
    own = nn.utils.parameters_to_vector(model.parameters()).detach()
    others = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(others, own)
    return max((other - own).norm().item() for other in others) / own.norm().item()


Seconds = dict[str, float]


def measured(ranks: int, rounds: int) -> tuple[Seconds, Seconds, list[int], float]:
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(measure, (ranks, folder, rounds), nprocs=ranks)
        return torch.load(Path(folder) / "measured.pt")


def print_measured(rounds: int) -> None:
    print(
        "| ranks | bare step, CPU | unprobed | probed | a forward | probed, wall | all-reduce, wall "
        "| collectives | drift |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for ranks in MEASURED:
        cpu, wall, sizes, apart = measured(ranks, rounds)
        bare = cpu["bare"]
        print(
            f"| {ranks} | {bare * 1e3:.1f} ms | {cpu['unprobed'] / bare - 1:+.1%} "
            f"| {cpu['probed'] / bare - 1:+.1%} | {cpu['forward'] / bare:.1%} "
            f"| {wall['probed'] / wall['bare'] - 1:+.1%} | {wall['all-reduce'] * 1e6:.0f} µs "
            f"| {len(sizes)}, {sum(sizes)} bytes | {apart:g} |"
        )


def print_modelled(cluster: Cluster) -> None:
    print(
        "| ranks | two all-reduces | wait for the slowest | a probed step | `Every(k)` below 1 % |"
    )
    print("|---|---|---|---|---|")
    for ranks in MODELLED:
        probe = cluster.probe(ranks)
        print(
            f"| {ranks} | {2 * cluster.all_reduce(ranks) * 1e6:.0f} µs "
            f"| {cluster.wait(ranks):+.1%} of a forward | {probe:+.1%} "
            f"| k = {math.floor(probe / 0.01) + 1} |"
        )


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    print_measured(rounds)
    for step in (0.3, 0.03):
        print(f"\nModelled, {Cluster(step=step)}:\n")
        print_modelled(Cluster(step=step))


if __name__ == "__main__":
    main()

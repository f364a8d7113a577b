"""What an epoch of fmnist_mlp costs through `Task`, against a bare hand-written torch loop.

    python benchmarks/loop_overhead.py [--data-dir DIR] [--epochs 3] [--subset N]

Both train the same network on the same rows with plain SGD. Their steps alternate, so that
whatever else the machine does falls on both alike; the ratio is of the summed times.
"""

import argparse
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from probstep.bench.problems import Task, get_problem
from probstep.bench.problems.nets.dense import make_mlp


def task_steps(task: Task) -> Iterator[None]:
    """One epoch through the bench; every `next` is one training step."""
    optimizer = torch.optim.SGD(task.params, lr=0.01)
    for batch in task.batches():
        optimizer.zero_grad()
        task.loss(batch).backward()
        optimizer.step()
        yield


def bare_steps(model: nn.Module, images: Tensor, labels: Tensor, batch_size: int) -> Iterator[None]:
    """One epoch by hand; every `next` is one training step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    order = torch.randperm(len(images))
    for start in range(0, len(images) - batch_size + 1, batch_size):
        rows = order[start : start + batch_size]
        optimizer.zero_grad()
        cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
        yield


def timed_epoch(*sides: Iterator[None]) -> list[float]:
    """The seconds that each side takes for all its steps, taken in turns."""
    seconds = [0.0] * len(sides)
    order = list(range(len(sides)))
    while True:
        order.reverse()  # who goes first may find the caches in another state
        for side in order:
            start = time.perf_counter()
            if next(sides[side], StopIteration) is StopIteration:
                return seconds
            seconds[side] += time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--subset", type=int)
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = get_problem("fmnist_mlp").ready(seed=0, data_dir=options.data_dir, subset=options.subset)
    samples = task.problem.source.load(options.data_dir).train
    count = task.sizes["train"]
    images, labels = samples.inputs[:count].clone(), samples.targets[:count].clone()
    model = make_mlp()
    for epoch in range(options.epochs + 1):
        sides = task_steps(task), bare_steps(model, images, labels, task.batch_size)
        if epoch == 0:  # what torch does only once is nobody's overhead
            for side in sides:
                next(side)
            continue
        ours, bare = timed_epoch(*sides)
        print(f"epoch {epoch}: task {ours:.2f} s, bare {bare:.2f} s, ratio {ours / bare:.4f}")


if __name__ == "__main__":
    main()

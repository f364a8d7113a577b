"""What the robust rule costs in time: the bare optimizer and ours in turn, a few steps each.

    python benchmarks/epoch_time.py        # needs Fashion-MNIST and an idle machine; eight minutes

For DeepOBS's mlp and 2c2d on Fashion-MNIST, batches of 128. Two tasks with the same seed train side by
side, so that a noisy machine disturbs both alike. `ratio` is the sum of our times over the sum of the
bare optimizer's, over the whole run; `first_epoch` the same for the first 390 steps, with the search
in them.
"""

import json
import time
from pathlib import Path

import torch

from probstep.bench.methods import METHODS, prepare, take_step
from probstep.bench.problems import get_problem

RECORDS = Path(__file__).parent / "records" / "epoch_time.jsonl"
TURN = 13  # steps: 30 turns are an epoch
CASES = (("fmnist_mlp", "momentum", 4), ("fmnist_mlp", "adam", 4), ("fmnist_2c2d", "adam", 2))


def endless(task):
    while True:
        yield from task.batches()


class Side:
    """A task, its optimizer, and the seconds of its turns."""

    def __init__(self, problem, method, rate):
        self.task = get_problem(problem).ready(seed=0)
        self.method = METHODS[method]
        self.optimizer = prepare(self.method, self.task, rate=rate)
        self.batches = endless(self.task)
        self.seconds = []

    def take_turn(self):
        batches = [next(self.batches) for _ in range(TURN)]
        began = time.perf_counter()
        for batch in batches:
            take_step(self.method, self.optimizer, self.task, batch)
        self.seconds.append(time.perf_counter() - began)


def measure(problem, base, epochs):
    bare, ours = Side(problem, base, 1e-3), Side(problem, f"robust_{base}", 1e-3)
    turns = 390 // TURN
    for _ in range(epochs * turns):
        bare.take_turn()
        ours.take_turn()
    steps = epochs * turns * TURN
    return {
        "problem": problem,
        "method": base,
        "steps": steps,
        "ratio": round(sum(ours.seconds) / sum(bare.seconds), 4),
        "first_epoch": round(sum(ours.seconds[:turns]) / sum(bare.seconds[:turns]), 4),
        "extra": round(ours.optimizer.metrics()["probe_forwards"] / steps, 4),
    }


def main():
    torch.set_num_threads(1)
    entries = []
    for case in CASES:
        entries.append(measure(*case))
        print(entries[-1], flush=True)
    RECORDS.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


if __name__ == "__main__":
    main()

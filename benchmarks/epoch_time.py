"""What the robust rule costs in time: the bare optimizer, ours and a floor in turn, a few steps each.

    python -m benchmarks.epoch_time    # needs Fashion-MNIST and an idle machine; a quarter of an hour

For DeepOBS's mlp and 2c2d on Fashion-MNIST, batches of 128, and for the net of `make demo`, from
several seeds. Tasks with the same seed train side by side, so that a noisy machine disturbs all alike.
Before its turn a side takes over our weights, state and rate, which is not timed: max pooling takes some
per cent more or less time with other weights. A figure is the sum of times over that of the bare
optimizer: `ratio` over the whole run, `first_epoch` and `later` before and after the end of the first
epoch, with the search in the former.

The floor is the bare optimizer and what no rule can do without, at its cheapest. At every step that is
to read the loss and to look whether all gradients are finite. For each forward pass of ours it is also a
copy of the parameters, the slope with both norms, and a forward pass.
"""

import copy
import json
import math
import time
from pathlib import Path
from typing import NamedTuple

import torch

from probstep.bench.methods import METHODS, prepare, take_step
from probstep.bench.problems import get_problem

from .overhead import measure_step

RECORDS = Path(__file__).parent / "records" / "epoch_time.jsonl"


class Case(NamedTuple):
    """A problem and an optimizer, for how long from how many seeds, and the steps of a turn."""

    problem: str
    method: str
    epochs: int
    seeds: int = 1
    turn: int = 13  # an epoch has 30 of them


RATE = 1e-3  # at the start

CASES = (
    Case("fmnist_mlp", "momentum", 4),
    Case("fmnist_mlp", "adam", 4),
    Case("fmnist_2c2d", "adam", 2),
    Case("digits_mlp", "sgd", 15, seeds=10, turn=11),
    Case("digits_mlp", "adam", 15, seeds=10, turn=11),
)


def endless(task):
    while True:
        yield from task.batches()


class Side:
    """A task, its optimizer, and the seconds of its turns."""

    def __init__(self, problem, method, seed):
        self.task = get_problem(problem).ready(seed=seed)
        self.method = METHODS[method]
        self.optimizer = prepare(self.method, self.task, rate=RATE)
        self.params = list(self.task.model.parameters())
        self.batches = endless(self.task)
        self.seconds = []

    def take_turn(self, steps):
        batches = [next(self.batches) for _ in range(steps)]
        began = time.perf_counter()
        for batch in batches:
            self.step(batch)
        self.seconds.append(time.perf_counter() - began)

    def step(self, batch):
        take_step(self.method, self.optimizer, self.task, batch)

    @property
    def forwards(self):
        """The forward passes so far, beyond one a step, of an optimizer that probes."""
        return int(self.optimizer.metrics()["probe_forwards"])

    @torch.no_grad()
    def follow(self, ours):
        """Take over the weights of our side, and its optimizer's state and rate."""
        for mine, theirs in zip(self.params, ours.params, strict=True):
            mine.copy_(theirs)
            known = self.optimizer.state[mine]
            for name, value in ours.optimizer.base.state[theirs].items():
                if torch.is_tensor(known.get(name)):
                    known[name].copy_(value)
                else:
                    known[name] = copy.deepcopy(value)
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * ours.optimizer.scale


class Floor(Side):
    """Does at least what is needed; `passes` forward passes in its next steps, one in each."""

    def __init__(self, problem, method, seed):
        super().__init__(problem, method, seed)
        self.passes = 0
        self.after = [p.detach() for p in self.params]
        self.before = [torch.empty_like(p) for p in self.params]
        self.found, self.one = torch.zeros(()), torch.ones(())

    def step(self, batch):
        is_probed, self.passes = self.passes > 0, max(0, self.passes - 1)
        if is_probed:
            torch._foreach_copy_(self.before, self.after)
        loss = take_step(self.method, self.optimizer, self.task, batch)
        grads = [p.grad for p in self.params]
        torch._amp_foreach_non_finite_check_and_unscale_(grads, self.found, self.one)
        if not math.isfinite(loss.item()) or self.found.item():
            raise RuntimeError("A loss or a gradient is not finite.")
        if is_probed:
            measure_step(grads, self.before, self.after)
            with torch.no_grad():
                self.task.loss(batch)


def measure(case):
    """Return the record of a case."""
    turns, seconds, extra = 0, {"bare": [], "ours": [], "floor": []}, 0
    for seed in range(case.seeds):
        bare = Side(case.problem, case.method, seed)
        ours = Side(case.problem, f"robust_{case.method}", seed)
        floor = Floor(case.problem, case.method, seed)
        turns = bare.task.steps_per_epoch // case.turn
        for _ in range(case.epochs * turns):
            before = ours.forwards
            floor.follow(ours)
            bare.follow(ours)
            bare.take_turn(case.turn)
            ours.take_turn(case.turn)
            floor.passes += ours.forwards - before
            floor.take_turn(case.turn)
        extra += ours.forwards
        for name, side in (("bare", bare), ("ours", ours), ("floor", floor)):
            seconds[name].append(side.seconds)
    steps = case.epochs * turns * case.turn
    parts = {"ratio": slice(None), "first_epoch": slice(turns), "later": slice(turns, None)}

    def ratios(side):
        return {name: round(_total(seconds[side], part) / _total(seconds["bare"], part), 4)
                for name, part in parts.items()}  # fmt: skip

    return {
        "problem": case.problem,
        "method": case.method,
        "seeds": case.seeds,
        "steps": steps,
        "epoch": turns * case.turn,
        **ratios("ours"),
        "floor": ratios("floor"),
        "extra": round(extra / steps / case.seeds, 4),
    }


def _total(seconds, part):
    return sum(sum(of_seed[part]) for of_seed in seconds)


def main():
    torch.set_num_threads(1)
    entries = []
    for case in CASES:
        entries.append(measure(case))
        print(entries[-1], flush=True)
    RECORDS.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


if __name__ == "__main__":
    main()

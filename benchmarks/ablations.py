"""What each part of the robust rule is for: the rule without it, on four small problems.

    python benchmarks/ablations.py [NAME ...]      # all, or those named; a minute of one core each

Every line of benchmarks/records/ablations.jsonl is one change of the rule: final training losses,
geometric means over two seeds, of six optimizers on the small problems of the tuning half. Lines that
are there stay.
"""

import json
import math
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import torch

from probstep import robust
from probstep.bench.plans import list_runs, parse_plan
from probstep.bench.runs.training import Epoch, train

RECORDS = Path(__file__).parent / "records" / "ablations.jsonl"
PLAN = """
problems = ["digits_mlp", "fmnist_logreg", "regression", "digits_autoencoder"]
methods = [
    "robust_sgd", "robust_momentum", "robust_adagrad", "robust_rmsprop", "robust_adam", "robust_adamw",
]
rates = [1e-3]
seeds = [0, 1]

[[override]]
problem = "fmnist_logreg"
subset = 10000
epochs = 10
"""
largest, news = robust.RobustRule._largest, robust._news


def unbounded(*_):
    return math.inf


def without_curvature(seen, **_):
    return news(seen, with_curvature=False)


def after_any_step(rule, memory, seen, ratio):  # noqa: ARG001
    return largest(rule, memory, seen, ratio=2.0)


# What is changed in probstep.robust, and which settings.
ABLATIONS: dict[str, tuple[dict, dict]] = {
    "as it is": ({}, {}),
    "no bound at all": ({"_bound": unbounded}, {}),
    "no bound by the gain to come": ({"_gain": unbounded}, {}),
    "no bound by the loss": ({"_polyak": unbounded}, {}),
    "no curvature: bounds alone": ({"_news": without_curvature}, {}),
    "no step taken back": ({"REJECTED": math.inf}, {}),
    "raised even by a step that went too far": ({"RobustRule._largest": after_any_step}, {}),
    "no surprise": ({"SURPRISE": math.inf}, {}),
    "no jump of the gradient": ({"JUMP": math.inf}, {}),
    "curvature averaged like the slope": ({"WEIGHT": {}}, {}),
    "gradient size averaged like the slope": ({"FLOORS": {}}, {}),
    "shorter averages of the loss": ({"SLOW": 6.0, "FAST": 24.0}, {}),
    "longer averages of the loss": ({"SLOW": 1.5, "FAST": 6.0}, {}),
    "probe at every step": ({}, {"doubt": 1e-6, "budget": [1e9, 1.0]}),
    "target = 1": ({}, {"target": 1.0}),
    "target = 5/3": ({}, {"target": 5 / 3}),
    "up = 1.1": ({}, {"up": 1.1}),
    "up = 1.5": ({}, {"up": 1.5}),
    "doubt = 0.03": ({}, {"doubt": 0.03}),
    "doubt = 0.25": ({}, {"doubt": 0.25}),
    "budget = (20, 0.02)": ({}, {"budget": [20.0, 0.02]}),
    "budget = (80, 0.08)": ({}, {"budget": [80.0, 0.08]}),
}


def measure(settings):
    """The geometric means of the final losses over the seeds, and the extra forwards per step."""
    finals, extra = {}, []
    for run in list_runs(parse_plan(f"settings = {spell(settings)}\n{PLAN}")):
        last = [message.record for message in train(run) if isinstance(message, Epoch)][-1]
        loss = last.train_loss if last.status == "done" else None
        finals.setdefault(f"{run.problem} {run.method.removeprefix('robust_')}", []).append(loss)
        extra.append(last.forward_passes / max(last.steps, 1) - 1)
    cells = {cell: mean(losses) for cell, losses in finals.items()}
    return {"cells": list(cells), "losses": list(cells.values()), "extra": statistics.fmean(extra)}


def mean(losses):
    if None in losses:
        return 1e9
    return math.exp(statistics.fmean(math.log(loss) for loss in losses))


def spell(settings):
    return "{ " + ", ".join(f"{name} = {value}" for name, value in settings.items()) + " }"


def main():
    torch.set_num_threads(1)
    RECORDS.touch()
    done = {json.loads(line)["name"] for line in RECORDS.read_text().splitlines()}
    for name in sys.argv[1:] or ABLATIONS:
        if name in done:
            continue
        changes, settings = ABLATIONS[name]
        with ExitStack() as stack:
            for place, value in changes.items():
                stack.enter_context(patch(f"probstep.robust.{place}", value))
            entry = {"name": name, **measure(settings)}
        with RECORDS.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(name, f"{entry['extra']:.3f}", flush=True)


if __name__ == "__main__":
    main()

"""Watch trainings at fixed rates below, at and above the best one, and write down what the gauge says.

    python -m benchmarks.gauge [--data DIR]     # half an hour of one core

Every line of benchmarks/records/gauge.jsonl is a gauge, after 100 steps or at the end of a training, or
where its loss was no longer finite. The trainings are those of the plan of benchmarks/suggest.py without
its slowest problem. Lines that are there stay: to measure anew, delete the file. On record is how much
the probes scatter, not the interval, because what the interval adds is chosen on these records. The best
fixed rates are those of the plan `robust`; `probstep page gauge` compares with them.
"""

import argparse
import json
import math
from pathlib import Path

import torch

import probstep
from probstep.bench.report.numbers.best_rates import find_best_rates
from probstep.bench.report.numbers.summaries import read_summaries
from probstep.bench.runs.training import Training
from probstep.rules.watch import DEVIATIONS, OPEN

from .suggest import runs_at

FOLDER = Path(__file__).parent / "records"
RECORDS = FOLDER / "gauge.jsonl"
TIMES = (1 / 30, 1 / 10, 1 / 3, 1.0, 3.0)  # the best fixed rate
SLOW = "fmnist_mlp"  # left out: it takes about as long as all others together
SOON = 100  # steps, after which a user may have a first look


def measure(run, data_dir):
    """The gauge of one training, soon and at its end."""
    training = Training.from_seed(run, data_dir)
    task, opt = training.task, probstep.watch(training.optimizer)
    batches = (batch for _ in range(run.epochs) for batch in task.batches())
    for step, batch in enumerate(batches, 1):
        loss = opt.step(lambda batch=batch: task.loss(batch))
        if step == SOON:
            yield "soon", step, opt.gauge
        if not loss.isfinite():
            break
    yield "end", step, opt.gauge


def variance_of(gauge):
    """The part of the interval that is the scatter of the probes."""
    deviation = math.log(gauge.high / gauge.factor) / DEVIATIONS
    return round(deviation**2 - OPEN[gauge.limit] ** 2, 9)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    RECORDS.touch()
    lines = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    done = {tuple(line[key] for key in ("problem", "method", "seed", "times")) for line in lines}
    usual = {key: run for key, run in runs_at(1.0).items() if key[0] != SLOW}
    pairs, seeds = {key[:2] for key in usual}, {key[2] for key in usual}
    best = find_best_rates(pairs, read_summaries(FOLDER / "robust.jsonl"), seeds)
    for key in usual:
        for times in TIMES:
            if (*key, times) in done:
                continue
            rate = times * best[key[:2]].middle
            found = [
                dict(zip(("problem", "method", "seed"), key, strict=True))
                | {"times": times, "rate": rate, "when": when, "step": step}
                | {"factor": gauge.factor, "variance": variance_of(gauge)}
                | {"limit": gauge.limit, "probes": gauge.probes}
                for when, step, gauge in measure(runs_at(rate)[key], args.data)
            ]
            with RECORDS.open("a") as file:
                file.writelines(json.dumps(line) + "\n" for line in found)
            print(found[-1], flush=True)


if __name__ == "__main__":
    main()

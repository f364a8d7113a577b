"""What an average of the weights and a decay at the end are worth: the plan `averages`, in less time.

    python benchmarks/averages.py            # about 20 minutes of one core
    python benchmarks/averages.py 0 2 &      # the first half of the runs
    python benchmarks/averages.py 1 2        # the second

The runs are those of `probstep run averages`, evaluated before and after training instead of after every
epoch, and the last weights and their average are taken from one training instead of two. Every line of
benchmarks/records/averages.jsonl is a run, as `probstep collect` writes it. Lines that are there stay:
to measure anew, delete the file. Fashion-MNIST must be in the data directory (docs/bench.md).
"""

import fcntl
import math
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import torch

from probstep.bench.methods import evaluating, get_method
from probstep.bench.plans import list_runs, read_plan
from probstep.bench.records.scores import COLUMNS
from probstep.bench.report.numbers.histories import History
from probstep.bench.report.numbers.summaries import encode_summary, read_summaries
from probstep.bench.runs.training import Training

RECORDS = Path(__file__).parent / "records" / "averages.jsonl"
AVERAGED = "_averaged"
SCORES = ("train_loss", "valid_loss", "valid_accuracy", "test_accuracy")


def measure(run):
    """The histories of a run: one, or that of its average and that of its last weights."""
    training = Training.from_seed(run)
    before = scores_of(training.task)
    is_finite = True
    while is_finite and training.epoch < run.epochs:
        for _ in training.advance():
            pass
        is_finite = bool(training.losses.isfinite().all())
    last = scores_of(training.task)
    is_finite = is_finite and math.isfinite(last["train_loss"])
    if not run.method.endswith(AVERAGED):
        return [history(run, training, before, last, is_finite)]
    with evaluating(get_method(run.method), training.optimizer, training.task.model):
        average = scores_of(training.task)
    plain = replace(run, method=run.method.removesuffix(AVERAGED))
    return [
        history(run, training, before, average, is_finite),
        history(plain, training, before, last, is_finite),
    ]


def scores_of(task):
    found = {split: task.evaluate(split) for split in ("train", "valid", "test")}
    scores = {f"{split}_loss": one.loss for split, one in found.items()}
    return scores | {f"{split}_accuracy": one.accuracy for split, one in found.items()}


def history(run, training, before, after, is_finite):
    pairs = {name: [number(before[name]), number(after[name])] for name in SCORES}
    return History(
        run=run,
        status="done" if is_finite else "diverged",
        reason="",
        epoch=run.epochs,
        epochs=range(2),
        scores={name: pairs.get(name, [math.nan, math.nan]) for name in COLUMNS},
        steps=float(training.steps),
        seconds=training.seconds,
    )


def number(value):
    return math.nan if value is None else float(value)


def runs_to_make():
    """The runs of the plan; those whose average is made give the last weights, too."""
    runs = list_runs(read_plan("averages"))
    averaged = [run for run in runs if run.method.endswith(AVERAGED)]
    given = {replace(run, method=run.method.removesuffix(AVERAGED)).key for run in averaged}
    return sorted((run for run in runs if run.key not in given), key=lambda run: run.seed)


def main():
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # fixed rates that are far too high
    part, parts = (int(word) for word in sys.argv[1:] or ("0", "1"))
    RECORDS.touch()
    for index, run in enumerate(runs_to_make()):
        done = {history.run.key for history in read_summaries(RECORDS)}
        if index % parts != part or run.key in done:
            continue
        lines = [encode_summary(history) for history in measure(run)]
        with RECORDS.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.writelines(f"{line}\n" for line in lines)
        print(run, flush=True)


if __name__ == "__main__":
    main()

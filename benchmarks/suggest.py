"""Train at the rate that `probstep.suggest` and two learning-rate finders suggest, on small problems.

    python benchmarks/suggest.py [--data DIR] [--only FINDER]     # half an hour of one core

Every line of benchmarks/records/suggest.jsonl is one training at one suggested rate, as the plan
`robust` trains: its best fixed rates are what `probstep page suggest` compares with. Lines that are
there stay. `lightning` is Lightning's `Tuner.lr_find`, `torch-lr-finder` the package of that name; each
has 100 steps on as many batches, their default. What is not installed is left out. `probstep.suggest`
has 32 batches, and takes as many steps as it wants: how many is on record.
"""

import argparse
import contextlib
import io
import itertools
import json
import logging
import math
import tempfile
import warnings
from pathlib import Path

import torch
from torch.utils.data import DataLoader

import probstep
from probstep.bench.methods import METHODS
from probstep.bench.plans import list_runs, parse_plan
from probstep.bench.runs.training import Epoch, Training, train

RECORDS = Path(__file__).parent / "records" / "suggest.jsonl"
PLAN = """
problems = [
    "regression", "digits_mlp", "digits_batchnorm", "digits_autoencoder",
    "digits_attention", "fmnist_logreg", "digits_conv", "fmnist_mlp",
]
methods = ["sgd", "momentum", "adam"]
rates = [{rate}]
seeds = [0, 1, 2]

[[override]]
problem = "fmnist_logreg"
subset = 10000
epochs = 10

[[override]]
problem = "fmnist_mlp"
subset = 5000
epochs = 16
"""
HANDFUL, STEPS = 32, 100  # batches of ours; steps and batches of the finders
USUAL = 1e-3  # the rate that the optimizer has when it is asked


def runs_at(rate):
    """The runs of the plan at this rate, by problem, method and seed."""
    runs = list_runs(parse_plan(PLAN.replace("{rate}", repr(rate))))
    return {(run.problem, run.method, run.seed): run for run in runs}


def batches_of(task, count):
    epochs = (task.batches() for _ in itertools.count())
    return list(itertools.islice(itertools.chain.from_iterable(epochs), count))


def ours(task, optimizer):
    found = probstep.suggest(optimizer, batches_of(task, HANDFUL), task.loss)
    cost = {"steps": found.steps, "forwards": found.forwards}
    return {"rate": found.rate, "low": found.low, "high": found.high, **cost}


def lightning(task, optimizer):
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.tuner import Tuner

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(LightningModule):
        lr = USUAL

        def __init__(self):
            super().__init__()
            self.net = task.model

        def training_step(self, batch, _):
            return task.loss(batch)

        def configure_optimizers(self):
            return optimizer

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            accelerator="cpu", logger=False, enable_progress_bar=False, max_epochs=1,
            enable_model_summary=False, default_root_dir=folder,
        )  # fmt: skip
        loader = DataLoader(batches_of(task, STEPS), batch_size=None)
        finder = Tuner(trainer).lr_find(Module(), loader, num_training=STEPS, update_attr=False)
    return {"rate": finder.suggestion()}


def torch_lr_finder(task, optimizer):
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt
    from torch_lr_finder import LRFinder

    optimizer.param_groups[0]["lr"] = 1e-7  # as in its own example, with the end there
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        finder = LRFinder(task.model, optimizer, lambda out, y: task.problem.losses(out, y).mean())
        loader = DataLoader(batches_of(task, STEPS), batch_size=None)
        finder.range_test(loader, end_lr=100, num_iter=STEPS)
        axes, rate = finder.plot(ax=plt.figure().subplots(), suggest_lr=True)
    plt.close(axes.figure)
    return {"rate": float(rate)}


FINDERS = {"suggest": ours, "lightning": lightning, "torch-lr-finder": torch_lr_finder}


def measure(finder, run, data_dir):
    """A rate for the run, and what the training at that rate ends at."""
    task = Training.from_seed(run, data_dir).task
    task.model.train()
    optimizer = METHODS[run.method].build(task.params, USUAL, **run.settings)
    found = FINDERS[finder](task, optimizer)
    if not found["rate"] or not math.isfinite(found["rate"]):
        return {"rate": None, "loss": None, "status": "no suggestion"}
    chosen = runs_at(found["rate"])[run.problem, run.method, run.seed]
    last = [m.record for m in train(chosen, data_dir) if isinstance(m, Epoch)][-1]
    loss = last.train_loss if last.status == "done" else None
    return {**found, "loss": loss, "status": last.status}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", choices=FINDERS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    RECORDS.touch()
    lines = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    done = {(line["finder"], line["problem"], line["method"], line["seed"]) for line in lines}
    for finder in [args.only] if args.only else FINDERS:
        for key, run in runs_at(USUAL).items():
            if (finder, *key) in done:
                continue
            try:
                found = measure(finder, run, args.data)
            except ModuleNotFoundError as error:
                print(f"{finder} is left out: {error}")
                break
            line = {"finder": finder, "problem": run.problem, "method": run.method} | found
            with RECORDS.open("a") as file:
                file.write(json.dumps({**line, "seed": run.seed}) + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    main()

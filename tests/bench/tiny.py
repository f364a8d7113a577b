"""Problems of three parameters and their faults, in the tables of a file for `--import`."""

import os
import random
import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from probstep.bench.methods import METHODS as SHIPPED
from probstep.bench.problems import Evaluation


class TinyTask:
    """A line through 32 points, with dropout, so that torch's global generator matters."""

    def __init__(self, problem, seed, batch_size, data_dir):
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Dropout(0.3), nn.Linear(2, 1))
        self.batch_size = batch_size or problem.batch_size
        self.steps_per_epoch = 32 // self.batch_size
        self.sizes = {"train": 32, "valid": 32, "test": 32}
        self.epoch = 0
        self.sizes = {"train": 32, "valid": 32, "test": 32}
        self._problem = problem
        self._data_dir = data_dir
        self._order = torch.Generator().manual_seed(seed)
        self._inputs = torch.linspace(-1, 1, 64).reshape(32, 2)
        self._targets = self._inputs.sum(1, keepdim=True)

    def batches(self):
        self.epoch += 1
        order = torch.randperm(32, generator=self._order)
        for rows in order.split(self.batch_size):
            self._problem.before_step(self.epoch, self._data_dir)
            yield self._inputs[rows], self._targets[rows]

    def losses(self, batch):
        inputs, targets = batch
        return (self.model(inputs) - targets).square().mean(1)

    def penalty(self):
        return torch.zeros(())

    def loss(self, batch):
        return self.losses(batch).mean()

    def evaluate(self, _):
        self.model.eval()
        with torch.no_grad():
            loss = self.loss((self._inputs, self._targets)).item()
        self.model.train()
        return Evaluation(loss=loss, accuracy=None)

    def state_dict(self):
        return {"order": self._order.get_state(), "epoch": self.epoch}

    def load_state_dict(self, state):
        self._order.set_state(state["order"])
        self.epoch = state["epoch"]


def do_nothing(epoch, data_dir):
    pass


@dataclass(frozen=True)
class TinyProblem:
    name: str
    before_step: Callable[[int, Path | None], None] = do_nothing
    epochs: int = 4
    batch_size: int = 8
    note: str = ""

    def ready(self, *, seed, data_dir=None, batch_size=None, **_):
        return TinyTask(self, seed, batch_size, data_dir)


@dataclass(frozen=True)
class Unready(TinyProblem):
    def ready(self, **_):
        raise FileNotFoundError("tiny.gz is not here. Put it there.")


def wait(epoch, data_dir):
    time.sleep(0.01)


def fail(epoch, data_dir):
    if epoch == 3:
        raise RuntimeError("the third epoch is not to be")


def draw(epoch, data_dir):
    count = random.randrange(9) + int(np.random.poisson(9))  # noqa: NPY002
    torch.rand(count)  # dropout goes on from here


def die_once(epoch, data_dir):
    if epoch == 2 and not (data_dir / "died").exists():
        (data_dir / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def die(epoch, data_dir):
    if epoch == 2:
        os.kill(os.getpid(), signal.SIGKILL)


def chatter(epoch, data_dir):
    print("I am chatty")
    warnings.warn("and full of warnings", stacklevel=1)


PROBLEMS = {
    problem.name: problem
    for problem in (
        TinyProblem("tiny"),
        TinyProblem("tiny_slow", wait),
        TinyProblem("tiny_failing", fail),
        TinyProblem("tiny_random", draw),
        TinyProblem("tiny_deadly_once", die_once),
        TinyProblem("tiny_deadly", die),
        TinyProblem("tiny_chatty", chatter),
        Unready("tiny_unready"),
    )
}
METHODS = {
    "forgetful": replace(SHIPPED["sgd"], name="forgetful", limits=frozenset({"resume"})),
}

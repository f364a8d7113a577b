"""The one training loop: a run goes in, a record per epoch comes out.

The loop knows problems and methods by their interfaces only, writes no file and shows nothing.
What it yields is enough for others to do that, in this process or far away.
"""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.optim import Optimizer

from probstep import ProbStep
from probstep.bench.methods import (
    METHODS,
    Method,
    effective_rate,
    evaluating,
    get_method,
    prepare,
    take_step,
)
from probstep.bench.plans import imported_hash
from probstep.bench.problems import Task, get_problem
from probstep.bench.records import Record, Run, Status
from probstep.bench.runs.checkpoints import decode_checkpoint, encode_checkpoint
from probstep.bench.runs.epoch_probes import watch_probes
from probstep.bench.runs.generators import load_random, save_random, seed_all
from probstep.bench.runs.provenance import commit, device_name, versions

TICK_SECONDS = 0.5  # how often a long epoch says how far it is
CHECK_STEPS = 50  # how often the loss is read back, to see whether it is still finite
COUNTERS = ("epoch", "steps", "forward_passes", "seconds")
SPLITS: tuple[Literal["train", "valid", "test"], ...] = ("train", "valid", "test")


@dataclass(frozen=True)
class Tick:
    """A sign of life within an epoch."""

    epoch: int
    step: int
    steps_per_epoch: int


@dataclass(frozen=True)
class Epoch:
    """An epoch's record, and the state from which the next one can start."""

    record: Record
    checkpoint: bytes | None = None


@dataclass(frozen=True)
class Note:
    """Something a person should know that changes no record."""

    text: str


Message = Tick | Epoch | Note


def train(
    run: Run,
    data_dir: Path | None = None,
    checkpoint: bytes | None = None,
    recorded: int = -1,
    sizes: Mapping[str, int] | None = None,
    device: str = "cpu",
) -> Iterator[Message]:
    """Train a run to its end; whatever goes wrong on the way ends up in its last record.

    Args:
        run: What to train.
        data_dir: Where the problem's data is.
        checkpoint: The run's state after some epoch; one that cannot be used is ignored.
        recorded: The last epoch on record: a checkpoint of a later one would leave a gap.
        sizes: The sizes of the data on record: with other data it would be another run.
        device: Where to train.
    """
    epoch = recorded + 1
    try:
        training = Training.from_seed(run, data_dir, device)
        training.check_sizes(sizes)
        if checkpoint is not None and (trouble := training.restore(checkpoint, recorded)):
            yield Note(f"starts anew, its checkpoint is of no use: {trouble}")
            training = Training.from_seed(run, data_dir, device)
        if training.epoch == 0:
            yield Epoch(training.record())
        while training.status == "running":
            epoch = max(epoch, training.epoch + 1)
            yield from training.advance()
            yield training.outcome()
    except Exception as error:  # a failure is data
        yield Epoch(mark(run, epoch, "failed", f"{type(error).__name__}: {error}"))


def mark(run: Run, epoch: int, status: Status, reason: str | None = None) -> Record:
    """A record without scores, which says that an epoch was not finished and why."""
    return Record(run=run, epoch=epoch, status=status, reason=reason, **_origin(run), time=_clock())


@dataclass
class Training:
    """A run in progress: all that changes from step to step."""

    run: Run
    method: Method
    task: Task
    optimizer: Optimizer
    epoch: int = 0
    steps: int = 0
    forward_passes: int = 0
    seconds: float = 0.0
    losses: Tensor = field(default_factory=lambda: torch.zeros(0))  # of the epoch's steps
    probe: dict[str, Any] | None = None
    status: Status = "running"

    @classmethod
    def from_seed(cls, run: Run, data_dir: Path | None = None, device: str = "cpu") -> Self:
        """The run before its first step."""
        method = get_method(run.method)
        seed_all(run.seed)
        task = get_problem(run.problem).ready(
            seed=run.seed,
            data_dir=data_dir,
            batch_size=run.batch_size,
            subset=run.subset,
            evaluation=run.evaluation,
        )
        if device != "cpu":  # a user's own task need not be able to move
            task.to(device)
        optimizer = prepare(method, task, run.rate, run.settings, run.epochs)
        return cls(run, method, task, optimizer)

    @property
    def sizes(self) -> dict[str, int] | None:
        """How many samples each split holds; a user's own task need not tell."""
        sizes = getattr(self.task, "sizes", None)
        return None if sizes is None else dict(sizes)

    def check_sizes(self, recorded: Mapping[str, int] | None) -> None:
        """Refuse to continue with other data than on record.

        Raises:
            ValueError: The sizes differ.
        """
        if recorded and self.sizes and recorded != self.sizes:
            raise ValueError(
                f"The run was begun with {_spell_sizes(recorded)} samples, now there are "
                f"{_spell_sizes(self.sizes)}. Restore the data and use --retry, or use another "
                "directory with --out."
            )

    def advance(self) -> Iterator[Tick]:
        """Train for one epoch, or until the loss is not finite any more."""
        losses: list[Tensor] = []
        probes = watch_probes(self.optimizer)
        self.epoch += 1
        began = heard = time.perf_counter()
        with self._counting_forward_passes():
            for batch in self.task.batches():
                losses.append(take_step(self.method, self.optimizer, self.task, batch))
                if probes is not None:
                    probes.observe()
                if len(losses) % CHECK_STEPS == 0 and not losses[-1].isfinite():
                    break
                if time.perf_counter() - heard > TICK_SECONDS:
                    yield Tick(self.epoch, len(losses), self.task.steps_per_epoch)
                    heard = time.perf_counter()
        self.losses = torch.stack(losses).double().cpu()
        self.probe = None if probes is None else probes.summary()
        self.steps += len(losses)
        self.seconds += time.perf_counter() - began

    def outcome(self) -> Epoch:
        """The record of the epoch just trained, with a checkpoint if there is more to do."""
        bad = self.losses.isfinite().logical_not().nonzero()
        if len(bad):
            step = f"step {int(bad[0]) + 1} of epoch {self.epoch}"
            self.status = "diverged"
            return Epoch(self._record({}, f"the training loss was not finite in {step}"))
        record = self.record()
        # Without all of its memory a method would go another way: it starts from its seed again.
        is_of_use = record.status == "running" and "resume" not in self.method.limits
        return Epoch(record, self.checkpoint() if is_of_use else None)

    def record(self) -> Record:
        """The record of the present state, with the scores of all splits."""
        began = time.perf_counter()
        scores = evaluate(self.method, self.optimizer, self.task)
        seconds = time.perf_counter() - began
        if not math.isfinite(scores["train_loss"] or 0.0):
            self.status = "diverged"
            reason = f"the training loss was not finite after epoch {self.epoch}"
            return self._record(scores, reason, evaluation_seconds=seconds)
        self.status = "done" if self.epoch == self.run.epochs else "running"
        return self._record(scores, evaluation_seconds=seconds)

    def checkpoint(self) -> bytes:
        """All that the next epoch depends on; tensors and plain data only."""
        state = {
            "run": self.run.key,
            "counters": {name: getattr(self, name) for name in COUNTERS},
            "model": self.task.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "task": self.task.state_dict(),
            "random": save_random(),
        }
        return encode_checkpoint(state)

    def restore(self, checkpoint: bytes, recorded: int) -> str | None:
        """Continue from a checkpoint, which cannot execute code; what is wrong with it, if anything.

        A checkpoint is a shortcut: the seed gives the same run. So no trouble with one is an error.
        """
        try:
            state = decode_checkpoint(checkpoint)
            if state["run"] != self.run.key or not self._is_in(state["counters"], recorded):
                return "it does not fit the records"
            self._load(state)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _is_in(self, counters: Mapping[str, Any], recorded: int) -> bool:
        """Whether the counters are of an epoch on record, after which there is more to train."""
        counts = [counters[name] for name in COUNTERS if name != "seconds"]
        if not all(type(count) is int and count >= 0 for count in counts):
            return False
        seconds, epoch = counters["seconds"], counters["epoch"]
        return isinstance(seconds, float) and 0 <= epoch <= min(recorded, self.run.epochs - 1)

    def _load(self, state: Mapping[str, Any]) -> None:
        self.task.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.task.load_state_dict(state["task"])
        load_random(state["random"])
        for name in COUNTERS:
            setattr(self, name, state["counters"][name])

    def _record(
        self, scores: Mapping[str, Any], reason: str | None = None, **seconds: float
    ) -> Record:
        return Record(
            run=self.run,
            epoch=self.epoch,
            status=self.status,
            reason=reason,
            batch_loss=self.losses.mean().item() if len(self.losses) else None,
            effective_rate=effective_rate(self.method, self.optimizer),
            steps=self.steps,
            forward_passes=self.forward_passes,
            probe=self.probe,
            metrics=self.optimizer.metrics() if isinstance(self.optimizer, ProbStep) else None,
            sizes=self.sizes,
            device=device_name(self.task.model),
            time={"training_seconds": self.seconds, **seconds, **_clock()},
            **scores,
            **_origin(self.run),
        )

    @contextmanager
    def _counting_forward_passes(self) -> Iterator[None]:
        def count(*_: object) -> None:
            self.forward_passes += 1

        hook = self.task.model.register_forward_pre_hook(count)
        try:
            yield
        finally:
            hook.remove()


def evaluate(method: Method, optimizer: Optimizer, task: Task) -> dict[str, float | None]:
    """Loss and accuracy of every split, at the parameters that the method would deliver."""
    scores: dict[str, float | None] = {}
    with evaluating(method, optimizer, task.model):
        for split in SPLITS:
            evaluation = task.evaluate(split)
            scores[f"{split}_loss"] = evaluation.loss
            scores[f"{split}_accuracy"] = evaluation.accuracy
    return scores


def _origin(run: Run) -> dict[str, Any]:
    method = METHODS.get(run.method)  # a failed run may name one that there is not
    return {
        "imported": imported_hash(run.problem, run.method),
        "threads": torch.get_num_threads(),
        "versions": versions(method.package if method else None),
        "commit": commit(),
    }


def _spell_sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{size} {split}" for split, size in sizes.items())


def _clock() -> dict[str, str]:
    return {"finished": datetime.now(UTC).isoformat(timespec="milliseconds")}

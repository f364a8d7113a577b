"""A problem is a value; a task is that value made ready to train.

Nothing here knows an optimizer, a schedule or a record.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Generator, Tensor, nn

from probstep.bench.problems.evaluation import (
    Choice,
    Evaluation,
    EvaluationKind,
    SplitName,
    clean_set,
    paper_set,
    undisturbed,
)
from probstep.bench.problems.sources import Source, View
from probstep.bench.problems.splits import Part, Splits

Batch = tuple[Tensor, Tensor]
Carry = Callable[[nn.Module, Iterator[Batch], int], Iterator[Batch]]

EVALUATION_BATCH = 500  # samples per forward pass of an evaluation; decides speed, not numbers


def carry_nothing(model: nn.Module, batches: Iterator[Batch], batch_size: int) -> Iterator[Batch]:
    """The batches of a model that remembers nothing from one to the next."""
    del model, batch_size
    return batches


@dataclass(frozen=True)
class Problem:
    """Data, model, loss and budget: a row of `PROBLEMS`.

    Args:
        name: The key in the table.
        source: Where the samples come from.
        make_model: Makes a model, freshly initialised from torch's global generator.
        losses: The loss of each sample, from outputs and targets.
        hits: The accuracy of each sample, in [0, 1]; None if the problem has none.
        batch_size: Samples per batch.
        epochs: The budget: DeepOBS's where it has one.
        paper_epochs: The paper's budget, where it has the problem.
        l2: The factor of the penalty 0.5 * l2 * |w|^2 on weight matrices and kernels.
        carry: For models with a state that passes from batch to batch.
        note: What a reader of results should know.

    >>> from probstep.bench.problems import PROBLEMS
    >>> PROBLEMS["cifar10_3c3d"].l2
    0.002
    """

    name: str
    source: Source
    make_model: Callable[[], nn.Module]
    losses: Callable[[Any, Tensor], Tensor]
    hits: Callable[[Any, Tensor], Tensor] | None
    batch_size: int
    epochs: int
    paper_epochs: int | None = None
    l2: float = 0.0
    carry: Carry = carry_nothing
    note: str = ""

    def ready(
        self,
        *,
        seed: int,
        data_dir: Path | str | None = None,
        batch_size: int | None = None,
        subset: int | None = None,
        evaluation: EvaluationKind = "clean",
    ) -> "Task":
        """Load the data, split it and initialise a model; torch's global generator is seeded.

        Args:
            seed: Decides split, order, augmentation, initialisation and what the model draws.
            data_dir: Where the files lie; None for PROBSTEP_DATA or ~/.cache/probstep.
            batch_size: None for the problem's own.
            subset: Use so many samples of the training file, and validation and test samples in
                the same proportion; for a text, characters.
            evaluation: "paper" for DeepOBS's evaluation sets, "clean" for ours; see `Task`.

        Raises:
            FileNotFoundError: The data is not there; the message says how to get it.
            ValueError: The data is damaged, or an argument is impossible.

        >>> from probstep.bench.problems import PROBLEMS
        >>> PROBLEMS["digits_mlp"].ready(seed=0, batch_size=64, subset=800).steps_per_epoch
        9
        """
        size = self.batch_size if batch_size is None else batch_size
        _check(self, size, evaluation)
        splits = self.source.split(
            self.source.load(data_dir),
            subset=subset,
            batch_size=size,
            generator=_make_generator(seed, "split"),
        )
        torch.manual_seed(seed)
        return Task(self, self.make_model(), splits, size, evaluation, seed)


class Task:
    """A problem made ready to train: all that a training loop touches.

    Two kinds of evaluation sets:

    - "clean": the first training samples, as many as there are validation samples, without
      augmentation; all validation samples; all test samples.
    - "paper": DeepOBS's, and so the paper's. "train" is a fresh random choice of that many samples
      from the whole training file, the validation samples among them, with augmentation; an
      incomplete last batch is dropped everywhere.

    The task draws from its own generators only. What the model draws (dropout) comes from torch's
    global generator, whose state is the training loop's to keep.

    >>> from probstep.bench.problems import get_problem
    >>> task = get_problem("digits_logreg").ready(seed=0)
    >>> optimizer = torch.optim.SGD(task.params, lr=0.1)
    >>> for batch in task.batches():
    ...     optimizer.zero_grad()
    ...     task.loss(batch).backward()
    ...     _ = optimizer.step()
    >>> task.evaluate("test").accuracy > 0.7
    True
    """

    def __init__(
        self,
        problem: Problem,
        model: nn.Module,
        splits: Splits,
        batch_size: int,
        evaluation: EvaluationKind,
        seed: int,
    ) -> None:
        self.problem = problem
        self.model = model
        self.batch_size = batch_size
        self.evaluation = evaluation
        self.steps_per_epoch = len(splits.train) // batch_size
        self.to("cpu")
        self._splits = splits
        self._training = _make_generator(seed, "training")
        self._evaluating = _make_generator(seed, "evaluation")
        _check_size(problem, batch_size, len(splits.train))

    def to(self, device: torch.device | str) -> None:
        """Move the model to a device; batches go there as they are drawn.

        The data stays on the host, and so do the generators that order and augment it: the samples of
        a run are the same on every device.
        """
        self._device = torch.device(device)
        self.model.to(self._device)  # which may make new parameters of the old ones
        self.params = [p for p in self.model.parameters() if p.requires_grad]
        self.regularised = [p for p in self.params if p.ndim > 1] if self.problem.l2 else []

    @property
    def sizes(self) -> dict[SplitName, int]:
        """How many samples each split holds."""
        return {name: len(self._splits.get(name)) for name in get_args(SplitName)}

    def batches(self) -> Iterator[Batch]:
        """One epoch of training batches, all complete."""
        part, source = self._splits.train, self.problem.source
        rows = source.order(part.rows, self._training)[: self.steps_per_epoch * self.batch_size]
        batches = self._draw(part, rows, self.batch_size, source.augmented, self._training)
        return self.problem.carry(self.model, batches, self.batch_size)

    def losses(self, batch: Batch) -> Tensor:
        """The loss of each sample, without the L2 term."""
        inputs, targets = batch
        return self.problem.losses(self.model(inputs), targets)

    def loss(self, batch: Batch) -> Tensor:
        """The mean of the losses plus the L2 term: the paper's Eq. 1."""
        loss = self.losses(batch).mean()
        return loss + self.penalty() if self.regularised else loss

    def penalty(self) -> Tensor:
        """The L2 term, 0.5 * l2 * |w|^2 over the regularised parameters."""
        squares = [torch.dot(w.flatten(), w.flatten()) for w in self.regularised]
        return 0.5 * self.problem.l2 * torch.stack(squares).sum() if squares else torch.zeros(())

    def evaluate(self, split: SplitName) -> Evaluation:
        """Loss and accuracy with the model in evaluation mode.

        The mode of every module and torch's global generator are left as found.
        """
        generator = self._evaluating if self.evaluation == "paper" else _make_generator(0, "clean")
        with undisturbed(self.model, generator), torch.no_grad():
            part, rows, view = self._choose(split, generator)
            size = self.batch_size if self.problem.carry is not carry_nothing else EVALUATION_BATCH
            batches = self._draw(part, rows, size, view, generator)
            return self._measure(self.problem.carry(self.model, batches, size), len(rows))

    def _draw(
        self, part: Part, rows: Tensor, size: int, view: View, generator: Generator
    ) -> Iterator[Batch]:
        """The rows as batches of this size, as the model sees them, where it is."""
        inputs, targets = part.samples.inputs, part.samples.targets
        for chunk in torch.split(rows, size):
            seen = view(inputs[chunk], generator)
            yield seen.to(self._device), targets[chunk].to(self._device)

    def _choose(self, split: SplitName, generator: Generator) -> Choice:
        if self.evaluation == "clean":
            return clean_set(split, self._splits, self.problem.source)
        return paper_set(split, self._splits, self.problem.source, self.batch_size, generator)

    def _measure(self, batches: Iterator[Batch], count: int) -> Evaluation:
        loss, hits = 0.0, 0.0
        for inputs, targets in batches:
            outputs = self.model(inputs)
            loss += self.problem.losses(outputs, targets).sum(dtype=torch.float64).item()
            if self.problem.hits is not None:
                hits += self.problem.hits(outputs, targets).sum(dtype=torch.float64).item()
        accuracy = None if self.problem.hits is None else hits / count
        return Evaluation(loss / count + self.penalty().item(), accuracy)

    def state_dict(self) -> dict[str, Tensor]:
        """The state of the task's generators; with model, optimizer and torch's own, all of a run.

        Taken between epochs and loaded into a task with the same arguments, it lets a run go on
        bit for bit.
        """
        return {"training": self._training.get_state(), "evaluation": self._evaluating.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a state that `state_dict` returned."""
        self._training.set_state(state["training"])
        self._evaluating.set_state(state["evaluation"])


def _make_generator(seed: int, stream: str) -> Generator:
    """A generator of its own for each use of a seed."""
    entropy = np.random.SeedSequence((seed, *stream.encode()))
    return Generator().manual_seed(int(entropy.generate_state(1)[0]))


def _check(problem: Problem, batch_size: int, evaluation: str) -> None:
    if evaluation not in get_args(EvaluationKind):
        raise ValueError(f'evaluation={evaluation!r} is not known. Choose "paper" or "clean".')
    if batch_size < 1:
        raise ValueError(
            f"batch_size={batch_size} is not possible. Choose at least 1, or None for "
            f"{problem.batch_size}, the batch size of {problem.name}."
        )


def _check_size(problem: Problem, batch_size: int, count: int) -> None:
    if count < batch_size:
        raise ValueError(
            f"{problem.name} has {count} training samples here, fewer than one batch of "
            f"{batch_size}. Raise subset or lower batch_size."
        )

"""What an evaluation is measured on, and how it leaves model and generators alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from probstep.bench.problems.sources import Source, View
from probstep.bench.problems.splits import Part, Splits

SplitName = Literal["train", "valid", "test"]
EvaluationKind = Literal["paper", "clean"]
Choice = tuple[Part, Tensor, View]  # samples, the rows of them in order, how a model sees them


@dataclass(frozen=True)
class Evaluation:
    """Mean loss, with the L2 term, and accuracy over one evaluation set.

    >>> Evaluation(loss=2.3, accuracy=0.1)
    Evaluation(loss=2.3, accuracy=0.1)
    """

    loss: float
    accuracy: float | None


def clean_set(split: SplitName, splits: Splits, source: Source) -> Choice:
    """Training samples as many as there are for validation, not augmented; or all of a split."""
    part = splits.get(split)
    count = len(splits.valid) if split == "train" else len(part)
    return part, part.rows[:count], source.plain


def paper_set(
    split: SplitName, splits: Splits, source: Source, batch_size: int, generator: Generator
) -> Choice:
    """DeepOBS's choice: only whole batches, drawn afresh but for the test samples.

    Those for "train" come from the whole training file, and are augmented.
    """
    part = splits.file if split == "train" else splits.get(split)
    rows = part.rows if split == "test" else source.order(part.rows, generator)
    rows = rows[: len(splits.valid)] if split == "train" else rows
    whole = len(rows) // batch_size * batch_size
    whole = whole or len(rows)  # of a small subset: a part of a batch is better than none
    return part, rows[:whole], source.augmented if split == "train" else source.plain


@contextmanager
def undisturbed(model: nn.Module, generator: Generator) -> Iterator[None]:
    """Evaluation mode and a seeded global generator inside, everything as before outside."""
    modes = [(module, module.training) for module in model.modules()]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**31, (), generator=generator)))
        try:
            model.eval()
            yield
        finally:
            for module, mode in modes:
                module.training = mode

"""From all samples of a data set to the rows for training, validation and test.

A subset means the same everywhere: as if the training file held no more samples than that, with
the validation and test samples in the same proportion. So does a file that is itself a subset.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Generator, Tensor

TEST_SEED = 0  # the test samples of a subset are the same in every run


@dataclass(frozen=True)
class Samples:
    """Inputs and targets in memory, one per row."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Dataset:
    """All samples of a data set; those for validation only if it brings its own."""

    train: Samples
    test: Samples
    valid: Samples | None = None


@dataclass(frozen=True)
class Part:
    """Some rows of the samples."""

    samples: Samples
    rows: Tensor

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Splits:
    """The rows that a run uses.

    Args:
        train: What is trained on.
        valid: What is kept out of the training file for validation.
        test: The test file.
        file: Every row in use of the training file: training and validation together.
    """

    train: Part
    valid: Part
    test: Part
    file: Part

    def get(self, name: Literal["train", "valid", "test"]) -> Part:
        """The part that is called so.

        >>> Splits(train="a", valid="b", test="c", file="d").get("valid")
        'b'
        """
        parts = {"train": self.train, "valid": self.valid, "test": self.test}
        if name not in parts:
            raise ValueError(f"There is no split {name!r}. Choose from {', '.join(parts)}.")
        return parts[name]


class Split(Protocol):
    """Makes `Splits` from all samples; `subset` counts samples of the training file."""

    def __call__(
        self, dataset: Dataset, *, subset: int | None, batch_size: int, generator: Generator
    ) -> Splits:
        """Choose the rows."""
        ...


def round_share(count: int, part: int, whole: int) -> int:
    """The share part/whole of a count, rounded in integers, but at least 1.

    >>> round_share(60_000, 10_000, 60_000), round_share(8_000, 26_032, 73_257)
    (10000, 2843)
    """
    return max((2 * count * part + whole) // (2 * whole), 1)


def carve_validation(
    dataset: Dataset,
    *,
    subset: int | None,
    batch_size: int,
    generator: Generator,
    share: tuple[int, int],
) -> Splits:
    """Take a random share of the training file out for validation, as DeepOBS does."""
    del batch_size
    total = len(dataset.train.inputs)
    rows = torch.randperm(total, generator=generator)[: _use(subset, total)]
    count = round_share(len(rows), *share)
    valid, train = rows[:count], rows[count:]
    return Splits(
        train=Part(dataset.train, train),
        valid=Part(dataset.train, valid),
        test=_cut(dataset.test, len(rows), total),
        file=Part(dataset.train, rows),
    )


def keep_validation(
    dataset: Dataset, *, subset: int | None, batch_size: int, generator: Generator
) -> Splits:
    """Use the validation samples that the data set brings along."""
    del batch_size
    total = len(dataset.train.inputs)
    rows = torch.randperm(total, generator=generator)[: _use(subset, total)]
    train = Part(dataset.train, rows)
    valid = _cut(dataset.valid or dataset.test, len(rows), total)
    return Splits(train, valid, _cut(dataset.test, len(rows), total), file=train)


def cut_sequences(
    dataset: Dataset, *, subset: int | None, batch_size: int, generator: Generator, length: int
) -> Splits:
    """Cut a text into sequences; its first quarter is for validation, as in DeepOBS.

    Batch t holds the t-th sequence of each of `batch_size` consecutive stretches of the text, so
    that row k of a batch continues row k of the batch before.
    """
    del generator
    text, test = dataset.train.inputs, dataset.test.inputs
    used = text[: _use(subset, len(text))]
    boundary = round_share(len(used), 1, 4)
    pieces = (
        used[boundary:],
        used[:boundary],
        test[: round_share(len(test), len(used), len(text))],
    )
    train, valid, tested = (_sequences(piece, batch_size, length) for piece in pieces)
    return Splits(train, valid, tested, file=train)


def _sequences(text: Tensor, batch_size: int, length: int) -> Part:
    """Inputs and targets one character later, both (batches * batch_size, length)."""
    batches = (len(text) - 1) // (batch_size * length)
    if batches < 1:
        raise ValueError(
            f"{len(text)} characters are too few for one batch of {batch_size} sequences of "
            f"{length} and the character after. Raise subset or lower batch_size."
        )
    kept = batches * batch_size * length
    inputs, targets = (
        piece.view(batch_size, batches, length).transpose(0, 1).reshape(-1, length)
        for piece in (text[:kept], text[1 : kept + 1])
    )
    return Part(Samples(inputs, targets), torch.arange(len(inputs)))


def _use(subset: int | None, total: int) -> int:
    """How many samples of the training file to use."""
    if subset is None:
        return total
    if not 1 <= subset <= total:
        raise ValueError(
            f"subset={subset} is not possible: the training file holds {total} samples. "
            f"Choose from 1 to {total}, or None for all."
        )
    return subset


def _cut(samples: Samples, used: int, total: int) -> Part:
    """The share used/total of the samples: all of them in order, or a fixed random choice."""
    count = len(samples.inputs)
    if used == total:
        return Part(samples, torch.arange(count))
    order = torch.randperm(count, generator=Generator().manual_seed(TEST_SEED))
    return Part(samples, order[: round_share(count, used, total)])

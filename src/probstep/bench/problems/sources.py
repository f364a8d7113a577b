"""Where the samples of a problem come from, and how they become training, validation and test.

A `Source` is a row: how to load samples, how to split them, how stored samples become inputs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import Generator, Tensor

from probstep.bench.data import (
    find_folder,
    get_files,
    read_cifar,
    read_idx_images,
    read_idx_labels,
    read_svhn,
    read_text,
)
from probstep.bench.data.catalog import find_file
from probstep.bench.problems.augment import crop, flip, jitter
from probstep.bench.problems.nets.char_rnn import VOCABULARY
from probstep.bench.problems.splits import Dataset, Samples, Split, carve_validation, cut_sequences

View = Callable[[Tensor, Generator], Tensor]


def as_stored(inputs: Tensor, generator: Generator) -> Tensor:
    """The view of samples that are stored as the model wants them."""
    del generator
    return inputs


@dataclass(frozen=True)
class Source:
    """Samples and how to use them.

    Args:
        name: The key in the data catalog, or a word for data that is made here.
        load: From a data directory to all samples; see `Dataset`.
        split: From all samples, a subset, a batch size and a generator to `Splits`.
        plain: From stored inputs to what the model is given, without any change at random.
        augmented: The same for training, with changes drawn from the generator.
        is_shuffled: Whether an epoch visits the samples in random order.
    """

    name: str
    load: Callable[[Path | str | None], Dataset]
    split: Split
    plain: View = as_stored
    augmented: View = as_stored
    is_shuffled: bool = True

    def order(self, rows: Tensor, generator: Generator) -> Tensor:
        """The rows in the order in which an epoch visits them.

        >>> WAR_AND_PEACE.order(torch.arange(3), Generator())
        tensor([0, 1, 2])
        """
        return rows[torch.randperm(len(rows), generator=generator)] if self.is_shuffled else rows


def _load_idx(name: str, data_dir: Path | str | None) -> Dataset:
    return _read_idx_folder(find_folder(get_files(name), data_dir), get_files(name).names)


@lru_cache(maxsize=1)
def _read_idx_folder(folder: Path, names: tuple[str, ...]) -> Dataset:
    """Images in [0, 1], because (Fashion-)MNIST is used without any other normalisation."""
    paths = [find_file(folder, name) or folder / name for name in names]
    images, test_images = map(read_idx_images, paths[::2])
    labels, test_labels = map(read_idx_labels, paths[1::2])
    return Dataset(
        train=_pair(_unit(images[:, None]), labels, folder),
        test=_pair(_unit(test_images[:, None]), test_labels, folder),
    )


def _load_cifar10(data_dir: Path | str | None) -> Dataset:
    files = get_files("cifar10")
    return _read_cifar_folder(
        find_folder(files, data_dir), files.names[:-1], "test_batch", "labels"
    )


def _load_cifar100(data_dir: Path | str | None) -> Dataset:
    folder = find_folder(get_files("cifar100"), data_dir)
    return _read_cifar_folder(folder, ("train",), "test", "fine_labels")


@lru_cache(maxsize=1)
def _read_cifar_folder(folder: Path, train: tuple[str, ...], test: str, labels: str) -> Dataset:
    parts = [read_cifar(folder / name, labels) for name in train]
    images, classes = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    return Dataset(
        train=_pair(images, classes, folder),
        test=_pair(*read_cifar(folder / test, labels), folder),
    )


def _load_svhn(data_dir: Path | str | None) -> Dataset:
    return _read_svhn_folder(find_folder(get_files("svhn"), data_dir))


@lru_cache(maxsize=1)
def _read_svhn_folder(folder: Path) -> Dataset:
    train, test = (read_svhn(folder / name) for name in get_files("svhn").names)
    return Dataset(train=_pair(*train, folder), test=_pair(*test, folder))


def _pair(inputs: Tensor, targets: Tensor, folder: Path) -> Samples:
    if len(inputs) != len(targets):
        raise ValueError(
            f"The files in {folder} do not belong together: {len(inputs)} images but "
            f"{len(targets)} labels. Get them again."
        )
    return Samples(inputs, targets)


def _unit(images: Tensor) -> Tensor:
    """Bytes as numbers in [0, 1]."""
    return images.float().div_(255)


Colour = tuple[float, float, float]


def _normalise(images: Tensor, mean: Colour, std: Colour) -> Tensor:
    shift, scale = torch.tensor((mean, std)).view(2, 1, 3, 1, 1)
    return images.sub_(shift).div_(scale)


def _plain(images: Tensor, _: Generator, *, mean: Colour, std: Colour) -> Tensor:
    return _normalise(_unit(images), mean, std)


def _augmented(
    images: Tensor, generator: Generator, *, mean: Colour, std: Colour, mirrored: bool
) -> Tensor:
    images = crop(images, generator)
    images = flip(images, generator) if mirrored else images
    return _normalise(jitter(_unit(images), generator), mean, std)


def _colour_source(
    name: str,
    load: Callable[[Path | str | None], Dataset],
    split: Split,
    colours: tuple[Colour, Colour],
    *,
    mirrored: bool = True,
) -> Source:
    mean, std = colours
    plain = partial(_plain, mean=mean, std=std)
    return Source(
        name, load, split, plain, partial(_augmented, mean=mean, std=std, mirrored=mirrored)
    )


def _load_text(data_dir: Path | str | None) -> Dataset:
    files = get_files("war_and_peace")
    return _read_text_file(find_folder(files, data_dir) / files.names[0])


@lru_cache(maxsize=1)
def _read_text_file(path: Path) -> Dataset:
    """The first four fifths of the characters for training, the rest for testing."""
    characters = read_text(path)
    kinds = int(characters.max()) + 1
    if kinds > VOCABULARY:
        raise ValueError(
            f"{path} holds {kinds} different characters, but the model knows {VOCABULARY}. "
            "Remove a foreign header or footer, or replace rare characters."
        )
    boundary = -(-4 * len(characters) // 5)
    train, test = characters[:boundary], characters[boundary:]
    return Dataset(train=Samples(train, train), test=Samples(test, test))


def _load_images_as_targets(source: Source, data_dir: Path | str | None) -> Dataset:
    dataset = source.load(data_dir)
    train, test = (part.inputs for part in (dataset.train, dataset.test))
    return Dataset(train=Samples(train, train), test=Samples(test, test))


def reconstructing(source: Source) -> Source:
    """The same samples, with the inputs as their own targets.

    >>> reconstructing(DIGITS).load(None).test.targets.shape
    torch.Size([360, 1, 8, 8])
    """
    return replace(source, load=partial(_load_images_as_targets, source))


@lru_cache(maxsize=1)
def _load_digits(data_dir: Path | str | None) -> Dataset:
    """The 1797 images of 8x8 that come with scikit-learn; a fixed random fifth is for testing."""
    del data_dir
    from sklearn.datasets import load_digits  # here, because it takes seconds to import

    digits = load_digits()
    images = torch.from_numpy(digits.images).float().div_(16)[:, None]
    labels = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(images), generator=Generator().manual_seed(0))
    test, train = order[:360], order[360:]
    return Dataset(
        train=Samples(images[train], labels[train]), test=Samples(images[test], labels[test])
    )


MNIST = Source(
    "mnist", partial(_load_idx, "mnist"), partial(carve_validation, share=(10_000, 60_000))
)
FASHION_MNIST = Source(
    "fashion_mnist",
    partial(_load_idx, "fashion_mnist"),
    partial(carve_validation, share=(10_000, 60_000)),
)
CIFAR10 = _colour_source(
    "cifar10",
    _load_cifar10,
    partial(carve_validation, share=(10_000, 50_000)),
    ((0.49139968, 0.48215841, 0.44653091), (0.24703223, 0.24348513, 0.26158784)),
)
CIFAR100 = _colour_source(
    "cifar100",
    _load_cifar100,
    partial(carve_validation, share=(10_000, 50_000)),
    ((0.50707516, 0.48654887, 0.44091784), (0.26733429, 0.25643846, 0.27615047)),
)
SVHN = _colour_source(
    "svhn",
    _load_svhn,
    partial(carve_validation, share=(26_032, 73_257)),
    ((0.4376821, 0.4437697, 0.47280442), (0.19803012, 0.20101562, 0.19703614)),
    mirrored=False,
)
WAR_AND_PEACE = Source(
    "war_and_peace", _load_text, partial(cut_sequences, length=50), is_shuffled=False
)
DIGITS = Source("digits", _load_digits, partial(carve_validation, share=(1, 4)))

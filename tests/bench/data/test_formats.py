"""Readers return what was written, and name the file when it is damaged."""

import gzip
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from probstep.bench.data import (
    read_cifar,
    read_idx,
    read_idx_images,
    read_idx_labels,
    read_svhn,
    read_text,
)

from ..standard_files import cifar_bytes, draw, idx_bytes


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("shape", [(7,), (3, 28, 28)])
@pytest.mark.parametrize("packed", [True, False])
def test_an_idx_file_is_read_as_it_was_written(tmp_path, shape, packed):
    array = draw(shape)
    content = idx_bytes(array)
    path = write(
        tmp_path / ("a.gz" if packed else "a"), gzip.compress(content) if packed else content
    )
    assert torch.equal(read_idx(path), torch.from_numpy(array))


def test_a_cifar_file_is_read_as_it_was_written(tmp_path):
    images, labels = read_cifar(
        write(tmp_path / "train", cifar_bytes(5, "fine_labels")), "fine_labels"
    )
    assert torch.equal(images.flatten(1), torch.from_numpy(draw((5, 3072))))
    assert torch.equal(labels, torch.from_numpy(draw((5,), 10)).long())


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_cifar_files_of_old_and_new_numpy_are_read(tmp_path, module):
    written = cifar_bytes(5)
    present = np.empty(0).__reduce__()[0].__module__
    content = written.replace(f"c{present}\n".encode(), f"c{module}\n".encode())
    assert read_cifar(write(tmp_path / "test_batch", content))[0].shape == (5, 3, 32, 32)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("number", [np.uint8, np.float64])
def test_an_svhn_file_has_its_axes_in_order_and_zeros_labelled_zero(tmp_path, packed, number):
    images, labels = draw((32, 32, 3, 4)), np.array([[1], [10], [9], [2]], dtype=number)
    content = {"other": "text", "X": images, "y": labels}
    savemat(tmp_path / "train_32x32.mat", content, do_compression=packed)
    found, classes = read_svhn(tmp_path / "train_32x32.mat")
    assert torch.equal(found, torch.from_numpy(images).permute(3, 2, 0, 1))
    assert classes.tolist() == [1, 0, 9, 2]


def test_characters_are_ranked_by_frequency_and_ties_by_first_use(tmp_path):
    path = write(tmp_path / "text", "zébéé\nz".encode())
    assert read_text(path).tolist() == [1, 0, 2, 0, 0, 3, 1]


DAMAGED = {
    "idx that is cut off": (read_idx, "a.gz", gzip.compress(idx_bytes(draw((9,))))[:-9]),
    "idx that is no gzip": (read_idx, "a.gz", b"nonsense"),
    "idx with too few bytes": (read_idx, "a", idx_bytes(draw((9,)))[:-1]),
    "idx with too many bytes": (read_idx, "a", idx_bytes(draw((9,))) + b"x"),
    "idx of floats": (read_idx, "a", b"\x00\x00\x0d\x01" + bytes(8)),
    "empty idx": (read_idx, "a", b""),
    "cifar that is cut off": (read_cifar, "a", cifar_bytes(3)[:-50]),
    "cifar that is no pickle": (read_cifar, "a", b"nonsense"),
    "cifar without images": (read_cifar, "a", pickle.dumps({"labels": [1]})),
    "cifar that is a list": (read_cifar, "a", pickle.dumps([1])),
    "cifar with images of another size": (
        read_cifar,
        "a",
        pickle.dumps({"data": draw((2, 5)), "labels": [1, 2]}, protocol=3),
    ),
    "cifar with fewer labels": (
        read_cifar,
        "a",
        pickle.dumps({"data": draw((2, 3072)), "labels": [1]}, protocol=3),
    ),
    "cifar with images for labels": (
        read_cifar,
        "a",
        pickle.dumps({"data": draw((2, 3072)), "labels": draw((2, 3072))}, protocol=3),
    ),
    "cifar with a label that is no class": (
        read_cifar,
        "a",
        pickle.dumps({"data": draw((2, 3072)), "labels": [1, 10]}, protocol=3),
    ),
    "cifar with a negative label": (
        read_cifar,
        "a",
        pickle.dumps({"data": draw((2, 3072)), "labels": [1, -1]}, protocol=3),
    ),
    "cifar with a label beyond all integers": (
        read_cifar,
        "a",
        pickle.dumps({"data": draw((1, 3072)), "labels": [10**30]}, protocol=3),
    ),
    "cifar whose images are a list": (
        read_cifar,
        "a",
        pickle.dumps({"data": [[0] * 3072], "labels": [1]}, protocol=3),
    ),
    "cifar that asks for all memory": (
        read_cifar,
        "a",
        b"\x80\x04\x8e" + (2**62).to_bytes(8, "little"),
    ),
    "idx with images for labels": (read_idx_labels, "a", idx_bytes(draw((2, 28, 28)))),
    "idx with labels for images": (read_idx_images, "a", idx_bytes(draw((2,)))),
    "idx with a label that is no class": (read_idx_labels, "a", idx_bytes(np.array([1, 10]))),
    "cifar that asks for a builtin": (read_cifar, "a", b"cbuiltins\neval\n(S'1'\ntR."),
    "cifar that asks for a dotted name": (
        read_cifar,
        "a",
        b"\x80\x04\x8c\x05numpy\x8c\x0af2py.main\x93.",
    ),
    "svhn that is no mat": (read_svhn, "a.mat", b"nonsense" * 100),
    "empty svhn": (read_svhn, "a.mat", b""),
    "text that is not utf-8": (read_text, "a.txt", b"\xff\xfe\xff"),
}


class Exploit:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def test_a_pickle_that_would_act_is_refused_before_it_does(tmp_path):
    folder = str(tmp_path / "made")
    path = write(tmp_path / "train", pickle.dumps({"data": Exploit(folder)}))
    with pytest.raises(ValueError, match=r"it asks for posix\.mkdir|it asks for nt\.mkdir"):
        read_cifar(path)
    assert not Path(folder).exists()
    pickle.loads(path.read_bytes())  # the exploit is real
    assert Path(folder).exists()


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_named_with_a_remedy(tmp_path, case):
    read, name, content = DAMAGED[case]
    path = write(tmp_path / name, content)
    with pytest.raises(ValueError, match="Delete it and get it again") as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_an_svhn_file_that_is_cut_off_is_named(tmp_path):
    path = tmp_path / "train_32x32.mat"
    savemat(path, {"X": draw((32, 32, 3, 4)), "y": draw((4, 1))})
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(ValueError, match=r"train_32x32\.mat is damaged"):
        read_svhn(path)


@pytest.mark.parametrize("packed", [True, False])
def test_an_svhn_file_with_any_byte_changed_is_read_or_named(tmp_path, packed):
    path = tmp_path / "train_32x32.mat"
    labels = draw((2, 1), 10) + 1
    savemat(path, {"X": draw((32, 32, 3, 2)), "y": labels}, do_compression=packed)
    whole = path.read_bytes()
    tags = [*range(120, 260), *range(len(whole) - 120, len(whole))]
    outcomes = set()
    for place in tags:
        for value in (0, 1, 127, 255):
            path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            outcomes.add(outcome_of_reading(path))
    assert outcomes == {"read", "named"}


def outcome_of_reading(path):
    try:
        read_svhn(path)
    except ValueError as error:
        return "named" if str(path) in str(error) else "nameless"
    return "read"


def test_an_svhn_file_with_a_label_that_is_no_digit_is_named(tmp_path):
    path = tmp_path / "train_32x32.mat"
    for label in (0.0, 11.0, 1.5, np.nan):
        savemat(path, {"X": draw((32, 32, 3, 1)), "y": np.array([[label]])})
        with pytest.raises(ValueError, match=r"train_32x32\.mat is damaged.*labels from 1 to 10"):
            read_svhn(path)


@pytest.mark.parametrize("content", [{"y": draw((4, 1))}, {"X": draw((4, 4)), "y": draw((4, 1))}])
def test_an_svhn_file_with_other_contents_is_named(tmp_path, content):
    savemat(tmp_path / "train_32x32.mat", content)
    with pytest.raises(ValueError, match=r"train_32x32\.mat is damaged"):
        read_svhn(tmp_path / "train_32x32.mat")

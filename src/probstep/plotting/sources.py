"""Where a history is found: in an optimizer, in a state_dict or checkpoint, or in a file of one."""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from ..binding import MEMORY
from ..history import History, Ledger
from ..optimizer import ProbStep

Source = ProbStep | History | Mapping[str, Any] | str | Path

TRAIN = "Histories are in checkpoints of a ProbStep of this version: torch.save(opt.state_dict(), FILE)."


def find_history(source: Source) -> History:
    """Return the history of an optimizer, a checkpoint or a file.

    Raises:
        TypeError: It is nothing of the kind.
        ValueError: There is no history in it, or more than one.
        OSError: The file is not there, or cannot be read.

    >>> find_history({"model": {}})
    Traceback (most recent call last):
    ValueError: The checkpoint holds no history of a ProbStep. Histories are in checkpoints of ...
    """
    if isinstance(source, History):
        return source
    if isinstance(source, ProbStep):
        return source.history()
    if isinstance(source, Mapping):
        return _only(source, "The checkpoint")
    if isinstance(source, str | Path):
        return _only(_load(Path(source)), str(source))
    raise TypeError(
        f"A {type(source).__name__} has no history. Give a ProbStep, the History that its history() "
        "returns, a checkpoint, or the path of one."
    )


def _only(checkpoint: object, name: str) -> History:
    found = list(_histories(checkpoint))
    if not found:
        raise ValueError(f"{name} holds no history of a ProbStep. {TRAIN}")
    if len(found) > 1:
        raise ValueError(
            f"{name} holds the histories of {len(found)} optimizers. Say which in Python: "
            "probstep.plot(checkpoint[...]), with the state_dict of one of them."
        )
    try:
        return Ledger.restored(found[0]).history()
    except ValueError as error:
        raise ValueError(f"{name} holds a history that cannot be read: it {error}") from error


def _histories(value: object) -> Iterator[object]:
    """Go through dictionaries and lists to the groups of optimizers; their groups hold the same."""
    if isinstance(value, Mapping):
        groups = value.get("param_groups")
        memories = [
            group[MEMORY]
            for group in (groups if isinstance(groups, list) else [])
            if isinstance(group, Mapping) and isinstance(group.get(MEMORY), Mapping)
        ]
        if memories and "history" in memories[0]:
            yield memories[0]["history"]
        else:
            for part in value.values():
                yield from _histories(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _histories(part)


def _load(path: Path) -> object:
    if path.is_dir():
        raise ValueError(
            f"{path} is a directory. A distributed checkpoint becomes one file with "
            "`python -m torch.distributed.checkpoint.format_utils dcp_to_torch DIRECTORY FILE`."
        )
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    is_mapped = zipfile.is_zipfile(path)  # then only what is looked at is read
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=is_mapped)
    except (RuntimeError, UnpicklingError, EOFError, ValueError, KeyError, AttributeError) as error:
        raise ValueError(
            f"{path} is no checkpoint that torch.load(weights_only=True) can read. Either torch.save "
            "did not write it, or it holds objects beside tensors, numbers, texts, lists and "
            "dictionaries: then save opt.state_dict() in a file of its own."
        ) from error

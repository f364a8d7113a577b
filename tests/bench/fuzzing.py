"""Seeded damage to plans, records, checkpoints and data files, and all that reads them.

A target writes a damaged file into a folder of its own and does with it what a user would. It may
succeed, or raise an error that names the file. Whatever else happens is an offence: another error,
a hang, a lot of memory, a program started, a file written outside of the folder.
"""

import contextlib
import gzip
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from unittest import mock

import numpy as np
from rich.console import Console
from scipy.io import savemat

from probstep.bench.commands import show_records
from probstep.bench.data import read_cifar, read_idx, read_idx_labels, read_svhn, read_text
from probstep.bench.data.download import unpack_tar
from probstep.bench.plans import list_runs, read_plan
from probstep.bench.records import Run, encode_record, last_epoch, store
from probstep.bench.report import build
from probstep.bench.runs.training import Epoch, Training, mark, train

from .report_cases import make_records, make_sweep
from .standard_files import cifar_bytes, draw, idx_bytes, tar_bytes

HANG_SECONDS = 60  # of processor time, which a busy machine does not use up
MOST_MEGABYTES = 1500
PLAN = b"""
about = "all that a plan can say"
problems = ["digits_mlp", "digits_logreg"]
methods = ["adam", "probstep_sgd"]
rates = [1e-3, 0.1, "default"]
seeds = [0, 1]
epochs = 3
subset = 100
batch_size = 32
evaluation = "clean"

[[override]]
problem = "digits_mlp"
settings = { weight_decay = 0.1 }
epochs = 5

[[runs]]
methods = ["sgd"]
vary = { momentum = [0.0, 0.9], nesterov = [false] }
"""
ODD_NUMBERS = ("-1e300", "1e308", "1e400", "-1e400", "NaN", "-Infinity", "nan", "inf", "-0.0")
ODD_NUMBERS += ("5e-324", "-1", "0", "1" + "0" * 400, "9" * 5000, "18446744073709551616", "0x1p9")
ODD_TEXTS = (
    '"../../up"',
    '"\\u001b]0;owned\\u0007"',
    '"[/red]"',
    '"\\ud800"',
    "null",
    "true",
    "{}",
)
ODD_TEXTS += ("[]", "[" * 3000, '{"x":' * 60 + "1" + "}" * 60, '""', '"' + "long" * 3000 + '"')
ODD_BYTES = (b"\x00", b"\xff" * 8, b"\x7f\xff\xff\xff", b"\n", b"(", b"R", b"b", b"\x93", b".")
ODD_VALUES = [None, True, -1, 0, 1.5, -1e300, 1e308, float("nan"), float("inf"), 5e-324, 10**400]
ODD_VALUES += ["", "sgd", "rosenbrock", "\x1b[2J", "../../up", [], [1], {}, {"x": [None]}]

ADAMS = ("adam", "probstep_adam")
TINY = Run("tiny", "probstep_adam", 0.1, 0, 2)
Random = random.Random


class Hang(BaseException):
    """Something takes more processor time than it can need; no handler of errors may swallow it."""


def damage(data: bytes, chance: Random) -> bytes:
    """The data with one to three changes."""
    for _ in range(chance.randint(1, 3)):
        data = chance.choice(DAMAGES)(data, chance)
    return data


def _place(data: bytes, chance: Random) -> int:
    """A place in the data; near its beginning, where formats say what follows, every other time."""
    end = len(data) if chance.random() < 0.5 else min(len(data), 300)
    return chance.randint(0, end)


def _flip(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def _cut(data: bytes, chance: Random) -> bytes:
    return data[: _place(data, chance)]


def _drop(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + data[at + chance.randint(1, 40) :]


def _repeat(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    return data[:at] + data[at : at + chance.randint(1, 200)] * chance.randint(1, 5) + data[at:]


def _insert(data: bytes, chance: Random) -> bytes:
    at = _place(data, chance)
    odd = (*ODD_BYTES, *(text.encode() for text in (*ODD_NUMBERS, *ODD_TEXTS)))
    return data[:at] + chance.choice(odd) + data[at:]


def _replace_number(data: bytes, chance: Random) -> bytes:
    """Another number in the place of one, as if the data were a text."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?(e-?\d+)?", data[:20_000]))
    if not found:
        return _flip(data, chance)
    hit = chance.choice(found)
    return data[: hit.start()] + chance.choice(ODD_NUMBERS).encode() + data[hit.end() :]


def _replace_text(data: bytes, chance: Random) -> bytes:
    """Another value in the place of a text in quotes."""
    found = list(re.finditer(rb'"[^"\n]*"', data[:20_000]))
    if not found:
        return _drop(data, chance)
    hit = chance.choice(found)
    return data[: hit.start()] + chance.choice(ODD_TEXTS).encode() + data[hit.end() :]


DAMAGES = (_flip, _cut, _drop, _repeat, _insert, _replace_number, _replace_text)


def damage_or_forge(data: bytes, chance: Random) -> bytes:
    """Records that are damaged, or that say odd things."""
    return (forge if chance.random() < 0.6 else damage)(data, chance)


def forge(data: bytes, chance: Random) -> bytes:
    """Records with odd values in some of their fields, under a key that fits their run."""
    lines = [json.loads(line) for line in data.splitlines()]
    run_fields = [f.name for f in fields(Run)]
    for _ in range(chance.randint(1, 4)):
        of_run = chance.random() < 0.3
        name = chance.choice(run_fields if of_run else [n for n in lines[0] if n != "schema"])
        value = chance.choice(ODD_VALUES)
        for line in lines if of_run else [chance.choice(lines)]:
            line[name] = value
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            line["run"] = Run(**{name: line[name] for name in run_fields}).key
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


@dataclass(frozen=True)
class Target:
    """A kind of file: whole samples of it, what is done with one in a folder, how it is damaged."""

    samples: Callable[[Path], list[bytes]]
    use: Callable[[bytes, Path, Random], object]
    change: Callable[[bytes, Random], bytes] = damage


def use_plan(data: bytes, folder: Path, chance: Random) -> None:
    path = folder / "plan.toml"
    path.write_bytes(data)
    list_runs(read_plan(str(path)))


def record_samples(folder: Path) -> list[bytes]:
    runs = [*make_sweep(rates=(1e-3, 1.0)), make_records(Run("rosenbrock", "adam", 0.1, 0, 4))]
    beta = [Run("digits_mlp", m, 0.1, 0, 2, settings={"betas": [0.5, 0.9]}) for m in ADAMS]
    runs += [make_records(run) for run in beta]
    return ["".join(encode_record(r) + "\n" for r in records).encode() for records in runs]


def use_records(data: bytes, folder: Path, chance: Random) -> None:
    """Show them, report on them, continue their run; beside a few that are as they should be."""
    store.prepare(folder)
    path = folder / "records" / f"{TINY.key}.jsonl"
    path.write_bytes(data)
    others = [make_records(Run("digits_mlp", m, r, 7, 4)) for m in ADAMS for r in (0.1, 1.0)]
    for records in others:
        text = "".join(encode_record(record) + "\n" for record in records)
        (folder / "records" / f"{records[0].run.key}.jsonl").write_text(text)
    for as_json in (False, True):
        screen = Console(file=io.StringIO(), width=200, color_system=None)
        show_records(folder, screen, as_json=as_json)
        _require_plain(screen.file.getvalue(), as_json=as_json)
    is_painted = chance.random() < 0.02  # it takes a hundred times as long as the page
    with contextlib.nullcontext() if is_painted else mock.patch.object(build, "_write_prints"):
        build.make_report(folder)
    with store.claim(folder, TINY) as claim:
        claim.append(mark(TINY, last_epoch(claim.records) + 1, "interrupted"))


def _require_plain(shown: str, *, as_json: bool) -> None:
    assert all(letter.isprintable() for line in shown.splitlines() for letter in line)
    for line in shown.splitlines() if as_json else ():
        json.loads(line, parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def checkpoint_samples(folder: Path) -> list[bytes]:
    training = Training.from_seed(TINY)
    for _ in training.advance():
        pass
    return [training.checkpoint()]


def use_checkpoint(data: bytes, folder: Path, chance: Random) -> None:
    messages = list(train(TINY, checkpoint=data, recorded=1))
    assert isinstance(messages[-1], Epoch)
    assert messages[-1].record.is_final


def svhn_samples(folder: Path) -> list[bytes]:
    content = {"X": draw((32, 32, 3, 2)), "y": np.array([[1], [10]], dtype=np.uint8)}
    for packed in (False, True):
        savemat(folder / f"{packed}.mat", content, do_compression=packed)
    return [(folder / f"{packed}.mat").read_bytes() for packed in (False, True)]


def reading(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path, Random], None]:
    """A use that only reads a file of that name."""

    def use(data: bytes, folder: Path, chance: Random) -> None:
        (folder / name).write_bytes(data)
        read(folder / name)

    return use


def use_archive(data: bytes, folder: Path, chance: Random) -> None:
    unpack_tar(io.BytesIO(data), "inside", ("a", "b"), folder)


TARGETS = {
    "plan": Target(lambda _: [PLAN], use_plan),
    "records": Target(record_samples, use_records, damage_or_forge),
    "checkpoint": Target(checkpoint_samples, use_checkpoint),
    "idx": Target(lambda _: [idx_bytes(draw((3, 28, 28)))], reading("idx", read_idx)),
    "labels": Target(
        lambda _: [gzip.compress(idx_bytes(draw((9,), 10)))], reading("labels.gz", read_idx_labels)
    ),
    "cifar": Target(lambda _: [cifar_bytes(3), cifar_bytes(2)], reading("batch", read_cifar)),
    "svhn": Target(svhn_samples, reading("train.mat", read_svhn)),
    "text": Target(lambda _: ["zébéé\nz".encode() * 9], reading("text.txt", read_text)),
    "archive": Target(lambda _: [tar_bytes({"inside/a": b"1", "inside/b": b"2"})], use_archive),
}


def fuzz(name: str, seed: int, count: int, folder: Path) -> Counter[str]:
    """Use so many damaged files of a kind; return how they were answered.

    Raises:
        AssertionError: One of them was answered by an offence; the message says how to see it again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    samples = TARGETS[name].samples(folder)
    with contextlib.redirect_stderr(io.StringIO()):
        return _use_all(name, range(seed, seed + count), samples, folder)


def _use_all(name: str, numbers: Iterable[int], samples: list[bytes], folder: Path) -> Counter[str]:
    target = TARGETS[name]
    for sample in samples:  # as they are; what a process does once is then done
        target.use(sample, _new(folder / "whole"), random.Random(0))
    answers: Counter[str] = Counter()
    for number in numbers:
        chance = random.Random(f"{name} {number}")
        try:
            answers[_answer(target, samples, _new(folder / "damaged"), chance)] += 1
        except (Exception, Hang) as error:
            raise AssertionError(f"fuzz({name!r}, {number}, 1, folder): {error!r}") from error
    return answers


def _new(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _answer(target: Target, samples: list[bytes], place: Path, chance: Random) -> str:
    data = target.change(chance.choice(samples), chance)
    before = _megabytes()
    with watching(place) as offences, no_longer_than(HANG_SECONDS):
        try:
            target.use(data, place, chance)
            answer = "used"
        except (ValueError, OSError) as error:
            if str(place) not in str(error) and not str(error).startswith("The plan has no runs"):
                raise
            answer = "refused by name"
    assert not offences, offences
    assert _megabytes() - before < MOST_MEGABYTES
    return answer


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextlib.contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Raise `Hang` when the block has used so much processor time."""

    def stop(*_: object) -> None:
        raise Hang(f"more than {seconds} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


_watched: list[tuple[Path, int, list[str]]] = []  # a folder, a thread, what was done wrong there
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect")
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate", "os.rmdir")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[list[str]]:
    """A list of what the block does that it must not: start a program, change what is elsewhere."""
    if _notice not in _hooks:
        _hooks.append(_notice)
        sys.addaudithook(_notice)  # for good: Python has no way to take it back
    offences: list[str] = []
    _watched.append((folder.resolve(), threading.get_ident(), offences))
    try:
        yield offences
    finally:
        _watched.pop()


_hooks: list[Callable[..., None]] = []


def _notice(event: str, arguments: tuple[object, ...]) -> None:
    if not _watched or _watched[-1][1] != threading.get_ident():
        return
    folder, _, offences = _watched[-1]
    if event in STARTS:
        offences.append(f"{event} {arguments!r:.200}")
    is_write = event == "open" and bool(int(arguments[2] or 0) & WRITING)
    if (is_write or event in CHANGES) and isinstance(arguments[0], str | bytes | os.PathLike):
        paths = arguments[:2] if event in ("os.rename", "os.link", "os.symlink") else arguments[:1]
        offences += [f"{event} {p!r}" for p in paths if not _is_inside(p, folder)]


def _is_inside(path: object, folder: Path) -> bool:
    place = Path(os.path.realpath(os.fsdecode(path)))
    return place.is_relative_to(folder) or place == Path(os.devnull)

"""Runs as a file to keep: a line of JSON per finished run, a hundredth of its records.

A line holds what decides the run, how it ended, and its curves with five digits. A score that is one
number instead of a list is that of the last epoch.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from probstep.bench.records import Run
from probstep.bench.records.scores import COLUMNS, as_number
from probstep.bench.report.numbers.histories import History, clean

KEPT = ("train_loss", "valid_loss", "valid_accuracy", "test_accuracy", "effective_rate")
DIGITS = 5


def encode_summary(history: History) -> str:
    """The line of a run.

    >>> run = Run("line", "sgd", rate=0.1, seed=0, epochs=1)
    >>> scores = {name: [math.nan, math.nan] for name in COLUMNS} | {"train_loss": [2.0, 1 / 3]}
    >>> history = History(run, "done", "", 1, range(2), scores, 10.0, 0.5)
    >>> json.loads(encode_summary(history))["train_loss"]
    [2.0, 0.33333]
    """
    curves = {name: [_short(value) for value in history.scores[name]] for name in KEPT}
    known = {name: curve for name, curve in curves.items() if any(v is not None for v in curve)}
    passes = [None if math.isnan(v) else int(v) for v in history.scores["forward_passes"]]
    ends = {
        "status": history.status,
        "steps": int(history.steps),
        "seconds": _short(history.seconds),
    }
    values = {**asdict(history.run), **ends, **known, "forward_passes": passes}
    return json.dumps(values, sort_keys=True, separators=(",", ":"))


def decode_summary(line: str) -> History:
    """The run of a line."""
    values: dict[str, Any] = json.loads(line)
    names = ("problem", "method", "rate", "seed", "epochs", "settings")
    more = {name: values[name] for name in ("subset", "batch_size", "evaluation") if name in values}
    run = Run(**{name: values[name] for name in names}, **more)
    count = len(values["train_loss"])
    return History(
        run=run,
        status=values["status"],
        reason=clean(values.get("reason") or ""),
        epoch=count - 1,
        epochs=range(count),
        scores={name: _column(values, name, count) for name in COLUMNS},
        steps=float(values["steps"]),
        seconds=float(values.get("seconds") or 0.0),
    )


def read_summaries(path: Path) -> list[History]:
    """The runs of a file."""
    return [decode_summary(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_summaries(histories: Iterable[History], path: Path) -> int:
    """Write the runs that have ended, in an order that does not depend on theirs; how many."""
    lines = sorted(encode_summary(history) for history in histories if history.has_ended)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def _column(values: Mapping[str, Any], name: str, count: int) -> list[float]:
    value = values.get(name)
    if isinstance(value, list):
        return [as_number(item) for item in value]
    return [math.nan] * (count - 1) + [as_number(value)]


def _short(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.{DIGITS}g}")

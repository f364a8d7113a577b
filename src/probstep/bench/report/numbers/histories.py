"""Records as the report needs them: a run and its scores over the epochs, numbers checked.

Records may come from a stranger. Here numbers become finite floats or None, and texts lose what is
not printable; escaping is left to whoever writes the text.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probstep.bench.records import Record, Run, read_records

METRICS = ("train_accuracy", "train_loss", "test_accuracy", "test_loss", "effective_rate")
LONGEST = 80  # letters of a name from a record


@dataclass(frozen=True)
class History:
    """A run, how it stands, and its scores after each epoch.

    Args:
        scores: By metric, a value per epoch.
        steps: Training steps.
        passes: Forward passes in training.
        seconds: Time in training.
    """

    run: Run
    status: str
    reason: str
    epoch: int
    epochs: tuple[int, ...]
    scores: Mapping[str, tuple[float | None, ...]]
    steps: float
    passes: float
    seconds: float


def read_histories(out: Path | str) -> list[History]:
    """All runs of an output directory.

    >>> read_histories("/nowhere")
    []
    """
    return [make_history(records) for records in read_records(out)]


def make_history(records: Sequence[Record]) -> History:
    """The history that a run's records tell."""
    scored = [record for record in records if not record.is_mark]
    last, end = records[-1], scored[-1] if scored else records[-1]
    return History(
        run=last.run,
        status=last.status,
        reason=clean(last.reason or "", longest=300),
        epoch=last.epoch,
        epochs=tuple(record.epoch for record in scored),
        scores={m: tuple(number(getattr(r, m)) for r in scored) for m in METRICS},
        steps=number(end.steps) or 0.0,
        passes=number(end.forward_passes) or 0.0,
        seconds=number(end.time.get("training_seconds")) or 0.0,
    )


def number(value: Any) -> float | None:
    """A finite float, or None.

    >>> number(3), number("3"), number(float("nan")), number(10**400)
    (3.0, None, None, None)
    """
    if not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def clean(text: str, longest: int = LONGEST) -> str:
    r"""A text of printable letters, cut where it is too long.

    >>> clean("adam\x1b[31m"), clean("long" * 30, longest=9)
    ('adam�[31m', 'longlong…')
    """
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return printable if len(printable) <= longest else printable[: longest - 1] + "…"


def spell_settings(settings: Mapping[str, Any]) -> str:
    """Settings in a few words.

    >>> spell_settings({"betas": [0.5, 0.999], "nesterov": True})
    'betas=[0.5, 0.999] nesterov=true'
    """
    return clean(" ".join(f"{name}={json.dumps(value)}" for name, value in settings.items()))

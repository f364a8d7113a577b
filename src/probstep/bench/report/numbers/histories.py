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

from probstep.bench.records import Record, Run, Scores, read_ends, read_scores
from probstep.bench.records.scores import COLUMNS, as_it_ended, as_number
from probstep.bench.texts import printable

LONGEST = 80  # letters of a name from a record


@dataclass(frozen=True)
class History:
    """A run, how it stands, and its scores after each epoch.

    Args:
        epoch: The last one; it is not finished if the status says so.
        epochs: Those that have scores.
        scores: By metric, a value per epoch; NaN where there is none.
        steps: Training steps.
        seconds: Time in training.
    """

    run: Run
    status: str
    reason: str
    epoch: int
    epochs: Sequence[int]
    scores: Mapping[str, Sequence[float]]
    steps: float
    seconds: float

    @property
    def has_ended(self) -> bool:
        """Whether it was trained to its end, be it a bad one."""
        return self.status in ("done", "diverged")

    @property
    def has_diverged(self) -> bool:
        """Whether its loss was not finite any more."""
        return self.status == "diverged"

    def first(self, metric: str) -> float | None:
        """The value of the untrained model."""
        values = self.scores[metric]
        return number(values[0]) if values else None

    def last(self, metric: str) -> float | None:
        """The last value; None if the run diverged, or there is none."""
        values = self.scores[metric]
        return number(values[-1]) if values and not self.has_diverged else None

    @property
    def passes(self) -> float:
        """Forward passes in training."""
        values = self.scores["forward_passes"]
        return (number(values[-1]) or 0.0) if values else 0.0


def read_histories(out: Path | str, unread: list[Path] | None = None) -> list[History]:
    """All runs of an output directory; files that cannot be read are added to `unread`.

    >>> read_histories("/nowhere")
    []
    """
    return [_from_scores(scores) for scores in read_scores(out, unread)]


def read_last(out: Path | str, unread: list[Path] | None = None) -> list[History]:
    """All runs of an output directory with their last scores only: many times as fast.

    >>> read_last("/nowhere")
    []
    """
    return [_from_scores(scores) for scores in read_ends(out, unread)]


def make_history(records: Sequence[Record]) -> History:
    """The history that a run's records tell, all of them or only the last."""
    scored = [record for record in records if not record.is_mark]
    last, end = records[-1], scored[-1] if scored else records[-1]
    status, reason = as_it_ended(last.status, last.reason, last.train_loss)
    return History(
        run=last.run,
        status=status,
        reason=clean(reason or "", longest=300),
        epoch=last.epoch,
        epochs=[record.epoch for record in scored],
        scores={m: [as_number(getattr(r, m)) for r in scored] for m in COLUMNS},
        steps=number(end.steps) or 0.0,
        seconds=number(end.time.get("training_seconds")) or 0.0,
    )


def _from_scores(scores: Scores) -> History:
    return History(
        run=scores.run,
        status=scores.status,
        reason=clean(scores.reason or "", longest=300),
        epoch=scores.epoch,
        epochs=scores.epochs,
        scores=scores.columns,
        steps=number(scores.steps) or 0.0,
        seconds=number(scores.seconds) or 0.0,
    )


def number(value: Any) -> float | None:
    """A finite float, or None.

    >>> number(3), number("3"), number(float("nan")), number(10**400)
    (3.0, None, None, None)
    """
    found = as_number(value)
    return None if math.isnan(found) else found


def clean(text: str, longest: int = LONGEST) -> str:
    r"""A text of printable letters, cut where it is too long.

    >>> clean("adam\x1b[31m"), clean("long" * 30, longest=9)
    ('adam�[31m', 'longlong…')
    """
    shown = printable(text)
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def spell_settings(settings: Mapping[str, Any]) -> str:
    """Settings in a few words.

    >>> spell_settings({"betas": [0.5, 0.999], "nesterov": True})
    'betas=[0.5, 0.999] nesterov=true'
    """
    return clean(" ".join(f"{name}={json.dumps(value)}" for name, value in settings.items()))

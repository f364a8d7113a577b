"""The records of an output directory as a table, a row for all seeds of an otherwise equal run."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from rich.markup import escape
from rich.table import Table

from probstep.bench.records import Record, Run
from probstep.bench.texts import printable

BUDGET = ("batch_size", "subset", "evaluation")  # shown where rows differ in them
SCORES = ("train_loss", "test_loss", "test_accuracy", "effective_rate")


def summarise(runs: Iterable[Sequence[Record]]) -> list[dict[str, Any]]:
    """A row for the seeds of each otherwise equal run: how far they are, medians of their scores.

    >>> run = Run("line", "sgd", rate=0.1, seed=0, epochs=1)
    >>> summarise([[Record(run=run, epoch=1, status="done", train_loss=0.5)]])[0]["train_loss"]
    0.5
    """
    groups: dict[str, list[Sequence[Record]]] = {}
    for records in runs:
        groups.setdefault(replace(records[0].run, seed=0).key, []).append(records)
    return sorted((_row(group) for group in groups.values()), key=_order)


def draw_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows for a terminal, with all in which they differ."""
    budget = [name for name in BUDGET if len({row[name] for row in rows}) > 1]
    names = ("problem", "method", "rate", *budget, "seeds", "epoch", *SCORES, "status")
    table = Table(*(name.replace("_", " ") for name in names))
    for row in rows:
        status = ", ".join(f"{count} {status}" for status, count in row["status"].items())
        reasons = "".join(f"; {reason}" for reason in row["reasons"])
        settings = "".join(f" {name}={json.dumps(v)}" for name, v in row["settings"].items())
        table.add_row(
            _printable(row["problem"]),
            _printable(row["method"] + settings),
            "-" if row["rate"] is None else f"{row['rate']:g}",
            *("-" if row[name] is None else str(row[name]) for name in budget),
            str(row["seeds"]),
            f"{row['epoch']:g}/{row['epochs']}",
            *(format_number(row[name]) for name in SCORES),
            _printable(status + reasons),
        )
    return table


def format_number(value: float | None) -> str:
    """A number for a table.

    >>> format_number(0.000123456), format_number(None)
    ('0.0001235', '-')
    """
    return "-" if value is None else f"{value:.4g}"


def _printable(text: str) -> str:
    """The text as it is to be shown: records may come from a stranger."""
    return escape(printable(text))


def _row(group: list[Sequence[Record]]) -> dict[str, Any]:
    run: Run = group[0][0].run
    last = [records[-1] for records in group]
    scored = [_last_scored(records) for records in group]
    return {
        "problem": run.problem,
        "method": run.method,
        "settings": run.settings,
        "rate": run.rate,
        "batch_size": run.batch_size,
        "subset": run.subset,
        "evaluation": run.evaluation,
        "epochs": run.epochs,
        "seeds": len(group),
        "epoch": median(record.epoch for record in last),
        **{name: _median([getattr(record, name) for record in scored]) for name in SCORES},
        "status": dict(Counter(record.status for record in last)),
        "reasons": sorted({record.reason for record in last if record.reason}),
    }


def _last_scored(records: Sequence[Record]) -> Record:
    """The last record, or the one before an unfinished epoch."""
    return next((record for record in reversed(records) if not record.is_mark), records[-1])


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    head = row["problem"], row["method"], json.dumps(row["settings"]), row["rate"] or 0.0
    return *head, row["batch_size"] or 0, row["subset"] or 0, row["evaluation"], row["epochs"]

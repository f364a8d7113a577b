"""The records of an output directory as a table, a row for all seeds of an otherwise equal run."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from rich.markup import escape
from rich.table import Table

from probstep.bench.report.numbers.cells import Cell, make_cells
from probstep.bench.report.numbers.histories import History
from probstep.bench.texts import printable

MANY = 200  # rows that rich can still lay out quickly
BUDGET = ("batch_size", "subset", "evaluation")  # shown where rows differ in them
SCORES = ("train_loss", "test_loss", "test_accuracy", "effective_rate")


def summarise(histories: Iterable[History]) -> list[dict[str, Any]]:
    """A row for the seeds of each otherwise equal run: how far they are, the means of their scores.

    >>> from probstep.bench.records import Record, Run
    >>> from probstep.bench.report.numbers.histories import make_history
    >>> run = Run("line", "sgd", rate=0.1, seed=0, epochs=1)
    >>> history = make_history([Record(run=run, epoch=1, status="done", train_loss=0.5)])
    >>> summarise([history])[0]["train_loss"]
    0.5
    """
    return sorted((_row(cell) for cell in make_cells(histories)), key=_order)


def draw_table(rows: Sequence[dict[str, Any]]) -> Table | str:
    """The rows for a terminal, with all in which they differ.

    A table of very many rows is plain text: rich would take minutes.
    """
    budget = [name for name in BUDGET if len({row[name] for row in rows}) > 1]
    names = ("problem", "method", "rate", *budget, "seeds", "epoch", *SCORES, "status")
    heads = [name.replace("_", " ") for name in names]
    lines = [_spell_row(row, budget) for row in rows]
    if len(lines) > MANY:
        return align([heads, *lines])
    table = Table(*heads)
    for line in lines:
        table.add_row(*map(escape, line))
    return table


def align(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as text, each column as wide as its widest cell.

    >>> align([["a", "long"], ["wide", "b"]]).splitlines()
    ['a     long', 'wide  b']
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _spell_row(row: dict[str, Any], budget: Sequence[str]) -> list[str]:
    status = ", ".join(f"{count} {status}" for status, count in row["status"].items())
    reasons = "".join(f"; {reason}" for reason in row["reasons"])
    settings = "".join(f" {name}={json.dumps(value)}" for name, value in row["settings"].items())
    return [
        printable(row["problem"]),
        printable(row["method"] + settings),
        "-" if row["rate"] is None else f"{row['rate']:g}",
        *("-" if row[name] is None else str(row[name]) for name in budget),
        str(row["seeds"]),
        f"{row['epoch']:g}/{row['epochs']}",
        *(format_number(row[name]) for name in SCORES),
        printable(status + reasons),
    ]


def format_number(value: float | None) -> str:
    """A number for a table.

    >>> format_number(0.000123456), format_number(None)
    ('0.0001235', '-')
    """
    return "-" if value is None else f"{value:.4g}"


def _row(cell: Cell) -> dict[str, Any]:
    run, histories = cell.run, cell.histories
    return {
        "problem": run.problem,
        "method": run.method,
        "settings": run.settings,
        "rate": run.rate,
        "batch_size": run.batch_size,
        "subset": run.subset,
        "evaluation": run.evaluation,
        "epochs": run.epochs,
        "seeds": len(histories),
        "epoch": median(history.epoch for history in histories),
        **{name: cell.latest(name) for name in SCORES},
        "status": dict(Counter(history.status for history in histories)),
        "reasons": sorted({history.reason for history in histories if history.reason}),
    }


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    head = row["problem"], row["method"], json.dumps(row["settings"]), row["rate"] or 0.0
    return *head, row["batch_size"] or 0, row["subset"] or 0, row["evaluation"], row["epochs"]

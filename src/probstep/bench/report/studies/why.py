"""The pictures of docs/robust.md and docs/why-not-the-paper.md, from records of the plan `robust`."""

from collections.abc import Sequence
from pathlib import Path

from probstep.bench.report.drawing.layout import lay_out
from probstep.bench.report.figures.gauge import draw_gauge
from probstep.bench.report.figures.sensitivity import draw_sensitivity
from probstep.bench.report.numbers.cells import Cell, make_cells
from probstep.bench.report.numbers.summaries import read_summaries
from probstep.drawing.scene import Scene

RECORDS = ("robust.jsonl",)
SHOWN = "digits_mlp"  # the problem of the picture


def read_study(records: Path) -> list[Cell]:
    """The cells of the picture."""
    cells = make_cells(read_summaries(records / RECORDS[0]))
    return [cell for cell in cells if (cell.problem, cell.schedule) == (SHOWN, "constant")]


def draw_study(cells: Sequence[Cell]) -> dict[str, Scene]:
    """What a ratio says, and where a training ends from each initial rate.

    Raises:
        ValueError: There is nothing to draw.
    """
    figure = draw_sensitivity(cells, "train_loss")
    if figure is None:
        raise ValueError("The records have no initial rates to draw.")
    return {"gauge": draw_gauge(), "rates": lay_out(figure).whole()}

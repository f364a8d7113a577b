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


def read_study(records: Path) -> list[Cell]:
    """The cells of the picture."""
    return [cell for cell in make_cells(read_summaries(records / RECORDS[0])) if _is_shown(cell)]


def draw_study(cells: Sequence[Cell]) -> dict[str, Scene]:
    """What a ratio says, and where a training ends from each initial rate.

    Raises:
        ValueError: There is nothing to draw.
    """
    figure = draw_sensitivity(cells, "train_loss")
    if figure is None:
        raise ValueError("The records have no initial rates to draw.")
    return {"gauge": draw_gauge(), "rates": lay_out(figure).whole()}


def _is_shown(cell: Cell) -> bool:
    if (cell.run.problem, cell.run.epochs, cell.schedule) != ("digits_mlp", 20, "constant"):
        return False
    halved = cell.options.get("momentum") == 0.5 or cell.options.get("betas") == [0.5, 0.999]
    return cell.base in ("sgd", "momentum", "adam") and not halved

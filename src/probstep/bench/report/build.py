"""From a directory of records to a page: what is shown, and in which order."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from probstep.bench.files import make_folder, write_file
from probstep.bench.report.drawing.chart import Figure
from probstep.bench.report.drawing.layout import lay_out
from probstep.bench.report.figures.grid import draw_grid
from probstep.bench.report.figures.heatmap import draw_heatmap
from probstep.bench.report.figures.illustration import draw_illustration
from probstep.bench.report.figures.profiles import draw_profiles
from probstep.bench.report.figures.rosenbrock import draw_rosenbrock, is_rosenbrock
from probstep.bench.report.figures.sensitivity import draw_sensitivity
from probstep.bench.report.numbers.cells import COLUMNS, Cell, make_cells
from probstep.bench.report.numbers.histories import read_histories
from probstep.bench.report.page.html import write_page
from probstep.bench.report.page.sentences import conclude
from probstep.bench.report.page.tables import (
    Table,
    tabulate_comparisons,
    tabulate_failures,
    tabulate_finals,
    tabulate_overhead,
    tabulate_reliability,
    tabulate_settings,
)
from probstep.drawing.paint import paint
from probstep.drawing.scene import Scene, Sheet

REMEDY = "Remove it, or choose another directory with --to."
PRINTS = ("png", "pdf")
ADAPTIVE = tuple(column for column in COLUMNS if column != "fixed")
TABLES = (
    tabulate_reliability,
    tabulate_comparisons,
    tabulate_overhead,
    tabulate_failures,
    tabulate_settings,
    tabulate_finals,
)


@dataclass(frozen=True)
class Report:
    """Where the page is, and the sentences that it opens with."""

    page: Path
    sentences: list[str]


def make_report(out: Path, target: Path | None = None) -> Report:
    """Make the page of an output directory, and its figures as PNG and PDF beside it.

    Args:
        out: The output directory of `probstep run`.
        target: Where the report goes; `out/report` if not given.

    Raises:
        ValueError: There are no records.
        OSError: A file cannot be written, or would be written through a link.
    """
    cells = _read_cells(out)
    figures = _laid_out(cells)
    target = _prepare(out, target)
    for figure, sheet in figures:
        _write_prints(sheet.whole(), target / "figures", figure.slug)
    sentences = conclude(_compared(cells))
    page = target / "report.html"
    write_file(page, _compose(sentences, cells, figures).encode("utf-8"), REMEDY)
    return Report(page, sentences)


def compose_page(out: Path) -> str:
    """The page of an output directory as a text, which writes nothing and names no other file.

    Raises:
        ValueError: There are no records.
    """
    cells = _read_cells(out)
    sentences = conclude(_compared(cells))
    return _compose(sentences, cells, _laid_out(cells), has_files=False)


def _write_prints(scene: Scene, folder: Path, name: str) -> None:
    for kind, content in zip(PRINTS, paint(scene, PRINTS), strict=True):
        write_file(folder / f"{name}.{kind}", content, REMEDY)


def _prepare(out: Path, target: Path | None) -> Path:
    """Make the report's folders; only one that the user names may be a link."""
    if target is None:
        target = out / "report"
        make_folder(target)
    make_folder(target / "figures")
    return target


def draw_figures(cells: Sequence[Cell]) -> list[Figure]:
    """All figures that these records can fill."""
    compared = _compared(cells)
    figures = [
        draw_sensitivity(compared, "test_accuracy"),
        draw_sensitivity(compared, "train_loss"),
        draw_grid(compared, "train_accuracy"),
        draw_grid(compared, "train_loss"),
        draw_grid(compared, "test_accuracy"),
        draw_grid(compared, "effective_rate", ADAPTIVE),
        draw_profiles(compared),
        draw_heatmap(cells),
        draw_rosenbrock(cells),
        draw_illustration(),
    ]
    return [figure for figure in figures if figure is not None]


def _compared(cells: Sequence[Cell]) -> list[Cell]:
    """The cells without those that have a figure of their own."""
    has_own = draw_rosenbrock(cells) is not None
    return [cell for cell in cells if not (has_own and is_rosenbrock(cell))]


def _read_cells(out: Path) -> list[Cell]:
    histories = read_histories(out)
    if not histories:
        raise ValueError(f"There are no records in {out}. `probstep run` makes some.")
    return make_cells(histories)


def _laid_out(cells: Sequence[Cell]) -> list[tuple[Figure, Sheet]]:
    return [(figure, lay_out(figure)) for figure in draw_figures(cells)]


def _compose(
    sentences: list[str],
    cells: Sequence[Cell],
    figures: Sequence[tuple[Figure, Sheet]],
    *,
    has_files: bool = True,
) -> str:
    tables: list[Table] = [tabulate(cells) for tabulate in TABLES]
    opening = [*sentences, _spell_counts(cells)]
    return write_page("Learning-rate report", opening, figures, tables, has_files=has_files)


def _spell_counts(cells: Sequence[Cell]) -> str:
    runs = sum(len(cell.histories) for cell in cells)
    problems = len({cell.problem for cell in cells})
    methods = len({cell.method for cell in cells})
    counts = ((runs, "run"), (problems, "problem"), (methods, "method"))
    said = [f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts]
    return f"{said[0]} of {said[1]} by {said[2]}."

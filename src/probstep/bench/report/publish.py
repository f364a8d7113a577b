"""The pages of the documentation that records make: a table, a row per page."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probstep.bench.report.drawing.layout import lay_out
from probstep.bench.report.drawing.scene import Scene
from probstep.bench.report.drawing.svg import write_svg_file
from probstep.bench.report.figures.gauge import draw_gauge
from probstep.bench.report.studies import averages, hazards, reproduction, robust


@dataclass(frozen=True)
class Page:
    """How a page is made.

    Args:
        about: What it is about.
        file: Its name in the folder of documents.
        records: The files that it needs.
        read: Reads them from their folder.
        write: The page's text.
        draw: Its figures, by the name of their files.
    """

    about: str
    file: str
    records: tuple[str, ...]
    read: Callable[[Path], Any]
    write: Callable[[Any], str]
    draw: Callable[[Any], Mapping[str, Scene]]


def _draw_robust(study: robust.Study) -> dict[str, Scene]:
    figures = {figure.slug: lay_out(figure).whole() for figure in robust.draw_study(study)}
    return {
        "gauge": draw_gauge(),
        "rates": figures["sensitivity-train-loss"],
        "cells": figures["cells"],
    }


PAGES: dict[str, Page] = {
    "robust": Page(
        about="the default rule against the best fixed rate, and what people pick today",
        file="robust-benchmark.md",
        records=robust.RECORDS,
        read=robust.read_study,
        write=robust.write_study,
        draw=_draw_robust,
    ),
    "averages": Page(
        about="averages of the weights and a horizon: how to use them, and what they are worth",
        file="averages.md",
        records=averages.RECORDS,
        read=averages.read_study,
        write=averages.write_study,
        draw=lambda _: {},
    ),
    "hazards": Page(
        about="the default rule on unusual trainings, beside the plain optimizer",
        file="hazards.md",
        records=hazards.RECORDS,
        read=hazards.read_study,
        write=hazards.write_study,
        draw=lambda _: {},
    ),
    "reproduction": Page(
        about="the paper's claims and figures",
        file="reproduction.md",
        records=reproduction.RECORDS,
        read=reproduction.read_evidence,
        write=reproduction.write_study,
        draw=reproduction.draw_study,
    ),
}


def publish(name: str, records: Path, docs: Path) -> list[Path]:
    """Make a page of the documentation and its figures; the paths of the files.

    Args:
        name: A key of `PAGES`.
        records: The folder of the records.
        docs: The folder of the documents.

    Raises:
        ValueError: A file of records is missing, or there is no folder of documents.
    """
    page = PAGES[name]
    missing = [file for file in page.records if not (records / file).is_file()]
    if missing:
        raise ValueError(
            f"The page {name!r} needs {', '.join(missing)} in {records}: run the command in a clone "
            "of the repository, or name the folder with --records."
        )
    if not docs.is_dir():
        raise ValueError(f"There is no folder {docs}: name that of the documents with --docs.")
    study = page.read(records)
    drawn = [_write_figure(docs / "figures", *item) for item in page.draw(study).items()]
    target = docs / page.file
    target.write_text(page.write(study), encoding="utf-8")
    return [target, *drawn]


def _write_figure(folder: Path, slug: str, scene: Scene) -> Path:
    path = folder / f"{slug}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(write_svg_file(scene, path.stem.replace("-", " ")), encoding="utf-8")
    return path

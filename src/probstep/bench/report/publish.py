"""The pages of the documentation that records make: a table, a row per page.

A page is a file of its own, or a part of other files: what stands there between two marks.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probstep.bench.report.drawing.layout import lay_out
from probstep.bench.report.studies import (
    averages,
    front,
    gauge,
    hazards,
    reproduction,
    robust,
    several,
    suggest,
    why,
)
from probstep.drawing.scene import MODES, Scene, in_mode
from probstep.drawing.svg import write_svg_file

LINK = re.compile(r'(\]\(|src="|srcset=")(?!https?:)')


@dataclass(frozen=True)
class Page:
    """How a page is made.

    Args:
        about: What it is about.
        file: Its name in the folder of documents; empty for a part of others, and for pictures alone.
        records: The files that it needs.
        read: Reads them from their folder.
        write: The page's text.
        draw: Its figures, by the name of their files.
        parts_of: The files that it is a part of, from the folder of documents.
    """

    about: str
    file: str
    records: tuple[str, ...]
    read: Callable[[Path], Any]
    write: Callable[[Any], str]
    draw: Callable[[Any], Mapping[str, Scene]] = lambda _: {}
    parts_of: tuple[str, ...] = ()


def _draw_front(study: front.Study) -> dict[str, Scene]:
    scene = lay_out(front.draw_study(study)).whole()
    return {f"front-{mode}": in_mode(scene, mode) for mode in MODES}


PAGES: dict[str, Page] = {
    "front": Page(
        about="the picture and the table of the first page",
        file="",
        records=front.RECORDS,
        read=front.read_study,
        write=front.write_study,
        draw=_draw_front,
        parts_of=("index.md", "../README.md"),
    ),
    "robust": Page(
        about="the default rule against the best fixed rate, and others",
        file="robust-benchmark.md",
        records=robust.RECORDS,
        read=robust.read_study,
        write=robust.write_study,
        draw=robust.draw_study,
    ),
    "why": Page(
        about="the pictures of the rule, and of why it is not the paper's",
        file="",
        records=why.RECORDS,
        read=why.read_study,
        write=lambda _: "",
        draw=why.draw_study,
    ),
    "averages": Page(
        about="averages of the weights and a horizon: how to use them, and what they are worth",
        file="averages.md",
        records=averages.RECORDS,
        read=averages.read_study,
        write=averages.write_study,
    ),
    "hazards": Page(
        about="the default rule on unusual trainings, beside the plain optimizer",
        file="hazards.md",
        records=hazards.RECORDS,
        read=hazards.read_study,
        write=hazards.write_study,
    ),
    "suggest": Page(
        about="rates that are suggested, against the best fixed rate and other finders",
        file="suggest.md",
        records=suggest.RECORDS,
        read=suggest.read_study,
        write=suggest.write_study,
    ),
    "gauge": Page(
        about="how far the gauge of a watched rate is right",
        file="",
        records=gauge.RECORDS,
        read=gauge.read_study,
        write=gauge.write_study,
        parts_of=("watch.md",),
    ),
    "several": Page(
        about="several optimizers under one loss, against a grid over their rates",
        file="several-benchmark.md",
        records=several.RECORDS,
        read=several.read_study,
        write=several.write_study,
    ),
    "limits": Page(
        about="when not to use it, on the first page",
        file="",
        records=hazards.RECORDS,
        read=hazards.read_study,
        write=hazards.write_limits,
        parts_of=("index.md", "../README.md"),
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
    text = page.write(study)
    written = {docs / page.file: text} if page.file else _fill_parts(name, text, docs)
    drawn = [_write_figure(docs / "figures", *item) for item in page.draw(study).items()]
    for path, content in written.items():
        path.write_text(content, encoding="utf-8")
    return [*written, *drawn]


def fill_part(content: str, name: str, text: str, to_docs: str = "") -> str:
    r"""A file's content with the text in its place, between the marks of this name.

    Args:
        content: What the file holds.
        name: The name of the part.
        text: What is to stand there; its links are relative to the folder of documents.
        to_docs: The way from the file to that folder.

    >>> fill_part("a <!-- one: --> old <!-- /one --> b", "one", "new")
    'a <!-- one: -->\nnew<!-- /one --> b'

    Raises:
        ValueError: The file has no such marks.
    """
    found = re.search(rf"(<!-- {name}:.*?-->).*?(<!-- /{name} -->)", content, flags=re.DOTALL)
    if found is None:
        raise ValueError(f"There are no marks '<!-- {name}: ... -->' and '<!-- /{name} -->'.")
    moved = LINK.sub(rf"\1{to_docs}", text)
    return f"{content[: found.end(1)]}\n{moved}{content[found.start(2) :]}"


def _fill_parts(name: str, text: str, docs: Path) -> dict[Path, str]:
    filled = {}
    for file in PAGES[name].parts_of:
        path, outside = docs / file, file.startswith("../")
        if not path.is_file():
            raise ValueError(f"There is no {path}, which the page {name!r} is a part of.")
        content = path.read_text(encoding="utf-8")
        filled[path] = fill_part(content, name, text, f"{docs.name}/" if outside else "")
    return filled


def _write_figure(folder: Path, slug: str, scene: Scene) -> Path:
    path = folder / f"{slug}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(write_svg_file(scene, path.stem.replace("-", " ")), encoding="utf-8")
    return path

"""A hook of mkdocs: a notebook in this folder becomes a page, with what its cells print and draw.

A notebook is stored without outputs. Its cells run when the pages are built, in one fresh process, in
their order. As a program it does only that: `python docs/notebooks.py docs/first-look.ipynb`.
"""

import base64
import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIGURE = "![A figure of this cell](data:image/svg+xml;base64,{})"


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Add a page for each notebook."""
    from mkdocs.structure.files import File

    for path in sorted(Path(config.docs_dir).glob("*.ipynb")):
        command = [sys.executable, __file__, str(path)]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        files.append(File.generated(config, f"{path.stem}.md", content=made.stdout))
    return files


def as_page(cells: list[dict[str, Any]]) -> Iterator[str]:
    """Run the cells; the page's parts, in Markdown."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            yield source
        else:
            yield _fenced(source, "python")
            printed, figures = run_cell(source, names)
            if printed:
                yield _fenced(printed.rstrip(), "text")
            yield from (FIGURE.format(base64.b64encode(svg).decode()) for svg in figures)


def run_cell(source: str, names: dict[str, Any]) -> tuple[str, list[bytes]]:
    """Run a cell; what it printed, and its figures as SVG."""
    from matplotlib import pyplot as plt

    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(source, "<cell>", "exec"), names)
    figures = []
    for number in plt.get_fignums():
        drawn = io.BytesIO()
        plt.figure(number).savefig(drawn, format="svg")
        figures.append(drawn.getvalue())
    plt.close("all")
    return printed.getvalue(), figures


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


def main(path: str) -> None:
    """Run a notebook and print its page."""
    import matplotlib as mpl

    mpl.use("Agg")  # no screen, and `show` returns at once
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    sys.stdout.write("\n\n".join(as_page(cells)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""`plot`: the picture of a run, in a notebook, as PNG or as one page."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..drawing.svg import write_svg_file
from ..history import History
from .page import write_page
from .portrait import draw
from .sources import Source, find_history

WIDE, NARROW = 1100.0, 380.0  # pixels
TITLE = "A run with probstep"


@dataclass(frozen=True)
class Plot:
    """The picture of a run; a notebook shows it, `save` writes it, and printed it is a few lines.

    >>> Plot(History()).svg()[:4]
    '<svg'
    """

    history: History
    title: str = TITLE

    def svg(self) -> str:
        """Return the picture as SVG; its colours follow the reader's mode."""
        return write_svg_file(draw(self.history, WIDE), self.title)

    def html(self) -> str:
        """Return one page that needs no other file, for light and dark, wide and narrow screens."""
        wide, narrow = draw(self.history, WIDE), draw(self.history, NARROW)
        return write_page(self.history, wide, narrow, self.title)

    def png(self) -> bytes:
        """Return the picture as PNG; it needs matplotlib (extra `plot`)."""
        from ..drawing.paint import paint  # matplotlib is no requirement of probstep

        (content,) = paint(draw(self.history, WIDE), ["png"])
        return content

    def save(self, to: str | Path) -> Path:
        """Write the picture; the name's ending says how: .png, .svg or .html."""
        path = Path(to)
        writers: dict[str, Callable[[], bytes]] = {
            ".png": self.png,
            ".svg": functools.partial(_encoded, self.svg),
            ".html": functools.partial(_encoded, self.html),
        }
        if path.suffix.lower() not in writers:
            raise ValueError(
                f"{path.name}: the name must end with {', '.join(writers)}, which says what is written."
            )
        content = writers[path.suffix.lower()]()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def _repr_html_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        return str(self.history)


def plot(source: Source, to: str | Path | None = None) -> Plot:
    """Draw what a training looked like: loss, rate, what limited it, probes and events.

    Args:
        source: An optimizer, its `history()`, a checkpoint (any dictionary that holds its
            `state_dict()`), or the path of one.
        to: Where to write it: a name that ends with .png (which needs matplotlib, the extra `plot`),
            .svg or .html. None writes nothing.

    Returns:
        The picture: a notebook shows it, `save(to)` writes it.

    Example:
        >>> import torch
        >>> from probstep import ProbStep
        >>> opt = ProbStep(torch.optim.SGD([w := torch.nn.Parameter(torch.ones(1))], lr=1e-6))
        >>> for _ in range(3):
        ...     loss = opt.step(lambda: w.square().sum())
        >>> plot(opt).html()[:15]
        '<!doctype html>'
    """
    picture = Plot(find_history(source))
    if to is not None:
        picture.save(to)
    return picture


def _encoded(write: Callable[[], str]) -> bytes:
    return write().encode("utf-8")

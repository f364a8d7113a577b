"""Colours that colour-blind people can tell apart, each for a light and for a dark page."""

import math
from collections.abc import Iterable, Sequence

import matplotlib as mpl
from matplotlib.colors import to_hex

from probstep.bench.report.scene import GREY, INK, Colour

# Okabe and Ito, "Color Universal Design", 2008; darker or lighter where the page needs it.
PALETTE = (
    Colour("#0072b2", "#56b4e9"),
    Colour("#d55e00", "#ff9a5c"),
    Colour("#008a64", "#3fcf9f"),
    Colour("#b3568a", "#e79ac3"),
    Colour("#b87f00", "#f0c24b"),
    Colour("#5a6fd6", "#a3b1ff"),
    Colour("#6b4f2a", "#c9a878"),
)
FAMILY_COLOURS = {"fixed": GREY, "adapted": INK, "hypergradient": PALETTE[1], "L4": PALETTE[2]}
STROKES = ("solid", "dashed", "dotted", "dash-dotted")
BETTER, WORSE = (0x4F, 0x9A, 0xCB), (0xE6, 0x8A, 0x2E)


def rate_colours(rates: Iterable[float]) -> dict[float, Colour]:
    """A colour for each positive rate, the same in all figures: dark violet 1e-5, yellow-green 1.

    >>> rate_colours([1e-5, 1.0])[1.0].light
    '#9bd93c'
    """
    known = sorted({rate for rate in rates if rate > 0})
    ends = min([1e-5, *known]), max([1.0, *known])
    low, high = (math.log10(end) for end in ends)
    return {r: _along("viridis", (math.log10(r) - low) / (high - low)) for r in known}


def factor_colours(factors: Iterable[float]) -> dict[float, Colour]:
    """A colour for each factor of L4, from the lowest to the highest."""
    known = sorted(set(factors))
    spread = (known[-1] - known[0]) if len(known) > 1 else 1.0
    return {f: _along("magma", 0.25 + 0.5 * (f - known[0]) / spread) for f in known}


def method_styles(labels: Sequence[str], columns: Sequence[str]) -> dict[str, tuple[Colour, str]]:
    """A colour and a stroke for each method, known families first.

    >>> method_styles(["adam", "mine"], ["fixed", "other"])["mine"][1]
    'solid'
    """
    styles: dict[str, tuple[Colour, str]] = {}
    for label, column in zip(labels, columns, strict=True):
        style = FAMILY_COLOURS.get(column, PALETTE[0]), "solid"
        styles.setdefault(label, style if style not in styles.values() else _next(len(styles)))
    return styles


def tile_colour(share: float) -> Colour:
    """From orange, worst at -1, over near white to blue, best at 1.

    >>> tile_colour(0.0).light, tile_colour(1.0).light
    ('#f4f4f2', '#4f9acb')
    """
    target = BETTER if share > 0 else WORSE
    weight = min(abs(share), 1.0)
    parts = (round(a + weight * (b - a)) for a, b in zip((0xF4, 0xF4, 0xF2), target, strict=True))
    text = "#" + "".join(f"{part:02x}" for part in parts)
    return Colour(text, text)


def _along(name: str, share: float) -> Colour:
    """A place on a map of colours; its dark end is left out on a dark page, its bright on a light."""
    colours = mpl.colormaps[name]
    return Colour(to_hex(colours(0.84 * share)), to_hex(colours(0.3 + 0.7 * share)))


def _next(count: int) -> tuple[Colour, str]:
    return PALETTE[count % len(PALETTE)], STROKES[count // len(PALETTE) % len(STROKES)]

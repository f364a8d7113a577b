"""Colours that colour-blind people can tell apart, each for a light and for a dark page."""

import math
from collections.abc import Collection, Iterable, Mapping

import matplotlib as mpl
from matplotlib.colors import to_hex

from probstep.drawing.scene import GREY, INK, Colour
from probstep.drawing.scene import PALETTE as PALETTE

Style = tuple[Colour, str]  # and a stroke
FAMILIES: dict[str, Style] = {
    "fixed": (GREY, "solid"),
    "default rule": (INK, "solid"),
    "paper's rule": (PALETTE[0], "solid"),
    "hypergradient": (PALETTE[1], "dashed"),
    "L4": (PALETTE[2], "dash-dotted"),
}
STROKES = ("solid", "dashed", "dotted", "dash-dotted")
BETTER, WORSE = (0x4F, 0x9A, 0xCB), (0xE6, 0x8A, 0x2E)


def rate_colours(rates: Iterable[float]) -> dict[float, Colour]:
    """A colour for each positive rate, the same in all figures: dark violet 1e-5, yellow-green 1.

    >>> rate_colours([1e-5, 1.0])[1.0].light
    '#95d840'
    """
    known = sorted({rate for rate in rates if rate > 0})
    ends = min([1e-5, *known]), max([1.0, *known])
    low, high = (math.log10(end) for end in ends)
    return {r: _along("viridis", (math.log10(r) - low) / (high - low)) for r in known}


def factor_colours(factors: Iterable[float]) -> dict[float, Colour]:
    """A colour for each factor of L4, from the lowest to the highest."""
    known = sorted(set(factors))
    spread = (known[-1] - known[0]) if len(known) > 1 else 1.0
    return {f: _along("magma", 0.2 + 0.75 * (f - known[0]) / spread) for f in known}


def family_styles(labels: Mapping[str, str]) -> dict[str, Style]:
    """A style for each method by its family; a second method of a family gets one of its own.

    >>> styles = family_styles({"adam": "fixed", "adam_cosine": "fixed"})
    >>> styles["adam"] == FAMILIES["fixed"], styles["adam_cosine"] == FAMILIES["fixed"]
    (True, False)
    """
    styles: dict[str, Style] = {}
    for label, family in labels.items():
        usual = FAMILIES.get(family)
        is_free = usual is not None and usual not in styles.values()
        taken = [*styles.values(), *FAMILIES.values()]
        styles[label] = usual if usual is not None and is_free else free_style(taken)
    return styles


def free_style(used: Collection[Style]) -> Style:
    """A style that is not used yet: first other colours, then other strokes."""
    styles = [(colour, stroke) for stroke in STROKES for colour in PALETTE]
    return next((s for s in styles if s not in used), styles[len(used) % len(styles)])


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

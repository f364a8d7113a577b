"""A page of HTML that needs nothing else: the picture of a run, wide and narrow, and its events."""

from collections.abc import Sequence
from html import escape

from ..drawing.scene import Scene
from ..drawing.svg import write_svg
from ..history import Event, History, spell_share

LIMITS_SAID = {
    "nothing": "the rate is rising",
    "search": "what the search found still holds",
    "curvature": "a longer step would bend the loss upwards too much",
    "noise": "the losses of the steps: a higher rate would add more noise than there is left to gain",
    "momentum": "it shows late what a rise of the rate does, so the rate rises slowly",
    "surprise": "after a surprisingly high loss the rate returns slowly",
    "max_lr": "the limit that the user set",
}
STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1b1e23; --faint: #5f6670; --line: #dfe3e8; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181c; --ink: #e8eaed; --faint: #a3abb5; --line: #343a42; }
}
body { margin: 0 auto; padding: 1rem clamp(0.5rem, 3vw, 2rem) 2rem; max-width: 1240px;
  background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.4rem; margin: 0.3rem 0; }
h2 { font-size: 1.1rem; margin: 1.6rem 0 0.4rem; }
p { margin: 0.3rem 0; }
.faint { color: var(--faint); }
figure { margin: 1rem 0 0; }
svg { display: block; width: 100%; height: auto; font-family: inherit; }
.s { fill: none; stroke: var(--l); stroke-linejoin: round; }
.f { fill: var(--f); }
@media (prefers-color-scheme: dark) { .s { stroke: var(--d); } .f { fill: var(--g); } }
.narrow { display: none; }
@media (max-width: 640px) {
  .wide { display: none; }
  .narrow { display: block; }
}
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 1.2rem 0.2rem 0; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
th { color: var(--faint); font-weight: 600; }
.number { text-align: right; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
"""
PAGE = (
    HEAD
    + """<body>
<h1>{title}</h1>
{summary}
<figure>{wide}{narrow}</figure>
{limits}
{events}
</body>
</html>
"""
)


def write_page(history: History, wide: Scene, narrow: Scene, title: str) -> str:
    """Return the page as a text.

    Args:
        history: What is shown.
        wide: Its picture for a screen.
        narrow: Its picture for a phone.
        title: The heading.
    """
    alt = "Loss, rate, limits, probes and events over the steps"
    return PAGE.format(
        title=escape(title),
        policy=POLICY,
        style=STYLE,
        summary=_summary(history),
        wide=write_svg(wide, alt, "wide"),
        narrow=write_svg(narrow, alt, "narrow"),
        limits=_limits(history),
        events=_events(history),
    )


def _summary(history: History) -> str:
    if not history.steps:
        return '<p class="faint">No step is known yet.</p>'
    first, last = history.losses[0], history.losses[-1]
    return (
        f"<p>{history.steps[-1]:,} steps, of which {history.probes[-1]:,} were probed. "
        f"The loss went from {first:.4g} to {last:.4g}; the rate is {history.rates[-1]:.4g}.</p>"
        f'<p class="faint">{len(history)} steps are shown, evenly spaced.</p>'
    )


def _limits(history: History) -> str:
    rows = [
        (escape(limit), escape(spell_share(share)), escape(LIMITS_SAID[limit]))
        for limit, share in history.shares().items()
    ]
    return _table("What limited the rate", ("limit", "of the steps", "meaning"), rows, number=1)


def _events(history: History) -> str:
    rows = [(f"{e.step:,}", escape(e.name), escape(_said(e))) for e in history.events]
    return _table("Events", ("step", "event", ""), rows, number=0)


def _said(event: Event) -> str:
    return str(event).partition(": ")[2]


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, number: int) -> str:
    if not rows:
        return ""
    kinds = [' class="number"' if i == number else "" for i in range(len(names))]
    head = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, names, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{k}>{cell}</td>" for k, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<h2>{title}</h2><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

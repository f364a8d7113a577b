"""The live page as a text: how far the runs are, which failed, what is next. All of it is escaped."""

import base64
import hashlib
import time
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from probstep.bench.live.scene import Scene, Seen
from probstep.bench.overview import format_number
from probstep.bench.records import Run
from probstep.bench.report.numbers.histories import clean, spell_settings
from probstep.bench.report.page.html import read_asset

ROWS = 12  # of a table; the rest is counted
NAME = "live.js"
RUN = ("problem", "method", "rate", "seed")
RUNNING = ("epoch", "train loss", "rate now", "heard")
ENDED = ("status", "train loss", "test accuracy")

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1></header>
<p id="lost" role="status" hidden>Nothing new is shown: <code>probstep live</code> has ended.</p>
<main id="now">{now}</main>
<section id="report"><h2>Report so far</h2>
<iframe title="report" src="/report" data-version="{version}"></iframe></section>
<script>{script}</script>
</body>
</html>
"""


def write_page(title: str, scene: Scene, version: int) -> str:
    """The whole page.

    Args:
        title: Its heading.
        scene: How the runs stand.
        version: Of the report that there is now.
    """
    return PAGE.format(
        title=escape(clean(title)),
        style=read_asset("page.css") + _read("live.css"),
        now=write_now(scene),
        version=version,
        script=_read(NAME),
    )


def write_now(scene: Scene) -> str:
    """What the page's script replaces while the runs are made."""
    return "".join(
        (
            _write_progress(scene),
            _write_table("running", "Now", (*RUN, *RUNNING), map(_running, scene.running)),
            _write_table("failures", "Failed or diverged", (*RUN, "why"), _failures(scene)),
            _write_table("next", "Next", (*RUN, "epochs"), map(_upcoming, scene.upcoming)),
            _write_table("ended", "Last ended", (*RUN, *ENDED), map(_ended, scene.ended)),
        )
    )


def write_policy() -> str:
    """Let no script run but the page's own, and nothing be loaded but from this server."""
    digest = base64.b64encode(hashlib.sha256(_read(NAME).encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data:; connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'none'"
    )


def _write_progress(scene: Scene) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(scene.counts.items()))
    said = f"{len(scene.ended)} of {len(scene.runs)} runs have ended"
    unread = f" {scene.unread} files could not be read." if scene.unread else ""
    total = f'<progress max="1" value="{scene.share:.4f}">{scene.share:.0%}</progress>'
    sentence = f"{said}: {counts}.{unread}" if scene.runs else "There are no runs yet."
    return f'<section id="progress"><p>{escape(sentence)}</p>{total}</section>'


def _write_table(slug: str, title: str, columns: Sequence[str], rows: Iterable[list[str]]) -> str:
    found = list(rows)
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in found[:ROWS]
    )
    more = f"<p>and {len(found) - ROWS} more.</p>" if len(found) > ROWS else ""
    table = f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>{more}'
    return (
        f'<section id="{slug}"><h2>{escape(title)} ({len(found)})</h2>'
        f"{table if found else '<p>None.</p>'}</section>"
    )


def _failures(scene: Scene) -> list[list[str]]:
    lost = [seen for seen in scene.ended if seen.record.status in ("failed", "diverged")]
    return [
        [*_run(seen.run), f"{seen.record.status}: {clean(seen.record.reason or '', 300)}"]
        for seen in lost
    ]


def _upcoming(run: Run) -> list[str]:
    return [*_run(run), str(run.epochs)]


def _running(seen: Seen) -> list[str]:
    record = seen.record
    scores = (format_number(record.train_loss), format_number(record.effective_rate))
    return [*_run(seen.run), f"{record.epoch}/{record.run.epochs}", *scores, _spell_age(seen)]


def _ended(seen: Seen) -> list[str]:
    record = seen.record
    scores = (format_number(record.train_loss), format_number(record.test_accuracy))
    return [*_run(seen.run), record.status, *scores]


def _run(run: Run) -> list[str]:
    method = f"{clean(run.method)} {spell_settings(run.settings)}".strip()
    rate = "-" if run.rate is None else f"{run.rate:g}"
    return [clean(run.problem), method, rate, str(run.seed)]


def _spell_age(seen: Seen) -> str:
    """How long ago it was, so roughly that it seldom changes."""
    seconds = time.time() - seen.heard
    if seconds < 60:
        return "just now"
    return f"{seconds // 60:.0f} min ago" if seconds < 7200 else f"{seconds // 3600:.0f} h ago"


def _read(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")

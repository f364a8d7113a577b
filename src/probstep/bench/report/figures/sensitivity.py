"""Where a run ends, depending on the rate it began with: the picture of how much tuning matters."""

from collections.abc import Sequence

from probstep.bench.report.drawing.chart import Edge, Figure, Line, Panel
from probstep.bench.report.drawing.colours import FAMILIES, Style, family_styles
from probstep.bench.report.figures.grid import BASES, MOST_ROWS, NAMES
from probstep.bench.report.numbers.cells import ACCURACIES, Cell, group_by
from probstep.drawing.axes import Axis, fit_axis

Styles = dict[str, Style]


def draw_sensitivity(cells: Sequence[Cell], metric: str) -> Figure | None:
    """Final values against the initial rate, a line per method; None if there are none."""
    shown = [c for c in cells if c.rate and c.rate > 0 and c.has_ended]
    known = {c.problem for c in shown if c.final(metric) is not None}
    swept = {k for k, group in group_by(shown, "problem", "label").items() if len(group) > 1}
    shown = [c for c in shown if c.problem in known and (c.problem, c.label) in swept]
    if not shown:
        return None
    problems = list(dict.fromkeys(cell.problem for cell in shown))
    has_l4 = any(cell.column == "L4" for cell in shown)
    bases = sorted({cell.base for cell in shown}, key=_base_order)
    styles: Styles = {}
    for base in bases:
        usual_first = sorted(shown, key=lambda cell: not cell.is_default)
        styles |= family_styles({c.label: c.column for c in usual_first if c.base == base})
    x = fit_axis([c.rate for c in shown if c.rate], "log")
    rows = [_row([c for c in shown if c.problem == p], bases, metric, styles, x) for p in problems]
    return Figure(
        slug=f"sensitivity-{metric.replace('_', '-')}",
        title=f"Final {NAMES[metric]} against the initial rate",
        sentence=_sentence(metric, len(problems)),
        rows=rows[:MOST_ROWS],
        x_label="initial rate" + has_l4 * " (a factor, for L4)",
        y_label=f"final {NAMES[metric]}",
        legend=_legend(styles),
        groups=[(BASES.get(base, base), 1) for base in bases],
        row_names=problems[:MOST_ROWS],
        size=(230.0, 160.0) if len(bases) > 3 else (300.0, 190.0),
    )


def _row(
    cells: Sequence[Cell], bases: Sequence[str], metric: str, styles: Styles, x: Axis
) -> list[Panel | None]:
    finals = [value for c in cells if (value := c.final(metric)) is not None]
    y = _y_axis(metric, finals)
    worst: Edge = "bottom" if metric in ACCURACIES else "top"
    panels: list[Panel | None] = []
    for base in bases:
        members = group_by([c for c in cells if c.base == base], "label").values()
        lines = [_line(group, metric, styles) for group in members]
        panels.append(Panel("", x, y, lines, worst=worst) if lines else None)
    return panels


def _line(group: Sequence[Cell], metric: str, styles: Styles) -> Line:
    values = [(cell.rate or 0.0, cell.final(metric)) for cell in group]
    colour, dash = styles[group[0].label]
    return Line(
        name=group[0].label,
        xs=[rate for rate, _ in values],
        ys=[value for _, value in values],
        colour=colour,
        dash=dash,
        width=2.6 if group[0].column == "default rule" else 1.6,
        marker="disc",
        lost=[rate for rate, value in values if value is None],
    )


def _y_axis(metric: str, finals: Sequence[float]) -> Axis:
    if metric in ACCURACIES:
        return Axis(-0.02, 1.02)
    if min(finals) <= 0:
        return fit_axis(finals)
    ordered = sorted(finals)
    most = 1e4 * ordered[len(ordered) // 4]  # one run that exploded would flatten all others
    return fit_axis([v for v in finals if v <= most], "log", margin=0.08)


def _legend(styles: Styles) -> list[Line]:
    """The families by their name, whatever else there is by its own."""
    usual = {style: family for family, style in FAMILIES.items()}
    names = {usual.get(style, label): style for label, style in styles.items()}
    return [Line(name, (), (), *style, 2.0, "disc") for name, style in names.items()]


def _base_order(base: str) -> tuple[int, str]:
    known = list(BASES)
    return (known.index(base) if base in BASES else len(known)), base


def _sentence(metric: str, problems: int) -> str:
    good = "high" if metric in ACCURACIES else "low"
    more = f" The first {MOST_ROWS} of {problems} problems." if problems > MOST_ROWS else ""
    return (
        f"A method that needs no tuning is a {good}, flat line. Each point is the end of training, "
        f"the mean over seeds; a cross at the edge is a run that diverged.{more}"
    )

"""The paper's Fig. 2: initial rate times momentum, adapted minus fixed."""

from collections.abc import Sequence
from typing import Any

from probstep.bench.report.drawing.chart import Figure, Panel, Tile
from probstep.bench.report.drawing.colours import tile_colour
from probstep.bench.report.figures.grid import BASES
from probstep.bench.report.numbers.cells import OURS, Cell, group_by
from probstep.bench.report.numbers.histories import number
from probstep.drawing.axes import Axis, spell

MOMENTUM = {"adam": "betas", "adamw": "betas", "nadam": "betas", "momentum": "momentum"}
METRIC = "train_accuracy"
Place = tuple[float, float]  # rate and momentum


def draw_heatmap(cells: Sequence[Cell]) -> Figure | None:
    """A panel per problem and optimizer whose momentum was varied; None without any."""
    panels = []
    for (problem, base), group in group_by(cells, "problem", "base").items():
        for rule in OURS:
            differences = momentum_differences(group, rule)
            if len({beta for _, beta in differences}) > 1:
                panels.append(_panel(f"{BASES.get(base, base)}, {problem}, {rule}", differences))
    if not panels:
        return None
    pairs = [panels[i : i + 2] for i in range(0, len(panels), 2)]
    return Figure(
        slug="heatmap",
        title="Where adapting helps: initial rate times momentum",
        sentence="Final training accuracy of the adapted minus that of the fixed rate, in points of "
        "per cent, each the best over its seeds. Blue: adapting improved it; orange: it made it "
        "worse. A run that diverged counts as an accuracy of 0.",
        rows=pairs,
        x_label="initial rate η",
        y_label="momentum β",
        size=(360.0, 220.0),
        y_shared=False,
    )


def momentum_differences(cells: Sequence[Cell], rule: str) -> dict[Place, float]:
    """A rule's minus the fixed rate's training accuracy at every rate and momentum that both have."""
    sides: dict[str, dict[Place, float]] = {"fixed": {}, rule: {}}
    for cell in cells:
        beta = momentum_of(cell)
        if cell.column in sides and cell.has_ended and cell.rate and beta is not None:
            sides[cell.column].setdefault((cell.rate, beta), cell.best_seed(METRIC) or 0.0)
    both = sides["fixed"].keys() & sides[rule].keys()
    return {place: sides[rule][place] - sides["fixed"][place] for place in sorted(both)}


def momentum_of(cell: Cell) -> float | None:
    """The momentum that a cell was given, or its optimizer's own; None if it has none."""
    value: Any = cell.options.get(MOMENTUM.get(cell.base, ""))
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    if value is None and cell.base in ("adam", "adamw", "nadam"):
        return 0.9  # torch's default, which a record without the setting used
    return number(value)


def _spell_points(difference: float) -> str:
    points = round(100 * difference, 0)
    return f"{points:+.4g}" if points else "0"


def _panel(title: str, differences: dict[Place, float]) -> Panel:
    rates = sorted({rate for rate, _ in differences})
    betas = sorted({beta for _, beta in differences})
    tiles = [
        Tile(
            column=rates.index(rate),
            row=betas.index(beta),
            colour=tile_colour(2 * difference),  # half of the range is as strong as it gets
            text=_spell_points(difference),
            name=f"η {spell(rate)}, β {spell(beta)}",
        )
        for (rate, beta), difference in differences.items()
    ]
    names = [spell(rate) for rate in rates], [spell(beta) for beta in betas]
    return Panel(title, Axis(0, 1), Axis(0, 1), (), tiles, "plain", *names)

"""Where the algorithm fails if it is taken literally: a parabola in one dimension shows it.

No library code runs here: the loop is Algorithm 1 for SGD, as printed or as meant.
"""

from dataclasses import dataclass

import numpy as np

from probstep.bench.report.drawing.chart import Figure, Line, Panel
from probstep.bench.report.drawing.colours import PALETTE
from probstep.drawing.axes import Axis, fit_axis

STEPS = 200
START, RATE = 2.0, 0.05


@dataclass(frozen=True)
class Course:
    """What a run of Algorithm 1 did: the distance to the minimum's value and the rate, by step."""

    excess: list[float]
    rates: list[float]


def follow(*, misprinted: bool = False, single: bool = False, guarded: bool = False) -> Course:
    """Run Algorithm 1 on f(x) = 1 + x²/2.

    Args:
        misprinted: Take the decrease as f - phi/2, as the listing has it, instead of phi/2.
        single: Compute in single precision.
        guarded: Leave the rate where the predicted decrease is below the rounding of the loss.

    >>> follow().excess[-1] < 1e-12 < follow(misprinted=True).excess[-1]
    True
    >>> follow(single=True).rates[-1] < 1e-20 < follow(single=True, guarded=True).rates[-1]
    True
    """
    number = np.float32 if single else np.float64
    x, rate = number(START), number(RATE)
    one, half = number(1), number(0.5)
    excess, rates = [], []
    for _ in range(STEPS):
        excess.append(float(half * x * x))
        rates.append(float(rate))
        loss, gradient = one + half * x * x, x
        step = rate * gradient
        slope = gradient * step
        if half * slope == 0:
            break
        decrease = loss - half * slope if misprinted else half * slope
        x = x - number(2) * decrease / slope * step
        ratio = (loss - (one + half * x * x)) / (half * slope)
        if guarded and half * slope <= np.finfo(number).eps * loss:
            continue
        rate = rate * number(1.2 if ratio > 4 / 3 else 0.5 if ratio < 3 / 4 else 1.0)
    return Course(excess, rates)


def draw_misprint() -> Figure:
    """The listing's decrease against the one that is meant."""
    courses = {"as meant, φ/2": follow(), "as printed, f - φ/2": follow(misprinted=True)}
    lines = [
        Line(name, list(range(len(c.excess))), c.excess, colour, width=1.6)
        for (name, c), colour in zip(courses.items(), (PALETTE[0], PALETTE[1]), strict=True)
    ]
    return _figure(
        "misprint",
        "With the misprint of the listing the loss never settles (orange); with what is meant it "
        "does (blue).",
        Panel("f(x) = 1 + x²/2", Axis(0, STEPS), Axis(1e-16, 1e4, "log"), lines),
        "loss above its minimum",
        lines,
    )


def draw_rounding() -> Figure:
    """The rate once the loss no longer shows its steps."""
    courses = {"literally": follow(single=True), "with a guard": follow(single=True, guarded=True)}
    lines = [
        Line(name, list(range(len(c.rates))), c.rates, colour, width=1.6)
        for (name, c), colour in zip(courses.items(), (PALETTE[1], PALETTE[0]), strict=True)
    ]
    y = fit_axis([rate for line in lines for rate in line.ys if rate], "log")
    return _figure(
        "rounding",
        "In single precision the steps near the minimum do not show in the loss: taken literally, the "
        "rule halves the rate for ever (orange).",
        Panel("f(x) = 1 + x²/2, single precision", Axis(0, STEPS), y, lines),
        "rate",
        lines,
    )


def _figure(slug: str, sentence: str, panel: Panel, y_label: str, lines: list[Line]) -> Figure:
    legend = [Line(line.name, (), (), line.colour, width=2.0) for line in lines]
    title = "Algorithm 1 taken literally"
    return Figure(slug, title, sentence, [[panel]], "step", y_label, legend, size=(310.0, 150.0))

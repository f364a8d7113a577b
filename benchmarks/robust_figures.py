"""The figures of the robust rule's pages."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from robust_results import BASES, Cell, Result, geometric

FIGURES = Path(__file__).parent.parent / "docs" / "figures"


def draw(results: list[Result], cells: list[Cell]) -> None:
    mpl.use("svg")
    # The same bytes for the same records.
    mpl.rcParams.update({"svg.hashsalt": "probstep", "font.size": 9})
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    FIGURES.mkdir(exist_ok=True)
    draw_gauge()
    draw_rates(results)
    draw_cells(cells)


def save(figure: Any, file: str) -> None:
    figure.savefig(FIGURES / file, metadata={"Date": None}, bbox_inches="tight", facecolor="white")
    plt.close(figure)


STEPS = {0.15: "too short", 1.0: "the line's minimum", 4 / 3: "the target", 2.0: "nothing gained"}


def draw_gauge() -> None:
    """Four step lengths on one parabola, and where the ratio's needle stands for each."""
    figure, axes = plt.subplots(2, 4, figsize=(9, 3.4), height_ratios=[2, 1.2])
    x = np.linspace(0, 2.1, 200)
    for (above, below), (length, word) in zip(axes.T, STEPS.items(), strict=True):
        ratio = 2 - length
        above.plot(x, parabola(x), color="tab:blue")
        above.plot([0, length], [1, 1 - length], color="tab:gray", linestyle=":")
        above.plot([0, length], [1, parabola(length)], "o", color="black", markersize=4)
        above.set(xticks=[], yticks=[], ylim=(-1.1, 1.2), title=f"r = {ratio:.2g}\n{word}")
        draw_dial(below, ratio)
    axes[0, 0].set_ylabel("loss of the batch")
    axes[0, 0].set_xlabel("along the step")
    save(figure, "gauge.svg")


def parabola(x: Any) -> Any:
    """The loss along a step: slope 2 at its start, minimum at 1."""
    return 1 - 2 * x + x**2


def draw_dial(axis: Any, ratio: float) -> None:
    angles = np.linspace(np.pi, 0, 100)
    axis.plot(np.cos(angles), np.sin(angles), color="tab:gray")
    for mark in (2, 1, 2 / 3, 0):
        x, y = np.cos(np.pi * mark / 2), np.sin(np.pi * mark / 2)
        axis.plot([0.9 * x, x], [0.9 * y, y], color="tab:gray")
        axis.text(1.2 * x, 1.15 * y, f"{mark:.2g}", ha="center", va="center", fontsize=7)
    at = np.pi * ratio / 2
    axis.plot([0, 0.85 * np.cos(at)], [0, 0.85 * np.sin(at)], color="tab:red", linewidth=2)
    axis.set(xlim=(-1.5, 1.5), ylim=(-0.1, 1.4), aspect="equal")
    axis.axis("off")


def draw_rates(results: list[Result]) -> None:
    """The final loss over the initial rate: fixed, the paper's rule, the robust rule."""
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True)
    for axis, base in zip(axes, ("sgd", "momentum", "adam"), strict=True):
        lines = {"fixed": base, "paper": f"probstep_{base}", "robust": f"robust_{base}"}
        for (word, method), color in zip(
            lines.items(), ("tab:gray", "tab:orange", "tab:blue"), strict=True
        ):
            groups = defaultdict(list)
            for r in results:
                is_meant = word != "paper" or base == "sgd" or uses_default_momentum(r)
                is_shown = r.problem == "digits_mlp" and r.epochs == 20 and r.schedule == "constant"
                if is_shown and is_meant and r.method == method:
                    groups[r.rate].append(min(r.final, 1e4))
            rates = sorted(groups)
            losses = [geometric(groups[rate]) for rate in rates]
            axis.loglog(rates, losses, "o-", color=color, label=word, markersize=3)
        axis.set(title=base, xlabel="initial rate")
    axes[0].set_ylabel("final training loss")
    lines = axes[0].get_legend_handles_labels()
    figure.legend(*lines, frameon=False, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.1))
    save(figure, "rates.svg")


def uses_default_momentum(r: Result) -> bool:
    return r.settings.get("momentum") == 0.9 or r.settings.get("betas") == [0.9, 0.999]


def draw_cells(cells: list[Cell]) -> None:
    """Every cell's ratio, tuning half and held-out half."""
    chosen = [c for c in cells if c.schedule == "constant" and c.rate == 1e-3]
    places = sorted({(c.half != "tuning", c.place) for c in chosen}, key=str)
    figure, axis = plt.subplots(figsize=(7.5, 0.3 * len(places) + 0.8))
    markers = dict(zip(BASES, "os^vDX", strict=True))
    for base in BASES:
        own = [c for c in chosen if c.base == base]
        points = [(c.ratio, places.index((c.half != "tuning", c.place))) for c in own]
        axis.plot(*zip(*points, strict=True), markers[base], label=base, markersize=5, alpha=0.75)
    axis.axvline(1, color="tab:gray", linewidth=1)
    axis.axvline(1.5, color="tab:gray", linewidth=1, linestyle=":")
    labels = [f"{place}{'' if is_held_out else ' (tuning)'}" for is_held_out, place in places]
    axis.set(xscale="log", xlabel="final training loss over the best fixed rate's")
    axis.set(yticks=range(len(places)), yticklabels=labels)
    axis.set_xticks([0.2, 0.5, 1, 2, 5], labels=["0.2", "0.5", "1", "2", "5"])
    axis.minorticks_off()
    axis.invert_yaxis()
    axis.legend(frameon=False, ncols=6, loc="lower center", bbox_to_anchor=(0.4, 1), fontsize=8)
    save(figure, "cells.svg")

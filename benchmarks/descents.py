"""Descents of small functions without noise, from many starts: the rule, and the rule without parts.

    python -m benchmarks.descents     # a quarter of an hour of one core

A line of benchmarks/records/descents.jsonl is one descent of 500 steps: the value at the start, and at
the end with the plain optimizer at its usual rate and with ours. Lines that are there stay; begin with a
new file when the rule has changed. In the end the table goes to docs/robust-rule.md. The whole rule is
tried with four optimizers. The parts that are for training without noise are left out with SGD alone,
with and without momentum.
"""

import json
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer, RMSprop

from probstep import ProbStep, RobustRule

from .hazards.flat import beale, rosenbrock, wood

RECORDS = Path(__file__).parent / "records" / "descents.jsonl"
PAGE = Path(__file__).parents[1] / "docs" / "robust-rule.md"
BEGIN, END = "<!-- descents: begin -->\n\n", "\n<!-- descents: end -->"
SEEDS, STEPS, SPREAD = 12, 500, 1.3
FLOOR, FAILED = 0.01, 1.5  # as for hazards
PARTS = (
    *("", "smooth", "rises", "explosion", "caution", "shortening", "restraint", "wall", "pace"),
    "regain",
)
Start = Callable[[list[nn.Parameter]], Optimizer]


def himmelblau(at: Tensor) -> Tensor:
    x, y = at
    return (x**2 + y - 11) ** 2 + (x + y**2 - 7) ** 2


def booth(at: Tensor) -> Tensor:
    x, y = at
    return (x + 2 * y - 7) ** 2 + (2 * x + y - 5) ** 2


def product_of_four(at: Tensor) -> Tensor:
    return (at.prod() - 1) ** 2


def quartic(at: Tensor) -> Tensor:
    return (at**4).sum()


def kinks(at: Tensor) -> Tensor:
    return (at.abs() * torch.tensor([1.0, 10.0])).sum()


def log_cosh(at: Tensor) -> Tensor:
    return (at * torch.tensor([1.0, 20.0])).cosh().log().sum()


def powell(at: Tensor) -> Tensor:
    a, b, c, d = at
    return (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4


def steep_sides(at: Tensor) -> Tensor:
    x, y = at
    return x.exp() + (-x).exp() - 2 + 50 * (y - x) ** 2


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    function.__name__: (function, dimensions)
    for function, dimensions in (
        (rosenbrock, 2),
        (beale, 2),
        (wood, 4),
        (himmelblau, 2),
        (booth, 2),
        (product_of_four, 4),
        (quartic, 3),
        (kinks, 2),
        (log_cosh, 2),
        (powell, 4),
        (steep_sides, 2),
    )
}
SGDS: dict[str, Start] = {
    "sgd": lambda params: SGD(params, lr=1e-3),
    "momentum": lambda params: SGD(params, lr=1e-3, momentum=0.9),
}
OTHERS: dict[str, Start] = {
    "adam": lambda params: Adam(params, lr=1e-2),
    "rmsprop": lambda params: RMSprop(params, lr=1e-2),
}


def descend(
    function: Callable[[Tensor], Tensor], start: Tensor, base: Start, part: str | None
) -> Any:
    """Return the value at the end, None if it is not finite; without a part name, plainly."""
    at = nn.Parameter(start.clone())
    optimizer = base([at])
    if part is not None:
        optimizer = ProbStep(optimizer, RobustRule(without=frozenset(filter(None, [part]))))

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = function(at)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    for _ in range(STEPS):
        optimizer.step(closure)  # type: ignore[arg-type]
    end = function(at).item()
    return end if math.isfinite(end) else None


def descents(part: str) -> Iterator[dict[str, Any]]:
    """Yield what each descent is called."""
    for base in SGDS if part else {**SGDS, **OTHERS}:
        for seed in range(SEEDS):
            for name in FUNCTIONS:
                yield {"part": part, "base": base, "function": name, "seed": seed}


def measure(run: dict[str, Any]) -> dict[str, Any]:
    function, dimensions = FUNCTIONS[run["function"]]
    drawn = torch.Generator().manual_seed(
        1000 * list(FUNCTIONS).index(run["function"]) + run["seed"]
    )
    start = SPREAD * torch.randn(dimensions, generator=drawn)
    base = {**SGDS, **OTHERS}[run["base"]]
    plain, ours = (descend(function, start, base, part) for part in (None, run["part"]))
    return {**run, "first": function(start).item(), "plain": plain, "ours": ours}


def ratio(line: dict[str, Any]) -> float:
    """Return the end with ours over the plain one's, both floored at a part of the start."""
    if line["ours"] is None:
        return math.inf
    if line["plain"] is None:
        return 0.0
    floor = FLOOR * line["first"]
    return float(max(line["ours"], floor) / max(line["plain"], floor))


def table(lines: list[dict[str, Any]]) -> str:
    """Return how many descents end above the bar, for every part that is left out."""
    rows = [
        "| without | optimizers | descents | above 1.5 times plain | worst |",
        "| --- " * 5 + "|",
    ]
    for part in PARTS:
        for bases in (SGDS, OTHERS):
            found = [ratio(x) for x in lines if x["part"] == part and x["base"] in bases]
            if found:
                names = " and ".join(bases)
                failed = sum(r > FAILED for r in found)
                worst = f"{max(found):.3g}" if max(found) < math.inf else "not finite"
                label = f"`{part}`" if part else "nothing"
                rows.append(f"| {label} | {names} | {len(found)} | {failed} | {worst} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    RECORDS.touch()
    lines = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    done = {(x["part"], x["base"], x["function"], x["seed"]) for x in lines}
    for part in PARTS:
        for run in descents(part):
            if tuple(run[key] for key in ("part", "base", "function", "seed")) not in done:
                lines.append(measure(run))
                with RECORDS.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
        print(part or "the whole rule", flush=True)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + table(lines) + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()

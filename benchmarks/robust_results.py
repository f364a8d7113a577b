"""The results of the plan `robust`: a line per run, the best fixed rates, and the cells between them."""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from probstep.bench.problems import PROBLEMS
from probstep.bench.records import Record, read_records

RECORDS = Path(__file__).parent / "records" / "robust.jsonl"
TUNING = {
    "digits_mlp",
    "fmnist_logreg",
    "regression",
    "digits_autoencoder",
    "fmnist_mlp, batch 512",
}
BASES = ("sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw")


@dataclass(frozen=True)
class Result:
    """What is kept of a run."""

    problem: str
    batch_size: int | None
    method: str
    rate: float | None
    seed: int
    epochs: int
    settings: dict[str, Any]
    status: str
    steps: int
    train_loss: list[float | None]
    forward_passes: list[int]
    test_accuracy: float | None
    effective_rate: float | None
    commit: str | None

    @property
    def final(self) -> float:
        """The last training loss; infinite where it was not finite."""
        loss = self.train_loss[-1]
        return math.inf if self.status != "done" or loss is None else loss

    @property
    def place(self) -> str:
        """The problem, with its batch size where that is not the problem's own."""
        own = PROBLEMS[self.problem].batch_size
        is_own = self.batch_size in (None, own)
        return self.problem if is_own else f"{self.problem}, batch {self.batch_size}"

    @property
    def schedule(self) -> str:
        return self.settings.get("schedule", "constant")


# Records in, results out


def collect(out: str) -> None:
    lines = []
    for records in read_records(out):
        last = records[-1]
        if last.is_final:
            lines.append(json.dumps(summarise(records), sort_keys=True))
    RECORDS.parent.mkdir(exist_ok=True)
    RECORDS.write_text("\n".join(sorted(lines)) + "\n")
    print(f"{len(lines)} runs in {RECORDS}")


def summarise(records: list[Record]) -> dict[str, Any]:
    last = records[-1]
    run = last.run
    return {
        "problem": run.problem,
        "batch_size": run.batch_size,
        "method": run.method,
        "rate": run.rate,
        "seed": run.seed,
        "epochs": run.epochs,
        "settings": run.settings,
        "status": last.status,
        "steps": last.steps,
        "train_loss": [short(record.train_loss) for record in records],
        "forward_passes": [record.forward_passes for record in records],
        "test_accuracy": short(last.test_accuracy),
        "effective_rate": short(last.effective_rate),
        "commit": last.commit,
    }


def short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def read() -> list[Result]:
    return [Result(**json.loads(line)) for line in RECORDS.read_text().splitlines()]


# Cells


def geometric(values: Iterable[float]) -> float:
    values = list(values)
    if not all(map(math.isfinite, values)):
        return math.inf
    return math.exp(statistics.fmean(math.log(max(v, 1e-300)) for v in values))


def quantile(values: Iterable[float], q: float) -> float:
    """The q-quantile, interpolated."""
    values = sorted(values)
    at = q * (len(values) - 1)
    low, high = values[math.floor(at)], values[math.ceil(at)]
    return low + (at - math.floor(at)) * (high - low)


@dataclass(frozen=True)
class Best:
    """The best fixed rate of a grid."""

    rate: float
    loss: float
    accuracy: float | None
    at_edge: bool


class Grid:
    """The fixed rates of every cell, and the best of them."""

    def __init__(self, results: list[Result]) -> None:
        by_rate = defaultdict(lambda: defaultdict(list))
        for result in results:
            if result.method in BASES:
                key = (result.place, result.epochs, result.schedule, result.method)
                by_rate[key][result.rate].append(result)
        self.best = {key: self._choose(rates) for key, rates in by_rate.items()}

    @staticmethod
    def _choose(rates: dict[float, list[Result]]) -> Best:
        most = max(map(len, rates.values()))
        losses = {e: geometric(r.final for r in rs) for e, rs in rates.items() if len(rs) == most}
        rate = min(losses, key=losses.get)
        accuracies = [r.test_accuracy for r in rates[rate] if r.test_accuracy is not None]
        return Best(
            rate,
            losses[rate],
            statistics.fmean(accuracies) if accuracies else None,
            rate in (min(losses), max(losses)),
        )


@dataclass(frozen=True)
class Cell:
    """A problem and an optimizer: ours from one initial rate against the best fixed one."""

    place: str
    base: str
    schedule: str
    rate: float
    loss: float
    ratio: float
    accuracy: float | None  # ours minus the best fixed rate's, in points
    best: Best
    worst_seed: float

    @property
    def half(self) -> str:
        return "tuning" if self.place in TUNING else "held out"


def make_cells(results: list[Result], grid: Grid) -> list[Cell]:
    groups = defaultdict(list)
    for result in results:
        if result.method.startswith("robust_"):
            base = result.method.removeprefix("robust_")
            key = (result.place, result.epochs, result.schedule, base)
            if key in grid.best:
                groups[key, result.rate].append(result)
    return [make_cell(key, rate, runs, grid.best[key]) for (key, rate), runs in groups.items()]


def make_cell(key: tuple[str, int, str, str], rate: float, runs: list[Result], best: Best) -> Cell:
    place, _, schedule, base = key
    loss = geometric(r.final for r in runs)
    accuracies = [r.test_accuracy for r in runs if r.test_accuracy is not None]
    points = 100 * (statistics.fmean(accuracies) - best.accuracy) if accuracies else None
    worst = max(r.final for r in runs) / best.loss
    return Cell(place, base, schedule, rate, loss, loss / best.loss, points, best, worst)

"""The records as evidence: which cell is of which way to set a rate, and how well it ended."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from probstep.bench.problems import PROBLEMS
from probstep.bench.records import Record, read_curves
from probstep.bench.report.numbers.cells import Cell, make_cells
from probstep.bench.report.numbers.histories import make_history

RECORDS = ("paper-small.jsonl.gz", "paper_cost.jsonl", "paper-beside.jsonl.gz")
FIXED, OURS, OURS_09, HYPER, L4 = "fixed", "paper's rule", "paper's rule, β 0.9", "HD", "L4"
NOISE, BOUND, BOTH, DOUBLING = "R", "f*", "f* and R", "every 2^i-th epoch"
ROBUST, SCHEDULE_FREE, PRODIGY, MOMO = "RobustRule", "Schedule-Free", "Prodigy", "MoMo"
COLUMNS = {"fixed": FIXED, "hypergradient": HYPER, "L4": L4, "default rule": ROBUST}
NEWER = (ROBUST, SCHEDULE_FREE, PRODIGY, MOMO)  # what came after the paper
PEERS = {
    "schedulefree_adamw": SCHEDULE_FREE,
    "prodigy": PRODIGY,
    "momo_adam": MOMO,
    "momo": MOMO,
}
BASES = {
    "sgd": "SGD",
    "momentum": "Momentum",
    "adam": "Adam",
    "rmsprop": "RMSprop",
    "adagrad": "Adagrad",
}
# The rows of the paper's Fig. 3 and of its supplement; what stands in for the two largest nets.
NETS = {
    "fmnist_logreg": "fmnist_logreg",
    "fmnist_mlp": "fmnist_mlp",
    "fmnist_2c2d": "fmnist_2c2d",
    "cifar10_3c3d": "cifar10_3c3d",
    "svhn_wrn164_narrow": "svhn_wrn164",
    "cifar100_resnet18_narrow": "cifar100_resnet18",
}
GENTLE = {"momentum": 0.5, "betas": [0.5, 0.999]}  # what the paper gives to its own method
USUAL = {"momentum": 0.9, "betas": [0.9, 0.999]}
ENOUGH = 0.5  # a run has trained if it ends with this share of the best accuracy on its problem
CLOSE = 0.05  # and is close to the best within so much accuracy
LEARNT = 1 / 3  # a net can judge if its best fixed rate goes this share of the way to no mistake
HEAVY = 0.9  # momentum from which on the paper's heat map is no longer green
SMALL, LARGE = 1e-3, 0.1  # initial rates up to which, and from which on, the paper speaks of each


@dataclass(frozen=True)
class End:
    """How a cell on one of the paper's nets ended.

    Args:
        rate: The initial rate; of Prodigy, which has none, its first guess.
        accuracy: The final training accuracy; 0 where the run diverged.
    """

    problem: str
    base: str
    way: str
    rate: float
    accuracy: float
    cell: Cell = field(repr=False)

    @property
    def has_diverged(self) -> bool:
        """Whether its loss was not finite."""
        return self.cell.has_diverged


@dataclass(frozen=True)
class Origin:
    """What made the records: software, commits and hours of training.

    Args:
        keys: Which runs these are.
        sizes: How many samples each split of a problem has.
    """

    keys: frozenset[str] = frozenset()
    torch: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    hours: float = 0.0
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """All that the page is made from.

    Args:
        cells: The records of the plan.
        costs: The lines that benchmarks/paper_cost.py has measured.
        origin: What made the records.
        beside: The records of what came after the paper, which no verdict looks at.
        beside_origins: What made those, by the way to set a rate.
    """

    cells: Sequence[Cell]
    costs: Sequence[dict[str, Any]] = ()
    origin: Origin = field(default_factory=Origin)
    beside: Sequence[Cell] = ()
    beside_origins: Mapping[str, Origin] = field(default_factory=dict)

    @cached_property
    def ends(self) -> list[End]:
        """The ends of all runs on the paper's nets."""
        return list(_ends(self.cells))

    @cached_property
    def best(self) -> dict[str, float]:
        """The best training accuracy that anything reached on each net."""
        best: dict[str, float] = {}
        for end in self.ends:
            best[end.problem] = max(best.get(end.problem, 0.0), end.accuracy)
        return best

    @cached_property
    def learnt(self) -> dict[str, float]:
        """How far the best fixed rate comes on each net: 0 is the untrained net, 1 no mistake."""
        ways: dict[str, list[float]] = {}
        for end in self.choose(FIXED):
            before = end.cell.curve("train_accuracy")[1][0] or 0.0
            ways.setdefault(end.problem, []).append((end.accuracy - before) / (1 - before))
        return {problem: max(ways[problem]) for problem in NETS if problem in ways}

    @cached_property
    def judging(self) -> "Evidence":
        """What is on nets that a fixed rate can train in the time: on the others nothing shows."""
        nets = {problem for problem, way in self.learnt.items() if way >= LEARNT}
        return replace(self, cells=[cell for cell in self.cells if cell.run.problem in nets])

    def choose(self, *ways: str, bases: Iterable[str] = BASES) -> list[End]:
        """The ends of some ways to set a rate."""
        chosen = frozenset(bases)
        return [end for end in self.ends if end.way in ways and end.base in chosen]

    def has_trained(self, end: End) -> bool:
        """Whether a run ends with an accuracy of the best's order."""
        return end.accuracy >= ENOUGH * self.best[end.problem]

    def is_close(self, end: End) -> bool:
        """Whether a run ends near the best on its net."""
        return end.accuracy >= self.best[end.problem] - CLOSE

    @cached_property
    def best_fixed(self) -> dict[tuple[str, str], float]:
        """The best training accuracy of a fixed rate, by net and optimizer."""
        best: dict[tuple[str, str], float] = {}
        for end in self.choose(FIXED):
            key = end.problem, end.base
            best[key] = max(best.get(key, 0.0), end.accuracy)
        return best

    def is_close_to_fixed(self, end: End) -> bool:
        """Whether a run ends near, or above, the best fixed rate of its own optimizer."""
        return end.accuracy >= self.best_fixed.get((end.problem, end.base), 0.0) - CLOSE

    def with_beside(self) -> "Evidence":
        """All of it, with what came after the paper among the rest."""
        return replace(self, cells=[*self.cells, *self.beside], beside=())

    def pair(self, usual: str, other: str) -> list[tuple[End, End]]:
        """The ends of two ways on the same net, with the same optimizer and initial rate."""
        found = {(e.problem, e.base, e.rate): e for e in self.choose(usual)}
        ends = self.choose(other)
        return [(found[k], e) for e in ends if (k := (e.problem, e.base, e.rate)) in found]

    def on(self, problem: str) -> list[Cell]:
        """The cells of a problem."""
        return [cell for cell in self.cells if cell.run.problem == problem]


def from_same_starts(ends: Sequence[End]) -> dict[str, list[End]]:
    """The ends by way, of what all ways have on record: net, optimizer and initial rate.

    Shares of what different ways reach can only be compared over the same starts.
    """
    ways = {way: [e for e in ends if e.way == way] for way in dict.fromkeys(e.way for e in ends)}
    starts = [{(e.problem, e.base, e.rate) for e in group} for group in ways.values()]
    shared = set.intersection(*starts) if starts else set()
    return {
        way: [e for e in group if (e.problem, e.base, e.rate) in shared]
        for way, group in ways.items()
    }


def read_evidence(folder: Path) -> Evidence:
    """The evidence in a folder of records."""
    records, costs, beside = (folder / name for name in RECORDS)
    runs, others = read_curves(records), read_curves(beside)
    lines = costs.read_text(encoding="utf-8").splitlines()
    return Evidence(
        make_cells([make_history(run) for run in runs]),
        [json.loads(line) for line in lines],
        _origin([run[-1] for run in runs]),
        make_cells([make_history(run) for run in others]),
        _origins([run[-1] for run in others]),
    )


def find_way(cell: Cell) -> str | None:
    """Which of the ways to set a rate a cell follows; None for what is on no figure."""
    if cell.column != "paper's rule":
        return PEERS.get(cell.method, COLUMNS.get(cell.column))
    options = {k: v for k, v in cell.options.items() if GENTLE.get(k) != _plain(v)}
    has_noise = options.pop("noise", None) == "samples"
    has_bound = options.pop("lower_bound", None) is not None
    if options == {"doubling_epochs": True}:
        return DOUBLING
    if options and all(USUAL.get(k) == _plain(v) for k, v in options.items()):
        return OURS_09 if not has_noise and not has_bound else None
    if options:
        return None
    return {(0, 0): OURS, (1, 0): NOISE, (0, 1): BOUND, (1, 1): BOTH}[has_noise, has_bound]


def _ends(cells: Iterable[Cell]) -> Iterator[End]:
    for cell in cells:
        problem, way = cell.run.problem, find_way(cell)
        if problem in NETS and way and cell.has_ended and cell.rate:
            accuracy = cell.final("train_accuracy") or 0.0
            base = {"adamw": "adam"}.get(cell.base, cell.base)
            rate = cell.options["d0"] if way == PRODIGY else cell.rate
            yield End(problem, base, way, rate, accuracy, cell)


def _origins(ends: Sequence[Record]) -> dict[str, Origin]:
    ways = {way: [e for e in ends if PEERS.get(e.run.method, ROBUST) == way] for way in NEWER}
    return {way: _origin(group) for way, group in ways.items() if group}


def _origin(ends: Sequence[Record]) -> Origin:
    return Origin(
        keys=frozenset(end.run.key for end in ends),
        torch=tuple(sorted({end.versions["torch"] for end in ends if "torch" in end.versions})),
        commits=tuple(sorted({end.commit for end in ends if end.commit})),
        hours=sum(end.time.get("training_seconds", 0.0) for end in ends) / 3600,
        sizes={end.run.problem: end.sizes for end in ends if end.sizes},
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def paper_problem(problem: str) -> Any:
    """The paper's own problem, which a narrow net stands in for."""
    return PROBLEMS[NETS[problem]]

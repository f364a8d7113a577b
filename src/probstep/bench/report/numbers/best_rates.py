"""The best fixed rates of a problem and an optimizer, over some seeds of the plan `robust`."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from probstep.bench.means import geometric_mean
from probstep.bench.problems import PROBLEMS
from probstep.bench.report.numbers.cells import floored
from probstep.bench.report.numbers.histories import History

# The problems on which constants are chosen; the others are held out.
TUNING = frozenset({"digits_mlp", "fmnist_logreg", "regression", "digits_autoencoder"})

Pair = tuple[str, str]  # problem and method


@dataclass(frozen=True)
class Best:
    """The best fixed rates of a pair: several where the loss is at its floor.

    Args:
        rates: The rates.
        loss: The loss there, a geometric mean over seeds.
        first: The loss of the untrained model, by seed.
    """

    rates: tuple[float, ...]
    loss: float
    first: Mapping[int, float]

    @property
    def middle(self) -> float:
        """The geometric mean of the lowest and the highest of them."""
        return geometric_mean([min(self.rates), max(self.rates)])


def half_of(pair: Pair) -> str:
    """Whether constants were chosen on it.

    >>> half_of(("digits_mlp", "sgd")), half_of(("digits_conv", "sgd"))
    ('tuning', 'held out')
    """
    return "tuning" if pair[0] in TUNING else "held out"


def find_best_rates(
    pairs: Collection[Pair], histories: Iterable[History], seeds: Collection[int]
) -> dict[Pair, Best]:
    """The best fixed rates of each pair: of those that have all seeds, those of the lowest mean loss."""
    losses: dict[tuple[Pair, float], dict[int, float]] = defaultdict(dict)
    first: dict[Pair, dict[int, float]] = defaultdict(dict)
    for history in histories:
        run, pair = history.run, (history.run.problem, history.run.method)
        is_fixed = "schedule" not in run.settings
        is_usual = is_fixed and run.batch_size in (None, PROBLEMS[run.problem].batch_size)
        if pair in pairs and is_usual and run.seed in seeds and run.rate is not None:
            first[pair][run.seed] = history.scores["train_loss"][0]
            loss = floored(history, "train_loss")
            if history.status == "done" and loss is not None:
                losses[pair, run.rate][run.seed] = loss
    means: dict[Pair, dict[float, float]] = defaultdict(dict)
    for (pair, rate), found in losses.items():
        if found.keys() == set(seeds):
            means[pair][rate] = geometric_mean(list(found.values()))
    return {pair: _best_of(by_rate, first[pair]) for pair, by_rate in means.items()}


def _best_of(means: Mapping[float, float], first: Mapping[int, float]) -> Best:
    least = min(means.values())
    return Best(tuple(rate for rate, mean in means.items() if mean == least), least, first)

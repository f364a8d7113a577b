"""Rates that race: which of them are tried, when one has lost, and what their losses say of the best.

A race is a short training at one rate. How it is run is the caller's: here it is only what gives the
mean loss of one round after another. Rates are told by their decimal logarithms, here called places.
"""

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

Run = Callable[[float], Iterator[float]]

COARSE, FINE = 0.5, 0.25  # between neighbours that race, in decades: at first, and beside the best
FARTHEST = 2.0  # decades from where the races begin
LOST = math.log(2.0)  # behind the best in the same round, as logarithms of losses
SURE = 5.0  # what a loss that is not finite is behind
LATER = 0.5  # of a round after a race: there the rates are compared; single rounds are noisy
FLOOR = 0.01  # of the loss at the start: a lower one is as good
LITTLE = 0.05  # of a loss: a fall, or a difference, that shows nothing
# What a rate ten times as high may be behind after a race, and a still higher one, too: later in a
# training too high a rate is calmer, while too low a one stays slow.
FORGIVEN = 0.2
VAGUE = 0.1  # the differences of logarithms of losses that say little about the end of a training
BEYOND = 0.5  # the deviation of a first guess, in decades
STEEP = 1.0  # what a rate ten times farther out than all that raced is behind these, at least
POINTS = 40  # of a posterior in one decade


class Races:
    """The races that were run, and what is left of the loss after each.

    Args:
        run: Runs a race at a place: gives the mean loss of one round after another. It is left alone
            as soon as the race is lost.
        start: The mean loss before.

    >>> races = Races(lambda place: iter([2.0, 1.0] if place < 0 else [2.0, 6.0]), start=2.0)
    >>> races.enter(0.0)
    >>> races.enter(-0.5)
    >>> {place: round(lag, 2) for place, lag in races.behind().items()}
    {-0.5: 0.0, 0.0: 1.79}
    """

    def __init__(self, run: Run, start: float) -> None:
        self._run, self._start = run, start
        self._means: dict[float, list[float]] = {}
        self._finished: set[float] = set()

    def enter(self, place: float) -> None:
        """Run the race at a place, unless it was run."""
        if place in self._means:
            return
        fastest, means = self._fastest, self._means.setdefault(place, [])
        for mean in self._run(place):
            means.append(mean if math.isfinite(mean) else math.inf)
            if self._lag(means, fastest) > LOST:
                return
        self._finished.add(place)

    @property
    def places(self) -> list[float]:
        """Where races were run, from the lowest to the highest."""
        return sorted(self._means)

    @property
    def leader(self) -> float | None:
        """The place that seems best for a longer training; None while all have lost."""
        left = {place: self._left(self._means[place][-1]) for place in self._finished}
        if not left:
            return None
        best = _highest_of_best(left)
        return min(left, key=lambda place: (left[place] - _forgiven(place, best), place))

    @property
    def has_shown_little(self) -> bool:
        """Whether no race has brought the loss down visibly."""
        fastest = self._fastest
        return fastest is None or self._left(self._means[fastest][-1]) > math.log1p(-LITTLE)

    def behind(self) -> dict[float, float]:
        """Return how far each is likely to be behind a little later, as logarithms, by place.

        One that has finished falls back or catches up on the best as in its last round.
        """
        fastest, ahead = self._fastest, dict[float, float]()
        for place in self.places:
            means = self._means[place]
            lag = self._lag(means, fastest)
            before = self._lag(means[:-1], fastest) if len(means) > 1 else lag
            later = lag + LATER * (lag - before) if place in self._finished else lag
            ahead[place] = min(SURE, later)
        least = min(ahead.values())
        return {place: lag - least for place, lag in ahead.items()}

    @property
    def _fastest(self) -> float | None:
        return min(
            self._finished,
            key=lambda place: (self._left(self._means[place][-1]), place),
            default=None,
        )

    def _lag(self, means: Sequence[float], fastest: float | None) -> float:
        """Return how far a race is behind another, or behind the start, in its last round."""
        other = self._start if fastest is None else self._means[fastest][len(means) - 1]
        return self._left(means[-1]) - self._left(other)

    def _left(self, mean: float) -> float:
        """Return the logarithm of what is left of the loss at the start."""
        lowest = min(0.0, self._start, *itertools.chain.from_iterable(self._means.values()))
        left = (mean - lowest) / max(self._start - lowest, sys.float_info.min)
        return math.log(max(left, FLOOR))


def run_races(run: Run, start: float, centre: float) -> Races:
    """Run races around a place: farther out while the outermost leads, then beside the leader.

    Args:
        run: Runs a race at a place.
        start: The mean loss before.
        centre: Where to begin.

    >>> bowl = lambda place: iter([1.0, 0.5 + (place + 1) ** 2])
    >>> run_races(bowl, start=1.0, centre=0.0).places
    [-1.5, -1.25, -1.0, -0.75, -0.5, 0.0, 0.5]
    """
    races = Races(run, start)
    for place in (centre, centre + COARSE, centre - COARSE):
        races.enter(place)
    while (farther := _farther(races, centre)) is not None:
        races.enter(farther)
    if (leader := races.leader) is not None:
        for place in (leader + FINE, leader - FINE):
            races.enter(place)
    return races


def _farther(races: Races, centre: float) -> float | None:
    """Return where the next race is to be; None if the best lies between others."""
    lowest, *_, highest = races.places
    if races.leader == highest and highest < centre + FARTHEST:
        return highest + COARSE
    # Where no race brings the loss down, all rates may be too high.
    if (races.leader == lowest or races.has_shown_little) and lowest > centre - FARTHEST:
        return lowest - COARSE
    return None


def posterior(behind: Mapping[float, float], guess: float) -> tuple[list[float], list[float]]:
    """Return places and how likely the best is at each.

    A first guess, a Gaussian, is multiplied with what the races say.

    Args:
        behind: How far each race is behind, by place.
        guess: The place that is likely without them.

    >>> places, shares = posterior({-1.0: 1.0, 0.0: 0.0, 1.0: 5.0}, guess=0.0)
    >>> round(sum(shares), 6), -0.25 < sum(p * s for p, s in zip(places, shares)) < 0.25
    (1.0, True)
    """
    lowest, highest = min(behind), max(behind)
    count = round((highest - lowest + 2 * FARTHEST) * POINTS)
    places = [lowest - FARTHEST + k / POINTS for k in range(count + 1)]
    best = _highest_of_best(behind)
    logs = [
        (_forgiven(place, best) - _between(behind, place)) / VAGUE
        - ((place - guess) / BEYOND) ** 2 / 2
        for place in places
    ]
    most = max(logs)
    weights = [math.exp(log - most) for log in logs]
    return places, [weight / math.fsum(weights) for weight in weights]


def _highest_of_best(left: Mapping[float, float]) -> float:
    """Return the best place; of those that are as good, the highest."""
    least = min(left.values())
    return max(place for place, value in left.items() if value <= least + LITTLE)


def _forgiven(place: float, best: float) -> float:
    """Return what a rate may be behind the best; a lower one must be ahead."""
    return FORGIVEN * min(place - best, 1.0)


def _between(behind: Mapping[float, float], place: float) -> float:
    """Return a value on the line between the neighbours; farther out it is worse and worse."""
    places = sorted(behind)
    nearest = min(max(place, places[0]), places[-1])
    k = max(1, sum(known < nearest for known in places))
    left, right = places[k - 1], places[k]
    value = behind[left] + (behind[right] - behind[left]) * (nearest - left) / (right - left)
    return value + STEEP * abs(place - nearest)

"""Rates race until the best lies between others; what their losses say is a posterior."""

import math

import pytest

from probstep.racing import FARTHEST, Races, posterior, run_races


def bowl(best, log=lambda place: None):
    """Races whose losses are lowest at one place; lower rates change nothing at worst."""

    def run(place):
        log(place)
        for level in (1.0, 0.5, 0.25):
            mean = level * (1 + 9 * (place - best) ** 2)
            yield mean if place > best else min(mean, 2.0)

    return run


def middle(races, guess):
    places, shares = posterior(races.behind(), guess)
    return sum(place * share for place, share in zip(places, shares, strict=True))


@pytest.mark.parametrize("best", [-1.5, -0.25, 0.0, 0.75, 1.5])
def test_the_best_is_found_where_the_guess_is_off(best):
    races = run_races(bowl(best), start=2.0, centre=0.0)
    assert min(races.behind(), key=races.behind().get) == best
    assert middle(races, guess=0.0) == pytest.approx(best, abs=0.3)


def test_no_rate_races_twice_and_none_is_farther_than_allowed():
    seen = []
    run_races(bowl(-9.0, seen.append), start=2.0, centre=0.0)
    run_races(bowl(9.0, seen.append), start=2.0, centre=0.125)
    assert len(set(seen)) == len(seen)
    assert max(map(abs, seen)) <= FARTHEST + 0.5


def test_a_race_that_is_lost_is_not_run_to_its_end():
    rounds = []

    def run(place):
        for _ in range(4):
            rounds.append(place)
            yield 1.0 if place == 0.0 else 3.0

    races = Races(run, start=1.0)
    races.enter(0.0)
    races.enter(0.5)
    assert rounds == [0.0] * 4 + [0.5]
    assert races.behind() == {0.0: 0.0, 0.5: pytest.approx(math.log(3.0))}


@pytest.mark.parametrize("loss", [math.inf, math.nan])
def test_a_loss_that_is_not_finite_is_lost(loss):
    races = run_races(lambda place: iter([loss if place > -1 else 0.5]), start=1.0, centre=0.0)
    assert races.leader == -1.0
    assert middle(races, guess=0.0) < -0.75


def test_where_nothing_is_learned_lower_rates_are_tried():
    def dead_above(place):
        yield 0.999 if place > -1.25 else 0.5

    assert run_races(dead_above, start=1.0, centre=0.0).leader == -1.25


def test_among_equals_the_higher_rate_is_preferred():
    races = run_races(lambda place: iter([1.0 if place <= 0 else 99.0]), start=1.0, centre=-0.5)
    assert races.leader == 0.0


def test_a_race_that_catches_up_counts_for_where_it_will_be():
    means = {0.0: [1.0, 1.0], 0.5: [1.5, 1.1]}
    races = Races(lambda place: iter(means[place]), start=2.0)
    for place in means:
        races.enter(place)
    behind = races.behind()
    assert behind[0.5] == 0.0 < behind[0.0]


def test_the_unit_of_the_loss_does_not_matter():
    def scaled(factor):
        run = bowl(0.5)
        return run_races(lambda place: (factor * x for x in run(place)), 2.0 * factor, 0.0).behind()

    assert scaled(1.0) == scaled(1024.0)


def test_a_posterior_sums_to_one_and_goes_with_the_guess_where_races_say_nothing():
    flat = dict.fromkeys((-0.5, 0.0, 0.5), 0.0)
    low, high = (posterior(flat, guess) for guess in (-1.0, 1.0))
    assert sum(low[1]) == pytest.approx(1.0)
    means = [sum(p * s for p, s in zip(*one, strict=True)) for one in (low, high)]
    assert means[0] < means[1]

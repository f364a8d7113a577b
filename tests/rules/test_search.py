"""The search finds the order of magnitude of the rate, whatever the curvature, from any first length."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probstep.rules import Observation, Proposal
from probstep.rules.robust import search
from probstep.rules.robust.search import Search


def searched(loss_after, first):
    """Search a step with the slope 1 at rate 1; return the last rate, its bend, and the tries."""
    state, rate, tries = Search(), first, 0
    while not state.is_done:
        tries += 1
        step = Proposal(loss=1.0, slope=rate, rate=rate)
        after = loss_after(rate)
        bend = 2 - 2 * (1.0 - after) / rate if math.isfinite(after) else math.inf
        again = search.next_length(state, Observation(step, after, tries), bend)
        rate *= 1.0 if again is None else again
    return rate, bend, tries


@given(st.floats(-6, 6), st.floats(-6, 2))
def test_on_a_quadratic_it_ends_at_half_the_way_to_the_minimum_or_a_little_before(log_h, log_first):
    h = 10**log_h
    rate, bend, tries = searched(lambda e: 1.0 - e + h * e**2 / 2, first=10**log_first / h)
    assert 0.19 < rate * search.final_factor(bend, beta=0.0) * h < 0.51
    assert tries <= 12


@given(st.floats(-3, 3), st.floats(-9, 6))
def test_it_closes_in_on_a_cliff_from_both_sides(log_edge, log_first):
    edge = 10**log_edge
    straight = lambda e: 1.0 - e if e < edge else math.inf  # noqa: E731
    rate, _, tries = searched(straight, first=edge * 10**log_first)
    assert edge / search.GAP / 1.01 < rate < edge
    assert tries <= search.TRIES


@pytest.mark.parametrize("height", [1e-4, 1e-3])
@pytest.mark.parametrize("first", [1e-6, 3e-5])
def test_it_looks_beyond_stairs_that_a_short_step_does_not_leave(height, first):
    stairs = lambda e: 1.0 - height * math.floor(e / height) + 2.0 * e**2  # noqa: E731
    rate, bend, _ = searched(stairs, first)
    assert 0.1 < rate * search.final_factor(bend, beta=0.0) * 4.0 < 0.6


def test_where_longer_steps_are_no_better_it_goes_back_to_the_first_that_bent():
    minimum, visited = 1e-7, []

    def valley(e):
        visited.append(e)
        return 1.0 - e + e**2 / (2 * minimum)

    rate, *_ = searched(valley, first=1e-5)
    longest = max(visited)
    assert 0.9 * search.ROUGH < longest < 20 * search.ROUGH
    assert visited[visited.index(longest) + 1] == pytest.approx(1e-5)
    assert 0.1 * minimum < rate < 1.5 * minimum


def test_it_gives_up_after_as_many_tries_as_are_allowed():
    *_, tries = searched(lambda e: 1.0 - e, first=1e-30)  # no curvature at any length
    assert tries == search.TRIES


def test_the_first_length_changes_the_loss_by_as_much_as_is_visible():
    step = Proposal(loss=3.0, slope=0.2, resolution=1e-7)
    assert search.first_length(step) * step.slope == pytest.approx(search.VISIBLE * 1e-7)


def test_a_loss_without_rounding_still_has_a_first_length():
    assert search.first_length(Proposal(loss=1.0, slope=0.1)) > 0


@pytest.mark.parametrize("slope", [0.0, -1.0, math.nan, math.inf])
def test_without_a_slope_there_is_no_first_length(slope):
    assert search.first_length(Proposal(loss=1.0, slope=slope)) == 0.0


def test_momentum_pays_the_root():
    with_momentum, without = search.final_factor(0.7, beta=0.9), search.final_factor(0.7, beta=0.0)
    assert with_momentum == pytest.approx(math.sqrt(0.1) * without)


@pytest.mark.parametrize("bend", [math.nan, math.inf, -math.inf, 0.0, -1.0])
def test_a_last_bend_that_says_nothing_leaves_the_rate(bend):
    assert search.final_factor(bend, beta=0.9) == 1.0


def test_a_bend_of_the_first_length_is_looked_at_again_ten_times_longer():
    step = Proposal(loss=1.0, slope=0.5, rate=0.01)
    assert search.next_length(Search(), Observation(step, 0.7, tries=1), bend=0.5) == 10.0
    assert search.next_length(Search(), Observation(step, 0.7, tries=2), bend=0.5) is None


def test_a_loss_that_falls_for_ever_is_followed_no_farther_than_there_is_room():
    step = Proposal(loss=1.0, slope=0.5, rate=0.01)
    state = Search()
    assert search.next_length(state, Observation(step, 0.5, tries=3), bend=0.0, room=3.0) == 3.0
    assert not state.is_done
    assert search.next_length(state, Observation(step, 0.5, tries=4), bend=0.0, room=1.0) is None
    assert state.is_done
    assert search.final_factor(bend=0.0, beta=0.0, room=0.25) == 0.25


def test_what_was_too_long_on_one_batch_is_forgotten_on_the_next():
    step = Proposal(loss=1.0, slope=0.5, rate=0.01)
    state = Search(too_long=0.011)
    assert search.next_length(state, Observation(step, 0.5, tries=1), bend=0.0) == 10.0

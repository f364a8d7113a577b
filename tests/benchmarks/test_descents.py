"""Descents of small functions: what is measured, and that the page shows the records."""

import json
import math

import pytest

from benchmarks import descents


def lines():
    return [json.loads(line) for line in descents.RECORDS.read_text().splitlines()]


def test_every_descent_is_on_record_once():
    keys = ("part", "base", "function", "seed")
    found = [tuple(line[key] for key in keys) for line in lines()]
    expected = [
        tuple(run[key] for key in keys) for p in descents.PARTS for run in descents.descents(p)
    ]
    assert sorted(found) == sorted(expected)


def test_the_page_shows_the_records():
    assert descents.BEGIN + descents.table(lines()) + descents.END in descents.PAGE.read_text()


@pytest.mark.parametrize("base", ["sgd", "momentum"])
def test_a_descent_ends_as_on_record(base):
    run = {"part": "", "base": base, "function": "booth", "seed": 0}
    (recorded,) = [line for line in lines() if run.items() <= line.items()]
    again = descents.measure(run)
    assert again["first"] == pytest.approx(recorded["first"])
    assert again["plain"] == pytest.approx(recorded["plain"], rel=1e-3)
    assert again["ours"] < descents.FLOOR * again["first"]


def test_an_end_counts_no_less_than_a_hundredth_of_the_start_and_infinity_is_the_worst():
    line = {"first": 100.0, "plain": 0.5, "ours": 3.0}
    assert descents.ratio(line) == 3.0
    assert descents.ratio({**line, "ours": None}) == math.inf
    assert descents.ratio({**line, "plain": None}) == 0.0

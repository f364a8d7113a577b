"""The report's figures that compute what the paper's captions describe."""

from dataclasses import replace

import pytest

from probstep.bench.plans import list_runs, read_plan
from probstep.bench.report.figures.illustration import SOLUTION, START, infer_example
from probstep.bench.report.figures.rosenbrock import (
    POLYAK,
    STANDARD,
    draw_rosenbrock,
    rosenbrock_curves,
)
from probstep.bench.report.numbers.cells import make_cells
from probstep.bench.report.numbers.histories import make_history
from probstep.bench.runs.training import Epoch, train

STEPS = 70


def distance(belief):
    return float((belief.mean - SOLUTION).norm())


def test_the_posterior_mean_of_the_wider_prior_lies_nearer_to_the_solution():
    example = infer_example()
    assert distance(example.wide_after) < distance(example.narrow_after) < distance(example.wide)
    assert example.wide.mean.equal(START)
    assert example.narrow.mean.equal(START)


def test_the_true_minimiser_lies_on_the_line_that_explains_the_loss():
    example = infer_example()
    assert example.likelihood.expected_loss(SOLUTION) == pytest.approx(example.loss, rel=1e-12)


@pytest.fixture(scope="module")
def rosenbrock():
    """The plan's records over its first steps."""
    runs = [replace(run, epochs=STEPS) for run in list_runs(read_plan("rosenbrock"))]
    epochs = ([m.record for m in train(run) if isinstance(m, Epoch)] for run in runs)
    return make_cells(make_history(records) for records in epochs)


def test_the_rosenbrock_figure_has_three_panels_of_four_lines(rosenbrock):
    figure = draw_rosenbrock(rosenbrock)
    assert [panel.title for panel in figure.rows[0]] == [
        "fixed η, 1e-3",
        "fixed η, 0.1",
        "adapted η, from 1e-3",
    ]
    assert {len(panel.lines) for panel in figure.rows[0]} == {4}
    assert {len(line.xs) for panel in figure.rows[0] for line in panel.lines} == {STEPS + 1}


def test_without_noise_the_rate_cancels_and_the_panels_agree_at_first(rosenbrock):
    small, large, adapted = (lines[POLYAK][1] for lines in rosenbrock_curves(rosenbrock).values())
    assert small[:41] == pytest.approx(large[:41], rel=1e-6)
    assert small[:41] == pytest.approx(adapted[:41], rel=1e-6)
    assert small[:61] == pytest.approx(large[:61], rel=0.01)


def test_the_adapted_panel_copes_with_the_small_rate(rosenbrock):
    small, _, adapted = rosenbrock_curves(rosenbrock).values()
    noisy = [name for name in small if name != POLYAK]
    assert STANDARD in noisy
    for name in noisy:
        assert adapted[name][1][-1] < 0.8 * small[name][1][-1], name

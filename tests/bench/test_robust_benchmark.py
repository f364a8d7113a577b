"""The page of the robust rule's benchmark says what its records say."""

import json
import sys
from pathlib import Path

import pytest

from probstep.bench.plans import list_runs, read_plan

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def robust():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import robust

        yield robust
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def results(robust):
    return robust.read()


def test_the_page_is_what_its_command_makes_of_the_records(robust, results):
    grid = robust.Grid(results)
    page = "\n".join(robust.page(results, robust.make_cells(results, grid), grid))
    assert robust.PAGE.read_text() == page.rstrip() + "\n"


def test_every_run_of_the_plan_is_on_record_once(results):
    planned = {
        (r.problem, r.batch_size, r.method, r.rate, r.seed, r.epochs, json.dumps(r.settings))
        for r in list_runs(read_plan("robust"))
    }
    recorded = [
        (r.problem, r.batch_size, r.method, r.rate, r.seed, r.epochs, json.dumps(r.settings))
        for r in results
    ]
    assert len(recorded) == len(set(recorded))
    assert set(recorded) == planned


def test_a_quantile_lies_between_its_neighbours(robust):
    assert robust.quantile([1.0, 2.0, 4.0], 0.5) == 2.0
    assert robust.quantile([1.0, 2.0, 4.0], 0.75) == 3.0


def test_a_cell_compares_geometric_means_with_the_best_rate_that_has_all_seeds(robust):
    def result(method, rate, seed, loss):
        return robust.Result(
            problem="digits_mlp", batch_size=32, method=method, rate=rate, seed=seed, epochs=1,
            settings={}, status="done", steps=1, train_loss=[1.0, loss], forward_passes=[0, 1],
            test_accuracy=0.5, effective_rate=rate, commit=None,
        )  # fmt: skip

    fixed = [result("sgd", rate, seed, loss) for rate, seed, loss in
             [(0.1, 0, 1.0), (0.1, 1, 4.0), (1.0, 0, 8.0), (1.0, 1, 8.0), (0.2, 0, 0.1)]]  # fmt: skip
    ours = [result("robust_sgd", 1e-3, seed, 1.0) for seed in (0, 1)]
    grid = robust.Grid([*fixed, *ours])
    (cell,) = robust.make_cells([*fixed, *ours], grid)
    assert (cell.best.rate, cell.best.loss, cell.best.at_edge) == (0.1, 2.0, True)
    assert (cell.ratio, cell.half) == (0.5, "tuning")

"""The numbers behind the report's figures and tables."""

import pytest

from probstep.bench.report.figures.grid import draw_grid
from probstep.bench.report.figures.heatmap import momentum_differences
from probstep.bench.report.figures.profiles import draw_profiles, loss_ratios
from probstep.bench.report.figures.sensitivity import draw_sensitivity
from probstep.bench.report.numbers.cells import middle
from probstep.bench.report.page.sentences import conclude
from probstep.bench.report.page.tables import (
    reliability,
    tabulate_failures,
    tabulate_overhead,
    tabulate_reliability,
    tabulate_settings,
)

from ..report_cases import RATES, cells_of, make_records, make_run, make_sweep


def rows_of(table):
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_seeds_are_one_cell_and_its_end_is_their_median():
    runs = [make_records(make_run(seed=s), loss) for s, loss in enumerate((0.1, 0.7, 0.3))]
    [cell] = cells_of(runs)
    assert cell.final("train_loss") == pytest.approx(0.3)
    assert cell.best_seed("train_loss") == pytest.approx(0.1)


def test_a_diverged_seed_counts_as_the_worst():
    runs = [make_records(make_run(seed=s), 0.1) for s in (0, 1)]
    runs.append(make_records(make_run(seed=2), status="diverged"))
    [cell] = cells_of(runs)
    assert cell.final("train_loss") == pytest.approx(0.1)
    [cell] = cells_of(runs[1:])
    assert cell.final("train_loss") is None
    assert middle([None, 0.5, 0.9], "test_accuracy") == 0.5


def test_a_failed_run_is_not_held_against_its_method():
    runs = [make_records(make_run(seed=0), 0.1), make_records(make_run(seed=1), status="failed")]
    [cell] = cells_of(runs)
    assert cell.final("train_loss") == pytest.approx(0.1)
    assert not cells_of(runs[1:])[0].has_ended


def test_names_tell_settings_and_budgets_apart_only_where_they_differ():
    runs = [
        make_records(make_run("a", "adam", settings={"betas": [b, 0.999], "eps": 1e-8}))
        for b in (0.5, 0.9)
    ]
    runs += [make_records(make_run("b", "sgd", epochs=e)) for e in (2, 4)]
    cells = cells_of(runs)
    assert [cell.label for cell in cells if cell.method == "adam"] == [
        "adam betas=[0.5, 0.999]",
        "adam betas=[0.9, 0.999]",
    ]
    assert [cell.problem for cell in cells if cell.method == "sgd"] == ["b epochs=2", "b epochs=4"]
    assert {cell.label for cell in cells if cell.method == "sgd"} == {"sgd"}


def test_reliability_is_the_share_of_rates_within_some_per_cent_of_the_best():
    cells = [c for c in cells_of(make_sweep()) if c.method == "sgd"]
    assert reliability(cells, "test_accuracy", 0.9, 0.01) == pytest.approx(1 / 6)
    assert reliability(cells, "test_accuracy", 0.9, 0.2) == pytest.approx(2 / 6)
    assert reliability(cells, "train_loss", 2 / 6, 0.2) == pytest.approx(2 / 6)


def test_the_table_of_reliability_says_who_needs_no_tuning():
    rows = {row["method"]: row for row in rows_of(tabulate_reliability(cells_of(make_sweep())))}
    assert rows["probstep_sgd"]["within 5%"] == 1.0
    assert rows["sgd"]["within 5%"] == pytest.approx(1 / 6)
    assert rows["adam"]["worst"] == "diverged"


def test_overhead_is_told_against_the_fixed_rate_around_the_same_optimizer():
    rows = {row["method"]: row for row in rows_of(tabulate_overhead(cells_of(make_sweep())))}
    assert rows["probstep_sgd"]["times fixed"] == pytest.approx(2.0)
    assert rows["probstep_sgd"]["more than fixed"] == pytest.approx(1.0)
    assert rows["sgd"]["forward passes per step"] == pytest.approx(1.0)


def test_failures_are_listed_with_their_reason():
    [row] = rows_of(tabulate_failures(cells_of(make_sweep())))
    assert (row["method"], row["status"], row["epoch"]) == ("adam", "diverged", 4.0)
    assert row["reason"] == "the training loss was not finite"


def test_settings_say_what_a_rate_means_and_take_strangers_methods():
    cells = cells_of([*make_sweep(), make_records(make_run(method="mine"))])
    rows = {row["method"]: row for row in rows_of(tabulate_settings(cells))}
    assert rows["sgd"]["its rate is"] == "the step size, to be chosen"
    assert rows["sgd"]["rates here"] == "6: 1e-5 to 1"
    assert rows["mine"]["family"] == "from elsewhere"


def test_profiles_compare_with_the_best_of_the_problem_and_never_count_the_diverged():
    ratios = loss_ratios(cells_of(make_sweep()))
    assert ratios["probstep_sgd"] == pytest.approx([1.0] * 6)
    assert ratios["adam"] == [float("inf")]
    figure = draw_profiles(cells_of(make_sweep()))
    [adam] = [line for line in figure.rows[0][0].lines if line.name == "adam"]
    assert set(adam.ys) == {0.0}
    [ours] = [line for line in figure.rows[0][0].lines if line.name == "probstep_sgd"]
    assert (ours.xs[-1], ours.ys[-1]) == (1000.0, 1.0)


def test_the_heatmap_is_adapted_minus_fixed_at_each_rate_and_momentum():
    runs = []
    for method, accuracy in (("momentum", 0.5), ("probstep_momentum", 0.8)):
        for beta in (0.5, 0.9):
            run = make_run(method=method, settings={"momentum": beta})
            runs.append(make_records(run, accuracy=accuracy + 0.1 * (beta > 0.6)))
    assert momentum_differences(cells_of(runs)) == {
        (0.1, 0.5): pytest.approx(0.3),
        (0.1, 0.9): pytest.approx(0.3),
    }


def test_the_grid_has_the_papers_panels_and_frames_and_a_curve_per_rate():
    figure = draw_grid(cells_of(make_sweep()), "train_accuracy")
    assert figure.groups == [("SGD", 3), ("Adam", 3)]
    [row] = figure.rows
    frames = [panel.frame for panel in row]
    assert frames == ["fixed", "adapted", "hypergradient", "fixed", "adapted", "L4"]
    assert [len(panel.lines) for panel in row] == [6, 6, 6, 1, 1, 2]
    colours = [line.colour for line in row[0].lines]
    assert len(set(colours)) == len(RATES)
    assert colours == [line.colour for line in row[1].lines]


def test_a_diverged_end_is_a_cross_at_the_worst_edge():
    runs = [make_records(make_run(rate=rate)) for rate in (0.01, 0.1)]
    runs.append(make_records(make_run(rate=1.0), status="diverged"))
    [[panel]] = draw_sensitivity(cells_of(runs), "train_loss").rows
    assert list(panel.lines[0].lost) == [1.0]
    assert panel.worst == "top"


def test_three_sentences_say_what_fixed_and_adapted_rates_did_and_the_cost():
    sweep = [r for r in make_sweep() if r[0].run.method in ("sgd", "probstep_sgd")]
    fixed, adapted, cost = conclude(cells_of(sweep))
    assert "1 of 6 ended within 5% of the best (SGD on digits_mlp: 15% to 90%" in fixed
    assert "6 of 6 ended within 5% of the best" in adapted
    assert "2.00 forward passes per step instead of 1.00, and 2.00 times" in cost
    assert conclude(cells_of([r for r in sweep if r[0].run.method == "sgd"])) == []

"""What the report's figures and tables show."""

import pytest

from probstep.bench.report.figures.grid import draw_grid
from probstep.bench.report.figures.heatmap import momentum_differences
from probstep.bench.report.figures.profiles import draw_profiles
from probstep.bench.report.figures.sensitivity import draw_sensitivity
from probstep.bench.report.numbers.measures import loss_ratios
from probstep.bench.report.page.sentences import conclude
from probstep.bench.report.page.tables import (
    tabulate_comparisons,
    tabulate_failures,
    tabulate_overhead,
    tabulate_reliability,
    tabulate_settings,
)

from ..report_cases import RATES, cells_of, make_records, make_run, make_sweep


def rows_of(table):
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


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
    assert momentum_differences(cells_of(runs), "default rule") == {}
    assert momentum_differences(cells_of(runs), "paper's rule") == {
        (0.1, 0.5): pytest.approx(0.3),
        (0.1, 0.9): pytest.approx(0.3),
    }


def test_the_grid_has_the_papers_panels_and_frames_and_a_curve_per_rate():
    figure = draw_grid(cells_of(make_sweep()), "train_accuracy")
    assert figure.groups == [("SGD", 4), ("Adam", 3)]
    [row] = figure.rows
    frames = [panel.frame for panel in row]
    rules = ["default rule", "paper's rule"]
    assert frames == [*rules, "fixed", "hypergradient", rules[1], "fixed", "L4"]
    assert [len(panel.lines) for panel in row] == [6, 6, 6, 6, 1, 1, 2]
    colours = [line.colour for line in row[0].lines]
    assert len(set(colours)) == len(RATES)
    assert colours == [line.colour for line in row[1].lines]


def test_a_diverged_end_is_a_cross_at_the_worst_edge():
    runs = [make_records(make_run(rate=rate)) for rate in (0.01, 0.1)]
    runs.append(make_records(make_run(rate=1.0), status="diverged"))
    [[panel]] = draw_sensitivity(cells_of(runs), "train_loss").rows
    assert list(panel.lines[0].lost) == [1.0]
    assert panel.worst == "top"


def test_the_axis_speaks_of_l4_only_if_it_is_there():
    with_l4 = draw_sensitivity(cells_of(make_sweep()), "train_loss")
    assert with_l4.x_label == "initial rate (a factor, for L4)"
    without = [r for r in make_sweep() if r[0].run.method != "l4_adam"]
    assert draw_sensitivity(cells_of(without), "train_loss").x_label == "initial rate"


def test_the_grid_of_effective_rates_shows_both_rules():
    cells = [c for c in cells_of(make_sweep()) if c.base == "sgd"]
    figure = draw_grid(cells, "effective_rate", ("default rule", "paper's rule"))
    assert [panel.title for panel in figure.rows[0]] == ["default rule", "paper's rule"]


def test_each_rule_is_compared_with_the_best_fixed_rate_by_itself():
    rows = {row["method"]: row for row in rows_of(tabulate_comparisons(cells_of(make_sweep())))}
    assert rows["robust_sgd"]["ratio"] == pytest.approx(0.32 * 3)
    assert rows["probstep_sgd"]["ratio"] == pytest.approx(0.3 * 3)
    assert rows["sgd"]["worst ratio"] == pytest.approx(6.0)
    assert rows["robust_sgd"]["share to target"] == 1.0
    assert rows["robust_sgd"]["best fixed rate"] == 1.0
    assert next(iter(rows)) == "robust_sgd"


def test_a_sentence_for_each_rule_one_for_fixed_rates_and_one_for_the_cost():
    sweep = [r for r in make_sweep() if r[0].run.method in ("sgd", "probstep_sgd", "robust_sgd")]
    default, paper, fixed, cost = conclude(cells_of(sweep))
    assert default.startswith(
        "The default rule: from initial rates of 1e-5 to 1, 6 of 6 ended within 5%"
    )
    assert default.endswith("0.96 times that of the best fixed rate, 0.96 times at worst.")
    assert paper.startswith(
        "The paper's rule: from initial rates of 1e-5 to 1, 6 of 6 ended within 5%"
    )
    assert "1 of 6 ended within 5% of the best (SGD on digits_mlp: 15% to 90%" in fixed
    assert (
        "the default rule takes 1.10 forward passes per step instead of 1.00, and 1.10 times"
        in cost
    )
    assert "the paper's rule takes 2.00 forward passes per step instead of 1.00" in cost
    one = [r for r in sweep if r[0].run.method != "robust_sgd"]
    assert [sentence.split(":")[0] for sentence in conclude(cells_of(one))] == [
        "The paper's rule",
        "Fixed rates",
        "The cost",
    ]
    assert conclude(cells_of([r for r in sweep if r[0].run.method == "sgd"])) == []

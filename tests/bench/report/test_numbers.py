"""What a cell, a mean over seeds, a diverged run, a ratio and a floor are."""

import math

import pytest

from probstep.bench.overview import summarise
from probstep.bench.records import Record, read_records
from probstep.bench.report.numbers.cells import FLOOR, seed_mean
from probstep.bench.report.numbers.comparisons import (
    compare,
    find_best_fixed,
    share_to_target,
    steps_to_target,
)
from probstep.bench.report.numbers.histories import make_history, read_histories
from probstep.bench.report.numbers.measures import loss_ratios, reliability
from probstep.bench.report.numbers.summaries import (
    decode_summary,
    encode_summary,
    read_summaries,
    write_summaries,
)

from ..report_cases import cells_of, make_records, make_run, make_sweep, write_records


def test_seeds_are_one_cell_and_its_end_is_their_geometric_mean():
    runs = [make_records(make_run(seed=s), loss) for s, loss in enumerate((0.1, 0.8, 0.1))]
    [cell] = cells_of(runs)
    assert cell.final("train_loss") == pytest.approx(0.2)
    assert cell.curve("train_loss")[1][-1] == pytest.approx(0.2)
    assert cell.best_seed("train_loss") == pytest.approx(0.1)


def test_accuracies_have_their_arithmetic_mean():
    runs = [make_records(make_run(seed=s), accuracy=a) for s, a in enumerate((0.4, 0.9))]
    [cell] = cells_of(runs)
    assert cell.final("test_accuracy") == pytest.approx(0.65)
    assert cell.curve("test_accuracy")[1][-1] == pytest.approx(0.65)


def test_a_cell_with_a_diverged_run_has_no_value_from_there_on():
    good = [make_records(make_run(seed=s), 0.1) for s in (0, 1)]
    lost = make_run(seed=2)
    bad = [*make_records(lost)[:2], Record(run=lost, epoch=2, status="diverged")]
    [cell] = cells_of([*good, bad])
    assert cell.has_diverged
    assert cell.final("train_loss") is None
    known = [value is not None for value in cell.curve("train_loss")[1]]
    assert known == [True, True, False, False, False]
    assert seed_mean([0.5, None], "test_accuracy") is None


def test_an_unfinished_run_counts_as_far_as_it_goes():
    runs = [make_records(make_run(seed=0), 0.1), make_records(make_run(seed=1), 0.4)[:2]]
    [cell] = cells_of(runs)
    assert cell.final("train_loss") == pytest.approx(0.1)
    assert cell.latest("train_loss") == pytest.approx(math.sqrt(0.1 * 1.6))
    assert cell.curve("train_loss")[1][1:] == pytest.approx(
        [math.sqrt(1.525 * 1.6), 1.05, 0.575, 0.1]
    )


def test_the_table_of_show_and_the_report_say_the_same(tmp_path):
    runs = [make_records(make_run(seed=s), loss) for s, loss in enumerate((0.1, 0.4))]
    runs.append(make_records(make_run("regression"), status="diverged"))
    cells = {cell.problem: cell for cell in cells_of(runs)}
    for row in summarise(make_history(records[-1:]) for records in runs):
        for metric in ("train_loss", "test_accuracy"):
            assert row[metric] == cells[row["problem"]].final(metric)


def test_columns_of_numbers_tell_what_the_records_tell(tmp_path):
    out = write_records(tmp_path, make_sweep())
    for quick, records in zip(read_histories(out), read_records(out), strict=True):
        whole = make_history(records)
        assert (quick.run, quick.status, quick.epoch) == (whole.run, whole.status, whole.epoch)
        assert (quick.steps, quick.seconds) == (whole.steps, whole.seconds)
        assert list(quick.epochs) == whole.epochs
        for metric, values in whole.scores.items():
            assert list(quick.scores[metric]) == pytest.approx(values, nan_ok=True, abs=0)


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


def test_a_loss_below_one_per_cent_of_the_first_is_as_good_as_one_per_cent():
    runs = [make_records(make_run(rate=rate), loss) for rate, loss in ((0.1, 1e-9), (1.0, 0.02))]
    runs += [make_records(make_run(method="robust_sgd", rate=0.1), 1e-6)]
    cells = cells_of(runs)
    assert [cell.judged("train_loss") for cell in cells] == pytest.approx([FLOOR * 2] * 3)
    assert loss_ratios(cells)["sgd"] == pytest.approx([1.0, 1.0])
    [ours] = compare([c for c in cells if c.method == "robust_sgd"], find_best_fixed(cells))
    assert (ours.ratio, ours.worst_seed) == (pytest.approx(1.0), pytest.approx(1.0))


def fixed_and_ours():
    fixed = [(0.1, 0, 0.5), (0.1, 1, 2.0), (1.0, 0, 1.5), (1.0, 1, 1.5), (0.2, 0, 0.1)]
    runs = [make_records(make_run(rate=r, seed=s), loss) for r, s, loss in fixed]
    ours = [make_run(method="robust_sgd", rate=1e-3, seed=s) for s in (0, 1)]
    return cells_of([*runs, *(make_records(run, loss=0.5) for run in ours)])


def test_a_cell_is_compared_with_the_best_rate_that_has_all_seeds():
    cells = fixed_and_ours()
    [(place, best)] = find_best_fixed(cells).items()
    assert place == ("digits_mlp", "sgd", "constant")
    assert (best.cell.rate, best.is_at_edge) == (0.1, True)
    assert best.loss == pytest.approx(1.0)
    [ours] = compare([c for c in cells if c.method == "robust_sgd"], {place: best})
    assert (ours.ratio, ours.worst_seed) == (pytest.approx(0.5), pytest.approx(0.5))
    assert ours.points == pytest.approx(0.0)


def test_time_to_target_is_when_the_loss_of_the_best_fixed_rate_is_reached():
    cells = fixed_and_ours()
    [best] = find_best_fixed(cells).values()
    [ours] = [cell for cell in cells if cell.method == "robust_sgd"]
    assert ours.curve("train_loss")[1] == pytest.approx([2.0, 1.625, 1.25, 0.875, 0.5])
    assert share_to_target(ours, best.loss) == 0.75
    assert steps_to_target(ours, best.loss) == 30.0
    assert share_to_target(ours, 0.1) == math.inf


def test_a_diverged_cell_is_infinitely_worse_than_the_best_fixed_rate():
    runs = [make_records(make_run()), make_records(make_run(rate=9.0), status="diverged")]
    cells = cells_of(runs)
    ratios = {one.cell.rate: one.ratio for one in compare(cells, find_best_fixed(cells))}
    assert ratios == {0.1: 1.0, 9.0: math.inf}


def test_a_run_under_a_schedule_is_compared_with_fixed_rates_under_the_same():
    decay = {"schedule": "linear"}
    runs = [make_records(make_run(), 0.5), make_records(make_run(settings=decay), 0.25)]
    runs += [make_records(make_run(method="sgd_linear", rate=1.0), 0.2)]
    runs += [make_records(make_run(method="robust_sgd", settings=decay), 0.4)]
    cells = cells_of(runs)
    [ours] = compare([c for c in cells if c.method == "robust_sgd"], find_best_fixed(cells))
    assert (ours.best.cell.method, ours.ratio) == ("sgd_linear", pytest.approx(2.0))


def test_a_summary_of_a_run_says_what_its_records_say_with_five_digits(tmp_path):
    histories = [make_history(records) for records in make_sweep()]
    running = make_history(make_records(make_run(seed=7))[:2])
    path = tmp_path / "runs.jsonl"
    assert write_summaries([*histories, running], path) == len(histories)
    kept = {history.run.key: history for history in read_summaries(path)}
    for history in histories:
        found = kept[history.run.key]
        assert (found.status, found.steps) == (history.status, history.steps)
        for metric in ("train_loss", "test_accuracy", "forward_passes", "effective_rate"):
            values = list(history.scores[metric])
            assert found.scores[metric] == pytest.approx(values, rel=1e-4, nan_ok=True)
    again = [encode_summary(decode_summary(line)) for line in path.read_text().splitlines()]
    assert again == path.read_text().splitlines()

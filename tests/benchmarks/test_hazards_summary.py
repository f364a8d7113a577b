"""Records of hazards: which are missing, what they come to, and that packing is deterministic."""

import math
from functools import partial

import pytest
from benchmarks.hazards import runner
from benchmarks.hazards.__main__ import main
from benchmarks.hazards.hazard import Hazard
from benchmarks.hazards.records import Run, append, pack, read, run_of
from benchmarks.hazards.runner import list_runs, run_missing
from benchmarks.hazards.summary import compare, headline, quantile, show
from benchmarks.hazards.table import HAZARDS
from benchmarks.hazards.training import run as train


def record(hazard="a", way="plain", final=1.0, seed=0, rate=0.1, **more):
    label = "x" if way == "ours" else ""
    return {
        "suite": "hazards", "hazard": hazard, "way": way, "label": label, "seed": seed, "rate": rate,
        "last_rate": rate,
        "family": "f", "half": "tuning", "measured": "loss", "status": "done", "first": 2.0,
        "final": final, "steps": 10, "forwards": 1.0, **more,
    }  # fmt: skip


def only(records, **arguments):
    (result,) = compare(records, "ours", "x", **arguments)
    return result


def test_a_ratio_is_of_losses_floored_at_one_percent_of_the_first():
    assert only([record(), record(way="ours", final=3.0)]).ratio == pytest.approx(3.0)
    result = only([record(final=0.001), record(way="ours", final=0.03)])
    assert result.ratio == pytest.approx(0.03 / 0.02)
    assert not result.faults


def test_the_bar_is_one_and_a_half_times_the_loss():
    assert only([record(), record(way="ours", final=1.51)]).faults == ("too bad",)
    assert not only([record(), record(way="ours", final=1.49)]).faults


def test_the_bar_is_two_points_of_a_score():
    score = {"measured": "score"}
    assert only([record(final=90.0, **score), record(way="ours", final=87.9, **score)]).faults == (
        "too bad",
    )
    result = only([record(final=90.0, **score), record(way="ours", final=88.1, **score)])
    assert result.points == pytest.approx(-1.9)
    assert not result.faults
    assert not result.is_as_good


def test_seeds_are_averaged_and_only_shared_ones_count():
    records = [
        record(seed=0, final=1.0), record(seed=1, final=4.0),
        record(way="ours", seed=0, final=2.0), record(way="ours", seed=1, final=8.0),
        record(way="ours", seed=2, final=100.0),
    ]  # fmt: skip
    result = only(records)
    assert (result.ours.value, result.reference.value) == (pytest.approx(4.0), pytest.approx(2.0))
    assert result.ours.seeds == 2


@pytest.mark.parametrize("status", ["raised", "diverged"])
def test_what_raised_or_diverged_fails(status):
    result = only([record(), record(way="ours", final=None, status=status)])
    assert math.isinf(result.ratio)
    assert result.faults == (status, "too bad")


def test_where_plain_diverges_too_it_is_no_worse_but_still_a_fault():
    records = [record(way=way, final=None, status="diverged") for way in ("plain", "ours")]
    result = only(records)
    assert (result.ratio, result.faults) == (1.0, ("diverged",))


def test_the_best_of_the_grid_is_the_lowest_loss_and_judges_the_last_rate():
    grid = [record(way="grid", rate=rate, final=loss) for rate, loss in [(0.1, 1.0), (1.0, 0.5)]]
    ours = record(way="ours", last_rate=0.009, final=0.9)
    result = only([record(), *grid, ours])
    assert (result.best.rate, result.best.value) == (pytest.approx(1.0), 0.5)
    assert result.faults == ("rate far off",)
    assert not only([record(), *grid, {**ours, "last_rate": 0.02}]).faults
    assert not only([record(), *grid, {**ours, "final": 0.001}]).faults  # it has converged
    assert only([record(), *grid, ours], against="grid").ratio == pytest.approx(0.9 / 0.5)


def test_rates_of_one_grid_that_differ_by_rounding_are_the_same_run():
    assert Run("s", "h", "grid", "", 0, 0.1 * 3).key == Run("s", "h", "grid", "", 0, 0.3).key


def test_headline_numbers():
    records = [
        record("a"), record("a", "ours", 4.0),
        record("b"), record("b", "ours", 0.25),
        record("c", final=80.0, measured="score"), record("c", "ours", 83.0, measured="score"),
    ]  # fmt: skip
    numbers = headline(compare(records, "ours", "x"))
    assert numbers["rows"] == 3
    assert numbers["failed"] == 1
    assert numbers["as good"] == pytest.approx(2 / 3)
    assert numbers["geometric mean"] == pytest.approx(1.0)
    assert numbers["worst ratio"] == 4.0
    assert numbers["mean points"] == pytest.approx(3.0)
    assert numbers["extra forwards"] == pytest.approx(0.1)


def test_the_test_score_is_compared_where_both_have_one():
    records = [record(score=90.0), record(way="ours", score=90.5)]
    assert only(records).test_points == pytest.approx(0.5)
    assert headline(compare(records, "ours", "x"))["test points"] == pytest.approx(0.5)
    assert math.isnan(only([record(), record(way="ours", score=90.5)]).test_points)


def test_a_quantile_lies_between_its_neighbours():
    assert quantile([1.0, 2.0, 4.0], 0.5) == 2.0
    assert quantile([4.0, 1.0, 2.0], 0.75) == 3.0


def test_the_table_begins_with_the_worst_row():
    records = [record("good"), record("good", "ours"), record("bad"), record("bad", "ours", 9.0)]
    lines = list(show(compare(records, "ours", "x"), "title"))
    assert lines[1].startswith("bad")
    assert lines[2].startswith("good")


def test_a_half_is_shown_alone():
    records = [record("k", half="kept"), record("k", "ours", half="kept")]
    assert compare(records, "ours", "x", half="tuning") == []
    assert len(compare(records, "ours", "x", half="kept")) == 1


def test_runs_are_listed_with_a_label_for_ours_and_rates_for_the_grid():
    row = Hazard("a", lambda seed: None, rate=0.1)
    runs = list(list_runs([row], "hazards", ["ours", "plain", "grid"], "x", range(2)))
    assert len(runs) == 2 * 9
    assert {run.label for run in runs if run.way == "ours"} == {"x"}
    assert {run.label for run in runs if run.way != "ours"} == {""}


def test_only_missing_runs_are_done(tmp_path):
    out, said = tmp_path / "out.jsonl", []
    rows = [row for row in HAZARDS if row.name == "batch-4-logistic"]
    runs = list(list_runs(rows, "hazards", ["plain"], "", range(1)))
    done = record(rows[0].name, rate=rows[0].rate)
    append(out, done)
    with out.open("a") as file:
        file.write('{"suite": "haz')  # stopped while it wrote
    run_missing(runs, out, None, None, 1, said.append)
    assert said == []
    assert read(out) == [done]


def test_a_run_keeps_the_rate_that_it_was_given(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "train", partial(train, steps=3))
    out = tmp_path / "out.jsonl"
    rows = [row for row in HAZARDS if row.name == "td-random-walk"]
    (run,) = list_runs(rows, "hazards", ["ours"], "x", range(1))
    run_missing([run], out, None, None, 1, lambda line: None)
    (done,) = read(out)
    assert run_of(done) == run
    assert done["last_rate"] != run.rate


def test_records_are_appended_after_a_line_that_was_cut_off(tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text('{"suite": "haz')
    append(out, record())
    assert read(out) == [record()]


def test_packing_is_deterministic_and_loses_nothing(tmp_path):
    records = [record("b"), record("a"), record("a", "ours", 3.0)]
    first, second = tmp_path / "1.jsonl.gz", tmp_path / "2.jsonl.gz"
    pack(records, first)
    pack(reversed(records), second)
    assert first.read_bytes() == second.read_bytes()
    assert read(first) == [record("a", "ours", 3.0), record("a"), record("b")]


def test_each_suite_is_packed_into_a_file_of_its_own_beside_what_is_there(tmp_path, capsys):
    pack([record("a", final=1.0), record("b")], tmp_path / "hazards.jsonl.gz")
    fresh = [record("a", final=2.0), {**record("c"), "suite": "ordinary"}]
    for r in fresh:
        append(tmp_path / "out.jsonl", r)
    main(["pack", "--records", str(tmp_path / "out.jsonl"), "--to", str(tmp_path)])
    assert read(tmp_path / "hazards.jsonl.gz") == [fresh[0], record("b")]
    assert read(tmp_path / "ordinary.jsonl.gz") == [fresh[1]]
    assert "ordinary.jsonl.gz: 1 runs" in capsys.readouterr().out


def test_the_commands_summarise_and_pack(tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    for r in (record("a"), record("a", "ours", 3.0)):
        append(out, r)
    main(["summary", "--records", str(out), "--label", "x"])
    assert "too bad" in capsys.readouterr().out
    main(["pack", "--records", str(out), "--to", str(tmp_path)])
    assert "hazards.jsonl.gz: 2 runs" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="labelled 'y'"):
        main(["summary", "--records", str(out), "--label", "y"])

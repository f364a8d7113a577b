"""A run as one line: nothing that a page shows of it is lost, and the same runs make the same bytes."""

import json
from dataclasses import replace

import pytest

from probstep.bench.records import Record, Run, add_curves, read_curves, write_curves
from probstep.bench.records.curves import decode_curves, encode_curves

RUN = Run("line", "sgd", rate=0.1, seed=0, epochs=2, settings={"betas": [0.5, 0.999]})
ORIGIN = {"versions": {"torch": "2.0"}, "commit": "abc", "sizes": {"train": 10}}


def make_records(run=RUN, status="done"):
    losses = [3.0, 2.0, 1 / 3]
    records = [
        Record(
            run=run, epoch=i, status="running", train_loss=loss, steps=5 * i, forward_passes=9 * i
        )
        for i, loss in enumerate(losses)
    ]
    return [
        *records[:2],
        replace(records[2], status=status, time={"training_seconds": 1.5}, **ORIGIN),
    ]


def test_what_a_page_shows_survives_but_for_digits():
    records = make_records()
    again = decode_curves(encode_curves(records))
    assert again == [*records[:2], replace(records[2], train_loss=0.333333)]


def test_a_diverged_run_keeps_its_gap_and_a_failed_one_its_mark():
    records = make_records(status="diverged")
    records[-1] = replace(records[-1], train_loss=float("nan"), reason="not finite")
    last = decode_curves(encode_curves(records))[-1]
    assert (last.status, last.train_loss, last.reason) == ("diverged", None, "not finite")
    mark = Record(run=RUN, epoch=2, status="failed", reason="why", **ORIGIN)
    again = decode_curves(encode_curves([*make_records()[:2], mark]))
    assert again == [*make_records()[:2], mark]


@pytest.mark.parametrize("name", ["runs.jsonl", "runs.jsonl.gz"])
def test_the_same_runs_make_the_same_bytes_in_any_order_and_unfinished_ones_none(tmp_path, name):
    runs = [make_records(replace(RUN, seed=seed)) for seed in (0, 1, 2)]
    paths = tmp_path / "a" / name, tmp_path / "b" / name
    assert [write_curves(r, p) for r, p in zip((runs, runs[::-1]), paths, strict=True)] == [3, 3]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert {run[0].run.seed for run in read_curves(paths[0])} == {0, 1, 2}
    assert write_curves([runs[0][:2]], paths[0]) == 0


@pytest.mark.parametrize("name", ["runs.jsonl", "runs.jsonl.gz"])
def test_added_runs_make_the_bytes_of_all_of_them_written_at_once(tmp_path, name):
    runs = [make_records(replace(RUN, seed=seed)) for seed in (0, 1, 2)]
    whole, grown = tmp_path / "whole" / name, tmp_path / "grown" / name
    write_curves(runs, whole)
    assert [add_curves(part, grown) for part in (runs[1:], runs[:2])] == [2, 3]
    assert grown.read_bytes() == whole.read_bytes()


def test_a_run_that_is_there_already_is_taken_anew(tmp_path):
    path = tmp_path / "runs.jsonl"
    write_curves([make_records(status="diverged")], path)
    add_curves([make_records()], path)
    [records] = read_curves(path)
    assert records[-1].status == "done"


def test_nothing_is_added_to_a_file_of_something_else(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("notes\n")
    with pytest.raises(ValueError, match="Not a run"):
        add_curves([make_records()], path)
    assert path.read_text() == "notes\n"


def test_a_line_that_is_no_run_is_refused():
    line = encode_curves(make_records())
    with pytest.raises(ValueError, match="Not a run"):
        decode_curves(line[:50])
    with pytest.raises(ValueError, match="says that it is of run"):
        decode_curves(json.dumps({**json.loads(line), "seed": 7}))

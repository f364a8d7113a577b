"""The study of the rule's parts trains rows of the tuning half, and does no run twice."""

from functools import partial
from pathlib import Path

from benchmarks.hazards import runner
from benchmarks.hazards.ordinary import ordinary
from benchmarks.hazards.records import read
from benchmarks.hazards.training import run as train

from benchmarks import ablations
from probstep.rules.robust.rule import PARTS

PART = next(iter(PARTS))


def test_its_ordinary_rows_are_of_the_tuning_half():
    halves = {row.name: row.half for row in ordinary(Path("nowhere"))}
    assert {halves[name] for name in ablations.ORDINARY} == {"tuning"}
    assert len(ablations.ORDINARY) == len(set(ablations.ORDINARY))


def test_ordinary_rows_are_left_out_without_their_data():
    assert ablations.rows_to_run("ordinary", None, ()) == []
    assert {row.half for row in ablations.rows_to_run("hazards", None, ())} == {"tuning"}


def test_the_whole_rule_and_each_part_are_run_once_and_packed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "train", partial(train, steps=3))
    out, packed = tmp_path / "out.jsonl", tmp_path / "packed.jsonl.gz"
    words = [
        "--seeds",
        "2",
        "--parts",
        PART,
        "--only",
        "permuted-pixels",
        "--out",
        str(out),
        "--to",
        str(packed),
    ]
    ablations.main(words)
    first = out.read_text()
    assert {r["label"]: r["status"] for r in read(packed)} == {
        "whole": "done",
        f"without {PART}": "done",
    }
    assert all("trace" in r for r in read(out))
    assert not any("trace" in r for r in read(packed))
    ablations.main(words)
    assert out.read_text() == first
    assert "4 runs" in capsys.readouterr().out

"""The runs that an output directory is to hold."""

import json
import os

from probstep.bench.records.planned import read_planned, write_planned

from ..bench_cases import make_run


def test_runs_are_read_as_they_were_planned_in_their_order(tmp_path):
    runs = [make_run(seed=3, settings={"betas": [0.5, 0.9]}), make_run(seed=1, rate=None)]
    write_planned(tmp_path, runs)
    assert list(read_planned(tmp_path).values()) == runs


def test_a_plan_that_is_run_again_replaces_its_own_file_and_no_other(tmp_path):
    runs = [make_run(seed=seed) for seed in range(3)]
    write_planned(tmp_path, runs)
    write_planned(tmp_path, runs[::-1])
    assert list(read_planned(tmp_path).values()) == runs[::-1]
    write_planned(tmp_path, [make_run(seed=9)])
    assert len(list((tmp_path / "planned").iterdir())) == 2
    assert len(read_planned(tmp_path)) == 4


def test_what_is_no_run_is_passed_over(tmp_path):
    write_planned(tmp_path, [make_run()])
    good = json.loads(next((tmp_path / "planned").iterdir()).read_text())
    deep = "[" * 100_000 + "]" * 100_000
    bad = [
        "nonsense",
        json.dumps({**good, "seed": "x"}),
        json.dumps({**good, "rate": float("nan"), "seed": 7}),
        json.dumps(good).replace('"settings":{}', f'"settings":{{"a":{deep}}}'),
        "\udcff",
    ]
    (tmp_path / "planned" / "bad.jsonl").write_text("\n".join(bad), errors="surrogateescape")
    os.mkfifo(tmp_path / "planned" / "pipe.jsonl")
    (tmp_path / "planned" / "folder.jsonl").mkdir()
    assert list(read_planned(tmp_path).values()) == [make_run()]


def test_nothing_is_written_through_a_link(tmp_path):
    write_planned(tmp_path, [make_run()])
    (file,) = (tmp_path / "planned").iterdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    file.unlink()
    file.symlink_to(elsewhere)
    write_planned(tmp_path, [make_run()])
    assert elsewhere.read_text() == "mine"
    assert list(read_planned(tmp_path).values()) == [make_run()]

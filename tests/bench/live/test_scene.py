"""How the runs of an output directory stand, as the live page sees it."""

import os

import pytest

from probstep.bench.live.latest import Latest
from probstep.bench.live.page import write_now
from probstep.bench.live.scene import Watcher
from probstep.bench.records.planned import write_planned

from ..report_cases import make_records, make_run, write_records

RUNS = [make_run(seed=seed) for seed in range(6)]


@pytest.fixture
def out(tmp_path):
    """Six planned runs: one each is done, failed, diverged, running, interrupted; one waits."""
    write_planned(tmp_path, RUNS)
    done, failed, lost, running, paused, _ = RUNS
    reason = "FileNotFoundError: tiny.gz is not here"
    write_records(
        tmp_path,
        [
            make_records(done),
            make_records(failed, status="failed", reason=reason),
            make_records(lost, status="diverged", reason="the training loss was not finite"),
            make_records(running)[:3],
            make_records(paused)[:2] + make_records(paused, status="interrupted")[-1:],
        ],
    )
    return tmp_path


def test_every_run_is_counted_once_by_how_it_stands(out):
    counts = Watcher(out).look().counts
    assert counts == {
        "done": 1, "failed": 1, "diverged": 1, "running": 1, "interrupted": 1, "waiting": 1
    }  # fmt: skip


def test_what_is_next_has_not_begun_or_was_interrupted_in_the_order_of_the_plan(out):
    assert Watcher(out).look().upcoming == [RUNS[4], RUNS[5]]


def test_the_share_counts_epochs_and_an_ended_run_as_whole(out):
    scene = Watcher(out).look()
    assert scene.share == (4 + 4 + 4 + 2 + 3) / 24


def test_runs_that_no_plan_names_are_counted_too(tmp_path):
    write_records(tmp_path, [make_records(RUNS[0])])
    scene = Watcher(tmp_path).look()
    assert (len(scene.runs), scene.share, scene.upcoming) == (1, 1.0, [])


def test_a_directory_without_anything_has_no_runs(tmp_path):
    assert "There are no runs yet" in write_now(Watcher(tmp_path).look())


def test_only_files_that_changed_are_read_again(out, monkeypatch):
    watcher = Watcher(out)
    watcher.look()
    changed = out / "records" / f"{RUNS[3].key}.jsonl"
    write_records(out, [make_records(RUNS[3])[:4]])
    read = []
    decode = "probstep.bench.live.scene._last_record"
    monkeypatch.setattr(decode, lambda path, size: read.append(path))
    planned = "probstep.bench.live.scene.read_planned"
    monkeypatch.setattr(planned, lambda out: read.append(out))
    watcher.look()
    assert read == [changed]


def test_a_half_written_line_hides_nothing(out):
    with (out / "records" / f"{RUNS[3].key}.jsonl").open("a") as file:
        file.write('{"schema":1,"run":')
    assert Watcher(out).look().counts["running"] == 1


def test_what_is_no_file_of_records_is_passed_over(out):
    (out / "records" / "folder.jsonl").mkdir()
    os.mkfifo(out / "records" / "pipe.jsonl")
    (out / "records" / "nonsense.jsonl").write_text("nonsense\n")
    scene = Watcher(out).look()
    assert (len(scene.runs), scene.unread) == (6, 1)


def test_a_long_table_is_cut_and_the_rest_counted(tmp_path):
    write_planned(tmp_path, [make_run(seed=seed) for seed in range(30)])
    text = write_now(Watcher(tmp_path).look())
    assert "Next (30)" in text
    assert "and 18 more." in text


def test_a_report_is_made_again_only_for_new_records_and_after_a_pause():
    now, made = [0.0], []

    def make():
        made.append(now[0])
        now[0] += 3.0  # what it takes
        return b"page"

    reports = Latest(make, clock=lambda: now[0])
    for state in ("a", "a", "b"):
        reports.renew(state)
    assert made == [0.0]
    now[0] = 34.0
    reports.renew("b")
    assert made == [0.0, 34.0]
    assert reports.version == 2


def test_without_records_there_is_no_report_yet_and_no_error():
    def make():
        raise ValueError("There are no records")

    reports = Latest(make)
    reports.renew("nothing")
    assert b"no report yet" in reports.page
    assert reports.version == 0

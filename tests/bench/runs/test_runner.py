import errno
import multiprocessing
import os
import random
import signal
import time
from contextlib import closing
from dataclasses import replace

import pytest

from probstep.bench.records import decode_records, encode_record, store
from probstep.bench.runs.backends import Workers
from probstep.bench.runs.backends.processes import PRELOADED
from probstep.bench.runs.runner import Setup, execute
from probstep.bench.runs.training import Epoch, Note

from ..bench_cases import make_records, make_run, timeless

PLAN = [
    make_run("tiny_slow", method, seed=seed)
    for method in ("sgd", "probstep_adam")
    for seed in (0, 1)
]


def status(records):
    return [(record.epoch, record.status) for record in records]


def test_a_plan_is_made_once(tiny, tmp_path):
    runs = [make_run(seed=seed) for seed in range(3)]
    first = make_records(tmp_path, runs, tiny)
    assert {records[-1].status for records in first.values()} == {"done"}
    assert list(execute(runs, Setup(out=tmp_path))) == []
    assert timeless(tmp_path) == first


def test_failing_and_diverging_runs_do_not_keep_others_from_theirs(tiny, tmp_path):
    runs = [make_run("tiny_failing"), make_run("tiny_unready"), make_run(rate=1e20), make_run()]
    found = make_records(tmp_path, runs, tiny)
    ends = [found[run.key][-1].status for run in runs]
    assert ends == ["failed", "failed", "diverged", "done"]


def test_failed_runs_are_made_again_only_if_asked(tiny, tmp_path):
    runs = [make_run("tiny_failing")]
    failed = make_records(tmp_path, runs, tiny)
    assert list(execute(runs, Setup(out=tmp_path))) == []
    assert make_records(tmp_path, runs, tiny, retry=True) == failed
    [path] = (tmp_path / "records").iterdir()
    assert status(decode_records(path.read_bytes())[0])[-2:] == [(3, "failed"), (3, "failed")]


def test_checkpoints_stay_as_long_as_they_are_of_use(tiny, tmp_path):
    make_records(tmp_path, [make_run(), make_run("tiny_failing")], tiny)
    kept = [path.stem for path in (tmp_path / "checkpoints").iterdir()]
    assert kept == [make_run("tiny_failing").key]


def test_an_interrupted_run_says_so_and_continues(tiny, tmp_path):
    run = make_run()
    store.prepare(tmp_path)
    with closing(execute([run], Setup(out=tmp_path))) as events:
        next(e for e in events if isinstance(e.message, Epoch) and e.message.record.epoch == 2)
    [stopped] = timeless(tmp_path).values()
    assert status(stopped)[-1] == (3, "interrupted")
    assert make_records(tmp_path, [run], tiny) == make_records(tmp_path / "other", [run], tiny)


def test_ctrl_c_in_the_middle_of_an_epoch_loses_that_epoch_only(tiny, tmp_path, monkeypatch):
    run = make_run("tiny_slow")

    def interrupt(seconds):
        if timeless(tmp_path) and len(next(iter(timeless(tmp_path).values()))) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_records(tmp_path, [run], tiny)
    [stopped] = timeless(tmp_path).values()
    assert status(stopped) == [(0, "running"), (1, "running"), (2, "running"), (3, "interrupted")]
    monkeypatch.undo()
    assert make_records(tmp_path, [run], tiny) == make_records(tmp_path / "other", [run], tiny)


def rewrite(out, **values):
    """As if the runs had been made in other circumstances."""
    for path in (out / "records").iterdir():
        records = [replace(r, **values) for r in decode_records(path.read_bytes())[0]]
        path.write_text("".join(encode_record(record) + "\n" for record in records))
    return {path: path.read_bytes() for path in (out / "records").iterdir()}


@pytest.mark.parametrize("run", [make_run(), make_run("tiny_failing")])
@pytest.mark.parametrize("imported", [None, "another"])
def test_records_of_another_own_file_are_refused_and_not_touched(tiny, tmp_path, run, imported):
    make_records(tmp_path, [run], tiny)
    before = rewrite(tmp_path, imported=imported)
    with pytest.raises(ValueError, match=r"another --import file .* Use another directory"):
        make_records(tmp_path, [run], tiny, retry=True)
    assert {path: path.read_bytes() for path in before} == before


def test_an_unfinished_run_is_not_continued_with_other_data(tiny, tmp_path):
    run = make_run("tiny_failing")
    make_records(tmp_path, [run], tiny)
    rewrite(tmp_path, sizes={"train": 8, "valid": 32, "test": 32})
    [records] = make_records(tmp_path, [run], tiny, retry=True).values()
    assert status(records)[-1] == (3, "failed")
    assert "begun with 8 train" in records[-1].reason


def test_truncated_records_are_made_again(tiny, tmp_path):
    run = make_run()
    whole = make_records(tmp_path, [run], tiny)
    [path] = (tmp_path / "records").iterdir()
    for size in (0, 1, 700, path.stat().st_size // 2, path.stat().st_size - 1):
        os.truncate(path, size)
        assert make_records(tmp_path, [run], tiny) == whole


@pytest.mark.filterwarnings("default")
def test_what_work_prints_and_warns_of_is_kept_apart(tiny, tmp_path, capsys):
    store.prepare(tmp_path)
    events = list(execute([make_run("tiny_chatty")], Setup(out=tmp_path)))
    notes = [event.message.text for event in events if isinstance(event.message, Note)]
    assert notes == ["and full of warnings"]
    assert capsys.readouterr().out == ""


def make_in_child(out, runs, tiny):
    """A process that makes the runs, started in milliseconds: the server has imported torch."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["probstep.bench.runs.runner", *PRELOADED])
    child = context.Process(target=make_records, args=(out, runs, tiny))
    child.start()
    return child


def test_killed_ten_times_at_random_a_plan_ends_with_the_undisturbed_records(tiny, tmp_path):
    undisturbed = make_records(tmp_path / "undisturbed", PLAN, tiny)
    make_in_child(tmp_path / "warm", PLAN[:1], tiny).join()  # the server has imported torch
    moments = random.Random(0)
    for _ in range(10):
        child = make_in_child(tmp_path / "killed", PLAN, tiny)
        child.join(moments.uniform(0.0, 0.15))  # all ten together must not be enough for the plan
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL
    assert timeless(tmp_path / "killed") != undisturbed  # the kills were in time
    assert make_records(tmp_path / "killed", PLAN, tiny) == undisturbed


def test_two_processes_on_one_directory_share_the_work(tiny, tmp_path):
    children = [make_in_child(tmp_path, PLAN, tiny) for _ in range(2)]
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert timeless(tmp_path) == make_records(tmp_path / "other", PLAN, tiny)
    for path in (tmp_path / "records").iterdir():
        assert len(path.read_bytes().splitlines()) == 5  # no epoch was recorded twice


@pytest.mark.parametrize("backend", ["processes", "ray"])
class TestParallelBackends:
    """What holds for every backend whose workers are processes of their own."""

    @pytest.fixture(autouse=True)
    def installed(self, backend):
        if backend == "ray":
            pytest.importorskip("ray")

    def test_records_are_those_of_one_process_though_a_worker_is_killed(
        self, backend, tiny, tmp_path
    ):
        runs = [make_run("tiny_deadly_once"), *PLAN, make_run(rate=1e20), make_run("tiny_failing")]
        setup = {"backend": backend, "workers": Workers(3), "data_dir": tmp_path}
        found = make_records(tmp_path / backend, runs, tiny, **setup)
        assert (tmp_path / "died").exists()
        assert found == make_records(tmp_path / "serial", runs, tiny, data_dir=tmp_path)


def test_a_run_that_kills_every_worker_fails(tiny, tmp_path):
    runs = [make_run("tiny_deadly"), make_run()]
    found = make_records(tmp_path, runs, tiny, backend="processes", workers=Workers(2))
    assert found[runs[0].key][-1].reason == "3 workers were lost: its process was ended by SIGKILL"
    assert found[runs[1].key][-1].status == "done"


def test_closing_ends_the_workers(tiny, tmp_path):
    setup = Setup(out=tmp_path, backend="processes", workers=Workers(2), sources=(tiny,))
    store.prepare(tmp_path)
    with closing(execute(PLAN, setup)) as events:
        next(events)
        workers = multiprocessing.active_children()
        assert workers
    assert not any(worker.is_alive() for worker in workers)


def test_a_disk_that_fills_up_stops_the_runs_and_loses_none(tiny, tmp_path, monkeypatch):
    runs = [make_run(), make_run(seed=1)]
    syncs = iter(range(8))  # records and checkpoints of the first run, some of the second

    def sync(_):
        if next(syncs, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", sync)
        with pytest.raises(OSError, match="The disk is full"):
            make_records(tmp_path / "out", runs, tiny)
    assert len(timeless(tmp_path / "out")) == 1
    assert make_records(tmp_path / "out", runs, tiny) == make_records(tmp_path / "ok", runs, tiny)

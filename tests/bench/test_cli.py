import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from rich.console import Console
from typer.testing import CliRunner

from probstep import __version__
from probstep.bench.cli import Backend, app
from probstep.bench.commands import forecast_plan
from probstep.bench.live.scene import Watcher
from probstep.bench.plans import list_runs, parse_plan
from probstep.bench.progress import Bars, Tally
from probstep.bench.records import Record, store
from probstep.bench.runs.backends import BACKENDS, Event
from probstep.bench.runs.runner import Job, Setup
from probstep.bench.runs.training import Epoch, Note, Tick

from .bench_cases import TINY, make_records, make_run, timeless

PLAN = """
problems = ["tiny_slow"]
methods = ["sgd", "adam"]
rates = [0.1, 0.01]
"""


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text(PLAN)
    return path


def probstep(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def run(plan, out, *words):
    return probstep("run", plan, "--import", TINY, "--out", out, *words)


def answers(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_run_tells_each_finished_run_and_the_end_as_json(plan, tmp_path):
    result = run(plan, tmp_path / "out")
    assert result.exit_code == 0
    *runs, end = answers(result)
    assert [r["finished"] for r in runs] == [1, 2, 3, 4]
    assert {r["status"] for r in runs} == {"done"}
    assert end == {"event": "end", "out": str(tmp_path / "out"), "runs": 4, "done": 4}
    assert [e["event"] for e in answers(run(plan, tmp_path / "out"))] == ["end"]


def test_failed_runs_are_told_by_the_exit_code(plan, tmp_path):
    plan.write_text('problems = ["tiny", "tiny_unready"]\nmethods = ["sgd"]')
    result = run(plan, tmp_path / "out")
    assert result.exit_code == 1
    end = answers(result)[-1]
    assert end["failed"] == 1
    assert end["reasons"] == {"FileNotFoundError: tiny.gz is not here. Put it there.": 1}
    assert "--retry" in end["advice"]


def test_runs_go_on_when_nobody_listens_any_more(plan, tmp_path):
    words = ["run", plan, "--import", TINY, "--out", tmp_path / "out"]
    command = [sys.executable, "-m", "probstep.bench", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(timeout=120) == 0, errors
    assert errors == b""
    assert [records[-1].status for records in timeless(tmp_path / "out").values()] == ["done"] * 4


def test_a_dry_run_counts_and_measures_and_writes_nothing(plan, tmp_path):
    [forecast] = answers(run(plan, tmp_path / "out", "--dry-run"))
    assert (forecast["runs"], forecast["recorded"], forecast["to_do"]) == (4, 0, 4)
    assert 4 * 4 * 4 * 0.01 < forecast["seconds"] < 10
    assert not (tmp_path / "out").exists()
    run(plan, tmp_path / "out")
    [forecast] = answers(run(plan, tmp_path / "out", "--dry-run"))
    assert (forecast["recorded"], forecast["to_do"], forecast["seconds"]) == (4, 0, 0.0)


def test_runs_in_a_recorded_file_are_not_made_again(tmp_path):
    plan, file = tmp_path / "plan.toml", tmp_path / "curves.jsonl"
    plan.write_text('problems = ["rosenbrock"]\nmethods = ["sgd"]\nepochs = 1\nrates = [1e-4]')
    probstep("run", plan, "--out", tmp_path / "first")
    probstep("export", tmp_path / "first", "--curves", "--to", file)
    plan.write_text(plan.read_text().replace("[1e-4]", "[1e-4, 1e-5]"))
    found, made, end = answers(probstep("run", plan, "--out", tmp_path / "out", "--recorded", file))
    assert (found["event"], found["runs"], found["recorded"]) == ("recorded", 2, 1)
    assert made["rate"] == 1e-5
    assert end["done"] == 1


def test_a_dry_run_says_what_it_cannot_measure_and_why(plan, tmp_path):
    plan.write_text('problems = ["tiny", "tiny_unready"]\nmethods = ["sgd"]')
    [forecast] = answers(run(plan, tmp_path / "out", "--dry-run"))
    assert forecast["not_measured"] == 1
    assert forecast["reasons"] == ["FileNotFoundError: tiny.gz is not here. Put it there."]
    runs = [make_run("tiny"), make_run("tiny_unready")]
    screen = Console(file=io.StringIO(), force_terminal=True, width=200, color_system=None)
    forecast_plan(runs, Setup(out=tmp_path / "out"), screen)
    assert "plus 1 runs that could not be measured." in screen.file.getvalue()
    assert "tiny.gz is not here" in screen.file.getvalue()
    forecast_plan(runs[1:], Setup(out=tmp_path / "out"), screen)
    assert "how long they take could not be measured" in screen.file.getvalue()


def test_a_mistake_in_a_plan_is_told_without_a_traceback(plan, tmp_path):
    plan.write_text(PLAN.replace("adam", "adm"))
    result = run(plan, tmp_path / "out")
    assert result.exit_code == 1
    assert "line 3: unknown method 'adm'. Did you mean 'adam'" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_device_that_is_not_here_is_told_before_any_run(plan, tmp_path):
    result = run(plan, tmp_path / "out", "--device", "nowhere")
    assert result.exit_code == 1
    assert "--device nowhere is not to be had here" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_written_is_told_without_a_traceback(plan, tmp_path):
    (tmp_path / "file").touch()
    result = run(plan, tmp_path / "file" / "out")
    assert result.exit_code == 1
    assert "Choose another directory with --out" in result.stderr


def test_show_tells_how_far_runs_are(plan, tmp_path):
    run(plan, tmp_path / "out")
    table = probstep("show", tmp_path / "out").stdout
    assert "tiny_slow" in table
    assert "1 done" in table
    rows = [json.loads(s) for s in probstep("show", tmp_path / "out", "--json").stdout.splitlines()]
    assert [(row["method"], row["rate"]) for row in rows] == [
        ("adam", 0.01),
        ("adam", 0.1),
        ("sgd", 0.01),
        ("sgd", 0.1),
    ]


def test_results_of_a_changed_own_file_are_not_reported_as_done(plan, tmp_path):
    run(plan, tmp_path / "out")
    for path in (tmp_path / "out" / "records").iterdir():
        path.write_text(path.read_text().replace('"imported":"', '"imported":"0'))
    for words in ((), ("--dry-run",)):
        result = run(plan, tmp_path / "out", *words)
        assert result.exit_code == 1
        assert "another --import file" in result.stderr


def test_show_counts_what_it_cannot_read(plan, tmp_path):
    run(plan, tmp_path / "out")
    first, second, *_ = sorted((tmp_path / "out" / "records").iterdir())
    first.write_text('{"schema":2}\n')
    second.write_text('{"schema":"x"}\n')
    result = probstep("show", tmp_path / "out", "--json")
    assert result.exit_code == 0
    assert len(answers(result)) == 2
    assert "2 runs could not be read" in result.stderr
    refused = run(plan, tmp_path / "out")
    assert refused.exit_code == 1
    assert "newer version" in refused.stderr
    assert first.read_text() == '{"schema":2}\n'


def test_show_tells_rows_apart(tmp_path):
    runs = [make_run(), make_run(subset=9), make_run(subset=9, evaluation="paper")]
    store.prepare(tmp_path)
    for one in runs:
        with store.claim(tmp_path, one) as claim:
            claim.append(Record(run=one, epoch=0, status="running"))
    table = probstep("show", tmp_path).stdout
    assert "subset" in table
    assert "evaluation" in table
    assert "batch size" not in table
    lines = probstep("show", tmp_path, "--json").stdout.splitlines()
    shown = [(row["subset"], row["evaluation"]) for row in map(json.loads, lines)]
    assert shown == [(None, "clean"), (9, "clean"), (9, "paper")]


def test_an_error_of_the_system_names_its_file(tmp_path):
    (tmp_path / "plan.toml").mkdir()
    result = probstep("run", tmp_path / "plan.toml", "--dry-run")
    assert result.exit_code == 1
    assert "plan.toml" in result.stderr


def test_show_says_where_there_is_nothing(tmp_path):
    result = probstep("show", tmp_path)
    assert result.exit_code == 1
    assert "no records" in result.stderr


@pytest.mark.parametrize(
    ("kind", "name"), [("problems", "digits_mlp"), ("methods", "adam"), ("plans", "paper-small")]
)
def test_list_has_what_there_is(kind, name):
    assert name in probstep("list", kind).stdout


def test_list_has_what_is_imported():
    assert "tiny_deadly" in probstep("list", "problems", "--import", TINY).stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", "has no table PROBLEMS and no table METHODS"),
        ("PROBLEMS = {'digits_mlp': None}", "'digits_mlp' is taken"),
        ("x = 1\nPROBLEMS = {", "mine.py, line 2: SyntaxError"),
        ("x = 1\ny = x / 0", "mine.py, line 2: ZeroDivisionError"),
        ("PROBLEMS = [1]", "PROBLEMS must map names to rows, and is a list"),
        ("METHODS = {'mine': None}", "the row 'mine' of METHODS must have that `name`, not None"),
    ],
)
def test_an_import_that_makes_no_sense_is_told(tmp_path, text, words):
    (tmp_path / "mine.py").write_text(text)
    result = probstep("list", "problems", "--import", tmp_path / "mine.py")
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_help_explains_every_option():
    result = probstep("run", "--help")
    for option in (
        "--jobs",
        "--backend",
        "--data-dir",
        "--out",
        "--dry-run",
        "--import",
        "--retry",
    ):
        assert option in result.stdout


def test_the_command_line_knows_every_backend():
    assert {backend.value for backend in Backend} == BACKENDS.keys()


PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def hear_interrupts():
    """Let a child hear SIGINT even if these tests run in the background of a shell, which ignores it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(plan, out):
    words = ["run", plan, "--import", TINY, "--out", out, "--jobs", "2"]
    command = [sys.executable, "-m", "probstep.bench", *map(str, words)]
    process = subprocess.Popen(command, **PIPES, preexec_fn=hear_interrupts)
    before = timeless(out)
    while timeless(out) == before:
        assert process.poll() is None
        time.sleep(0.01)
    return process


def test_ctrl_c_and_kill_9_end_all_workers_and_the_runs_continue(plan, tmp_path, tiny):
    plan.write_text(PLAN + "epochs = 15")
    out = tmp_path / "out"
    with start(plan, out) as process:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)  # the pipes are closed: no worker lives on
        assert process.returncode == 130
        assert b"the same command continues" in errors
        assert b"Traceback" not in errors
    assert {records[-1].status for records in timeless(out).values()} == {"interrupted"}
    with start(plan, out) as process:
        process.kill()
        process.communicate(timeout=120)
    runs = list_runs(parse_plan(plan.read_text()))
    assert make_records(out, runs, tiny) == make_records(tmp_path / "undisturbed", runs, tiny)


def test_a_terminal_shows_a_bar_and_a_line_per_worker(tmp_path):
    first, second, *_ = list_runs(parse_plan(PLAN.replace("tiny_slow", "digits_mlp")))
    tally = Tally({first.key: 1.0, second.key: 1.0}, {first.key: 20, second.key: 20})
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    bars = Bars(screen, tally)
    record = Record(run=first, epoch=5, status="running", train_loss=0.25, effective_rate=0.5)
    job, other = (Job(run, Setup(out=tmp_path), None, -1) for run in (first, second))
    for event in (
        Event(0, job, Epoch(record)),
        Event(0, job, Tick(epoch=6, step=1, steps_per_epoch=4)),
        Event(1, other, Tick(epoch=1, step=2, steps_per_epoch=4)),
        Event(1, other, Note("look out")),
    ):
        bars.update(event)
    screen.print(bars.render())
    shown = screen.file.getvalue()
    assert "look out" in shown
    assert "0 of 2 runs" in shown
    assert "5.25/20" in shown
    assert "0.25" in shown
    assert "0.50/20" in shown
    bars.update(Event(0, job, Epoch(Record(run=first, epoch=6, status="diverged"))))
    bars.update(Event(0, job))
    assert tally.finished == 1
    assert list(bars.workers) == [1]


def test_a_record_cannot_command_the_terminal(tmp_path):
    evil = make_run("\x1b]0;owned\x07[red]", "[/bold]")
    store.prepare(tmp_path)
    with store.claim(tmp_path, evil) as claim:
        claim.append(Record(run=evil, epoch=0, status="failed", reason="\x1b[2J"))
    shown = probstep("show", tmp_path).stdout
    assert "\x1b" not in shown
    assert "[red]" in shown
    assert "[/bold]" in shown


def test_the_example_of_an_own_problem_runs(tmp_path):
    example = Path(__file__).parents[2] / "examples" / "own_problem.py"
    result = probstep(
        "run", example.with_suffix(".toml"), "--import", example, "--out", tmp_path / "out"
    )
    assert result.exit_code == 0, result.stderr
    assert answers(result)[-1]["done"] == 12


def test_the_version_is_shown():
    shown = probstep("--version")
    assert (shown.exit_code, shown.stdout.strip()) == (0, f"probstep {__version__}")


def test_live_serves_the_runs_of_a_plan_until_it_is_ended(plan, tmp_path):
    run(plan, tmp_path / "out")
    command = [sys.executable, "-m", "probstep.bench", "live", str(tmp_path / "out")]
    with subprocess.Popen(command, **PIPES, preexec_fn=hear_interrupts) as process:
        said = process.stdout.readline().decode()
        with urlopen(said.split()[2], timeout=120) as answer:
            text = answer.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=120) == 0
        assert process.stderr.read() == b""
    assert "4 of 4 runs have ended: 4 done." in text


def test_live_knows_the_runs_that_have_not_begun(plan, tmp_path):
    run(plan, tmp_path / "out")
    (one, *_) = (tmp_path / "out" / "records").iterdir()
    one.unlink()
    assert [r.key for r in Watcher(tmp_path / "out").look().upcoming] == [one.stem]


def test_live_refuses_a_directory_that_is_not_there(tmp_path):
    result = probstep("live", tmp_path / "nothing")
    assert result.exit_code == 1
    assert "There is no directory" in result.stderr

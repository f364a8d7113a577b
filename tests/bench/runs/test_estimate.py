from probstep.bench.problems import Task
from probstep.bench.runs import estimate as estimate_module
from probstep.bench.runs.estimate import estimate, long_first, measure_epoch, same_problem

from ..bench_cases import make_run


def test_a_few_steps_tell_how_long_an_epoch_takes(tiny):
    seconds = measure_epoch(make_run("tiny_slow"))
    assert 4 * 0.01 < seconds < 4 * 0.01 + 1  # four steps that wait


def test_no_evaluation_is_made_to_estimate_one(tiny, monkeypatch):
    def refuse(*_):
        raise AssertionError("a whole evaluation")

    monkeypatch.setattr(Task, "evaluate", refuse)
    assert measure_epoch(make_run("digits_logreg", batch_size=128)) > 0


def test_a_slow_step_is_measured_with_few_samples(tiny, monkeypatch):
    seen = []
    monkeypatch.setattr(estimate_module, "SLOW", 0.0)
    monkeypatch.setattr(
        estimate_module, "take_step", lambda _, __, ___, batch: seen.append(len(batch[0]))
    )
    assert measure_epoch(make_run("digits_logreg", batch_size=128)) > 0
    assert set(seen) == {estimate_module.FEW}


def test_what_cannot_be_measured_goes_first_so_that_it_fails_early(tiny):
    runs = [make_run(epochs=1), make_run(epochs=9), make_run("tiny_unready")]
    costs = estimate(runs, measure_epoch)
    assert costs[runs[2].key].seconds is None
    assert costs[runs[2].key].reason == "FileNotFoundError: tiny.gz is not here. Put it there."
    assert long_first(runs, costs) == [runs[2], runs[1], runs[0]]


def test_each_kind_of_run_is_measured_once():
    measured = []

    def measure(run):
        measured.append((run.problem, run.method))
        return 1.0

    runs = [make_run(p, m, seed=s) for p in ("a", "b") for m in ("sgd", "adam") for s in (0, 1)]
    told = []
    estimate(runs, measure, tell=told.append)
    assert told[1] == "2 of 4: adam on a"
    assert measured == [("a", "sgd"), ("a", "adam"), ("b", "sgd"), ("b", "adam")]
    measured.clear()
    estimate(runs, measure, same_problem)
    assert measured == [("a", "sgd"), ("b", "sgd")]

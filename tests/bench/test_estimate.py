from probstep.bench.estimate import estimate, long_first, measure_epoch, same_problem

from .bench_cases import make_run


def test_a_few_steps_tell_how_long_an_epoch_takes(tiny):
    seconds = measure_epoch(make_run("tiny_slow"))
    assert 4 * 0.01 < seconds < 4 * 0.01 + 1  # four steps that wait


def test_what_cannot_be_measured_goes_first_so_that_it_fails_early(tiny):
    runs = [make_run(epochs=1), make_run(epochs=9), make_run("tiny_unready")]
    seconds = estimate(runs, measure_epoch)
    assert seconds[runs[2].key] is None
    assert long_first(runs, seconds) == [runs[2], runs[1], runs[0]]


def test_each_kind_of_run_is_measured_once():
    measured = []

    def measure(run):
        measured.append((run.problem, run.method))
        return 1.0

    runs = [make_run(p, m, seed=s) for p in ("a", "b") for m in ("sgd", "adam") for s in (0, 1)]
    estimate(runs, measure)
    assert measured == [("a", "sgd"), ("a", "adam"), ("b", "sgd"), ("b", "adam")]
    measured.clear()
    estimate(runs, measure, same_problem)
    assert measured == [("a", "sgd"), ("b", "sgd")]

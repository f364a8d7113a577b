import io
import math
import pickle
import random
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
import torch

from probstep.bench.problems import Evaluation, get_problem
from probstep.bench.records import encode_record
from probstep.bench.runs.training import Epoch, Note, train

from ..bench_cases import make_run


def epochs(*arguments, **options):
    return [message for message in train(*arguments, **options) if isinstance(message, Epoch)]


def without_time(messages):
    return [encode_record(replace(message.record, time={})) for message in messages]


METHODS = ("sgd", "adam_cosine", "probstep_adam", "probstep_sgd_noise", "sls", "l4_adam")


@pytest.mark.parametrize("method", METHODS)
def test_two_equal_runs_have_equal_records_byte_for_byte(tiny, method):
    run = make_run(method=method)
    assert without_time(epochs(run)) == without_time(epochs(run))


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_equals_an_uninterrupted_one(tiny, method):
    run = make_run(method=method)
    whole = epochs(run)
    torch.manual_seed(99)  # another process has other random numbers
    rest = epochs(run, checkpoint=whole[2].checkpoint, recorded=2)
    assert without_time(rest) == without_time(whole[3:])


def test_numpy_and_python_random_numbers_are_the_runs_own(tiny):
    run = make_run("tiny_random")
    whole = epochs(run)
    random.seed(99)
    np.random.seed(99)  # noqa: NPY002
    assert without_time(epochs(run)) == without_time(whole)
    rest = epochs(run, checkpoint=whole[2].checkpoint, recorded=2)
    assert without_time(rest) == without_time(whole[3:])


def test_a_forged_state_of_random_numbers_is_not_used(tiny):
    whole = epochs(make_run())
    state = torch.load(io.BytesIO(whole[2].checkpoint), weights_only=True)
    name, words, _, *rest = state["random"]["numpy"]
    state["random"]["numpy"] = (name, words, 10**9, *rest)
    file = io.BytesIO()
    torch.save(state, file)
    again = epochs(make_run(), checkpoint=file.getvalue(), recorded=2)
    assert without_time(again) == without_time(whole)


def test_a_run_has_a_record_per_epoch_and_one_before(tiny):
    records = [message.record for message in epochs(make_run(epochs=3))]
    assert [(r.epoch, r.status) for r in records] == [
        (0, "running"),
        (1, "running"),
        (2, "running"),
        (3, "done"),
    ]
    assert records[-1].train_loss < records[0].train_loss
    assert [r.steps for r in records] == [0, 4, 8, 12]
    assert records[-1].versions["torch"] == torch.__version__


def test_records_have_the_versions_of_the_libraries_and_of_the_methods_package(tiny):
    for name in ("numpy", "scipy", "scikit-learn"):
        assert epochs(make_run(epochs=1))[0].record.versions[name] == version(name)
    pytest.importorskip("prodigyopt")
    run = make_run(method="prodigy", rate=None, epochs=1)
    assert epochs(run)[0].record.versions["prodigyopt"] == version("prodigyopt")
    assert "prodigyopt" not in epochs(make_run(epochs=1))[0].record.versions


def test_a_run_of_an_unknown_method_is_a_record(tiny):
    [only] = epochs(make_run(method="nothing_like_it"))
    assert only.record.status == "failed"


def test_forward_passes_count_training_and_probes_but_not_evaluation(tiny):
    assert epochs(make_run(epochs=2))[-1].record.forward_passes == 8
    adapted = epochs(make_run(method="probstep_sgd", epochs=2))[-1].record
    assert adapted.forward_passes == 17  # the first step proves its loss


def test_probes_are_told_per_epoch(tiny):
    first, second = (m.record.probe for m in epochs(make_run(method="probstep_sgd", epochs=2))[1:])
    counts = [sum(v for k, v in p.items() if k.startswith("probes/")) for p in (first, second)]
    assert counts == [4, 4]
    assert first["ratio_q05"] <= first["ratio_q50"] <= first["ratio_q95"]


def test_a_method_without_probes_has_no_probe_statistics(tiny):
    last = epochs(make_run())[-1].record
    assert last.probe is None
    assert last.effective_rate == 0.1


def test_a_diverging_run_is_a_record(tiny):
    last = epochs(make_run(rate=1e20))[-1]
    assert last.record.status == "diverged"
    assert "not finite in step" in last.record.reason
    assert last.record.train_loss is None
    assert last.checkpoint is None


def test_a_failing_problem_is_a_record(tiny):
    messages = epochs(make_run("tiny_failing"))
    assert [m.record.epoch for m in messages] == [0, 1, 2, 3]
    assert messages[-1].record.status == "failed"
    assert messages[-1].record.reason == "RuntimeError: the third epoch is not to be"


def test_missing_data_is_a_record(tiny):
    [only] = epochs(make_run("tiny_unready"))
    assert only.record.reason == "FileNotFoundError: tiny.gz is not here. Put it there."


def test_impossible_settings_are_a_record(tiny):
    [only] = epochs(make_run(settings={"momentum": -1.0}))
    assert only.record.status == "failed"
    assert "momentum" in only.record.reason


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_checkpoint_cannot_execute_code(tiny, tmp_path):
    trap = Trap(tmp_path / "sprung")
    file = io.BytesIO()
    torch.save({"run": make_run().key, "counters": {"epoch": 1}, "model": trap}, file)
    for data in (file.getvalue(), pickle.dumps(trap)):
        messages = list(train(make_run(), checkpoint=data, recorded=1))
        assert isinstance(messages[0], Note)
        assert messages[-1].record.status == "done"
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "damage", [lambda c: c[:0], lambda c: c[:100], lambda c: c[:-10], bytes.upper]
)
def test_a_damaged_checkpoint_costs_time_and_nothing_else(tiny, damage):
    whole = epochs(make_run())
    again = epochs(make_run(), checkpoint=damage(whole[2].checkpoint), recorded=2)
    assert without_time(again) == without_time(whole)


def test_a_checkpoint_of_another_run_or_ahead_of_the_records_is_not_used(tiny):
    whole, other = epochs(make_run()), epochs(make_run(seed=1))
    for checkpoint, recorded in ((other[2].checkpoint, 2), (whole[2].checkpoint, 1)):
        again = epochs(make_run(), checkpoint=checkpoint, recorded=recorded)
        assert without_time(again) == without_time(whole)


def with_counters(checkpoint, **counters):
    state = torch.load(io.BytesIO(checkpoint), weights_only=True)
    state["counters"].update(counters)
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


@pytest.mark.parametrize("epoch", [0.5, math.nan, -5, True, "1", None, 4, torch.tensor(1)])
def test_a_checkpoint_of_an_impossible_epoch_is_not_used(tiny, epoch):
    whole = epochs(make_run())
    forged = with_counters(whole[2].checkpoint, epoch=epoch)
    assert without_time(epochs(make_run(), checkpoint=forged, recorded=4)) == without_time(whole)


def test_a_checkpoint_of_impossible_counts_is_not_used(tiny):
    whole = epochs(make_run())
    for counters in ({"steps": -1}, {"forward_passes": 0.5}, {"seconds": "x"}):
        forged = with_counters(whole[2].checkpoint, **counters)
        assert without_time(epochs(make_run(), checkpoint=forged, recorded=2)) == without_time(
            whole
        )


def test_records_have_the_sizes_of_the_data_and_the_hash_of_own_files(tiny):
    for message in epochs(make_run()):
        assert message.record.sizes == {"train": 32, "valid": 32, "test": 32}
        assert message.record.imported == tiny.hash
    [only] = epochs(make_run("tiny_unready"))
    assert (only.record.sizes, only.record.imported) == (None, tiny.hash)
    shipped = epochs(make_run("digits_mlp", epochs=1))[0].record
    assert shipped.sizes["train"] > shipped.sizes["test"] > 0
    assert shipped.imported is None


def test_a_run_is_not_continued_with_other_data(tiny):
    whole = epochs(make_run())
    sizes = {**whole[2].record.sizes, "train": 31}
    [only] = epochs(make_run(), checkpoint=whole[2].checkpoint, recorded=2, sizes=sizes)
    assert (only.record.epoch, only.record.status) == (3, "failed")
    assert "31 train, 32 valid, 32 test samples, now there are 32 train" in only.record.reason
    assert "--out" in only.record.reason


def test_a_method_that_forgets_is_not_resumed_but_started_again(tiny):
    assert all(m.checkpoint is None for m in epochs(make_run(method="forgetful")))


def test_a_problem_that_starts_out_infinite_has_diverged_at_epoch_0(tiny, monkeypatch):
    infinite = Evaluation(loss=math.inf, accuracy=None)
    monkeypatch.setattr(type(get_problem("tiny").ready(seed=0)), "evaluate", lambda *_: infinite)
    [only] = epochs(make_run())
    assert (only.record.epoch, only.record.status) == (0, "diverged")

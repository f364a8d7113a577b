"""The hazards are what their table says, every one trains, and a run can be made again bit for bit."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from benchmarks.hazards.hazard import GRID, Hazard, Training
from benchmarks.hazards.nets import alone
from benchmarks.hazards.ordinary import ordinary
from benchmarks.hazards.suites import rows_of
from benchmarks.hazards.table import HAZARDS, choose
from benchmarks.hazards.training import look_steps, run, trace_steps
from benchmarks.hazards.ways import BASES, WAYS, find_way
from torch import nn

from benchmarks import hazards

# The classes of failures that were found in version 0.1.0, and some that the suite must not lack.
CLASSES = (
    "new task", "curriculum", "loss reweighted", "batch 1, 2, 4", "first batch", "plateau",
    "fine-tuning", "sorted batches", "sparse embeddings", "warm-up", "policy gradient",
    "adversarial", "bootstrapped", "loss is zero", "label noise", "matrix factorisation",
    "corpus changed", "layers unfrozen", "scale", "losses below zero", "clipping", "accumulation",
)  # fmt: skip
BY_NAME = {row.name: row for row in HAZARDS}


def train(name, way="plain", seed=0, steps=3):
    row = BY_NAME[name]
    return run(row, find_way(way), seed, row.rate, steps=steps)


def test_names_are_unique():
    assert len(BY_NAME) == len(HAZARDS) >= 100


def test_the_readme_counts_the_rows_and_names_every_class(tmp_path):
    text = (Path(hazards.__file__).parent / "README.md").read_text()
    assert f"{len(HAZARDS)} unusual trainings" in text
    assert f"{len(ordinary(tmp_path))} ordinary ones" in text
    assert not [row.family for row in HAZARDS if row.family not in text]


def test_every_class_is_in_both_halves_alike():
    halves = Counter((row.family, row.half) for row in HAZARDS)
    for family in {row.family for row in HAZARDS}:
        assert halves[family, "tuning"] == halves[family, "kept"] >= 1


@pytest.mark.parametrize("family", CLASSES)
def test_a_known_class_is_there(family):
    assert any(row.family == family for row in HAZARDS)


def test_a_grid_has_seven_rates_around_the_usual_one():
    grid = HAZARDS[0].grid
    assert len(grid) == 7
    assert grid[3] == HAZARDS[0].rate
    assert grid[4] == 3 * grid[3]
    assert GRID[3] == 1.0


@pytest.mark.parametrize("name", BY_NAME)
def test_a_hazard_trains(name):
    record = train(name)
    assert (record["status"], record["steps"]) == ("done", 3)
    assert record["final"] is not None
    assert record["last_rate"] == pytest.approx(BY_NAME[name].rate)


@pytest.mark.parametrize("name", ["permuted-pixels", "gan-ring", "bandit", "dropout-half"])
@pytest.mark.parametrize("way", ["plain", "ours"])
def test_a_run_can_be_made_again_bit_for_bit(name, way):
    first, second = (train(name, way, steps=12) for _ in range(2))
    assert first["final"] == second["final"]
    assert first["trace"] == second["trace"]


def test_seeds_differ():
    assert train("permuted-pixels", seed=0)["trace"] != train("permuted-pixels", seed=1)["trace"]


@pytest.mark.parametrize(
    "name", ["permuted-pixels", "four-pieces", "clip-0.1-momentum", "gan-ring"]
)
def test_ours_tells_its_rate_its_decisions_and_its_extra_passes(name):
    record = train(name, "ours", steps=30)
    assert record["status"] == "done"
    assert record["trace"]["rate"][-1] == pytest.approx(
        BY_NAME[name].rate * record["trace"]["scale"][-1], rel=1e-4
    )
    assert sum(record["decisions"].values()) > 0
    assert record["forwards"] > 0
    assert record["trace"]["forwards"][-1] == record["forwards"]


def test_a_plain_run_makes_one_pass_a_step():
    assert train("permuted-pixels")["forwards"] == 0
    assert train("four-pieces")["forwards"] == 0


def test_a_candidate_rule_is_given_by_its_factory():
    row = BY_NAME["permuted-pixels"]
    record = run(row, find_way("ours", "probstep:PaperRule"), 0, row.rate, steps=5)
    assert record["status"] == "done"


def toy(_, loss, steps=40):
    p = nn.Parameter(torch.ones(3))
    return Training(steps, alone([p], lambda t: t, partial(loss, p)))


def test_a_run_that_raises_is_a_record():
    def loss(p, t):
        if t == 2:
            raise ValueError("no such batch")
        return p.square().sum()

    record = run(Hazard("toy", partial(toy, loss=loss)), WAYS["plain"], 0, 0.1)
    assert record["status"] == "raised"
    assert "no such batch" in record["error"]


def test_a_run_that_diverges_has_no_final_loss():
    record = run(
        Hazard("toy", partial(toy, loss=lambda p, t: p.sum() * float("nan"))), WAYS["plain"], 0, 0.1
    )
    assert (record["status"], record["final"]) == ("diverged", None)
    assert record["steps"] < 40


def test_without_a_measure_the_last_tenth_of_the_losses_counts():
    def build(seed):
        return toy(seed, lambda p, t: p.sum() * 0.0 + float(t), steps=40)

    record = run(Hazard("toy", build, base="sgd"), WAYS["plain"], 0, 0.1)
    assert (record["first"], record["final"]) == (0.0, (36 + 37 + 38 + 39) / 4)


def test_a_trace_has_about_sixty_points_and_both_ends():
    steps = trace_steps(1000)
    assert {0, 1, 3, 999} <= steps
    assert 55 <= len(steps) <= 75
    assert {999, 1499} <= trace_steps(1500)


def test_the_end_is_looked_at_five_times():
    assert look_steps(1000) == {919, 939, 959, 979, 999}


def test_an_unknown_name_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"called nonsense.*permuted-pixels"):
        choose(HAZARDS, only=["nonsense"])
    with pytest.raises(ValueError, match=r"called 'nonsense'.*plain"):
        find_way("nonsense")
    with pytest.raises(ValueError, match="module:factory"):
        find_way("ours", "nonsense")


def test_halves_share_nothing():
    halves = [{row.name for row in choose(HAZARDS, half)} for half in ("tuning", "kept")]
    assert not halves[0] & halves[1]
    assert len(halves[0] | halves[1]) == len(HAZARDS)


def test_ordinary_rows_have_known_optimizers_and_every_schedule_in_both_halves(tmp_path):
    rows = ordinary(tmp_path)
    assert len({row.name for row in rows}) == len(rows)
    assert {row.base for row in rows} <= set(BASES)
    for family in ("ordinary, constant", "ordinary, linear", "ordinary, warm-up-cosine"):
        assert {row.half for row in rows if row.family == family} == {"tuning", "kept"}


def test_ordinary_rows_that_need_no_files_train(tmp_path):
    rows = {row.name: row for row in ordinary(tmp_path)}
    for name in (
        "digits_conv-adam-linear",
        "recommender-momentum-constant",
        "two_decades-adamw-linear",
    ):
        record = run(rows[name], WAYS["plain"], 0, rows[name].rate, steps=2)
        assert (record["status"], record["steps"]) == ("done", 2)


def test_ordinary_rows_ask_for_their_data():
    with pytest.raises(ValueError, match="--data"):
        rows_of("ordinary")

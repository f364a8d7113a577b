"""The pages of the default rule: bars are judged from records, can be missed, know what is missing."""

import gzip
import json
import math
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.hazards.hazard import GRID as GRID_FACTORS
from benchmarks.hazards.ordinary import SCHEDULES, SHORT, SIZES, ordinary
from benchmarks.hazards.ways import WAYS

from probstep.bench.report.numbers.bars import Bar, Finding, judge, judge_peers, worst_ratio
from probstep.bench.report.numbers.effort import early_passes, late_passes, times_to_target
from probstep.bench.report.numbers.hazards import (
    GRID,
    PEERS,
    PLAIN,
    PRESENT,
    RATES,
    compare,
)
from probstep.bench.report.numbers.parts import PARTS, read_parts
from probstep.bench.report.publish import publish
from probstep.bench.report.studies import hazards, robust
from probstep.bench.report.studies.robust import study as study_of_robust

RECORDS = Path(__file__).parents[3] / "benchmarks" / "records"
ROWS = ordinary(Path("nowhere"))  # the data are read when a row is built, not before
PART = next(iter(PARTS))


def run(way, final, *, rate=1e-3, seed=0, **more):
    """A record of the ordinary training `net-adam-constant`, or of what is named."""
    about = {"suite": "ordinary", "hazard": "net-adam-constant", "family": "ordinary, constant"}
    ended = {"status": "done", "first": 2.0, "steps": 1000, "forwards": 80.0, "score": None}
    return {
        **about, "half": "tuning", "base": "adam", "measured": "loss", "way": way[0], "label": way[1],
        "seed": seed, "rate": rate, "last_rate": rate, "final": final, **ended, **more,
    }  # fmt: skip


def grid(best=1.0, **more):
    """Runs of a whole grid, the best in the middle."""
    return [
        run(GRID, best * (1 + abs(k - RATES // 2)), rate=1e-3 * 3.0**k, **more)
        for k in range(RATES)
    ]


def every_row(ours=0.9, rows=ROWS):
    """Records of all ordinary rows: the present rule, and the grid."""
    found = []
    for row in rows:
        about = {"hazard": row.name, "family": row.family, "half": row.half, "base": row.base}
        found += [run(PRESENT, ours, score=80.0, **about), *grid(score=80.0, **about)]
    return found


@pytest.fixture
def folder(tmp_path):
    """A folder with the records that the page needs, and none that it may lack."""
    for name in robust.RECORDS:
        (tmp_path / name).write_bytes((RECORDS / name).read_bytes())
    return tmp_path


def write(folder, name, records):
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / name).write_bytes(gzip.compress(text.encode()))


def page(folder):
    return robust.write_study(robust.read_study(folder))


def bars(folder, section):
    return {bar.what: bar for bar in robust.read_study(folder).bars[section]}


# Rows beside the best fixed rate


def test_the_best_fixed_rate_is_that_of_a_whole_grid():
    (one,) = compare([run(PRESENT, 1.2), *grid()], PRESENT, GRID)
    assert (one.ratio, one.best, one.best_rate) == (1.2, 1.0, pytest.approx(1e-3 * 27))
    assert not one.is_at_edge
    assert compare([run(PRESENT, 1.2), *grid()[1:]], PRESENT, GRID) == []


def test_a_seed_counts_if_both_sides_have_it():
    records = [run(PRESENT, 1.2), run(PRESENT, 9.0, seed=1), *grid(), *grid(seed=2)]
    (one,) = compare(records, PRESENT, GRID)
    assert (one.ratio, len(one.runs)) == (1.2, 1)


def test_the_best_rate_is_chosen_over_all_shared_seeds():
    records = [run(PRESENT, 1.0), run(PRESENT, 1.0, seed=1), *grid(), *grid(best=4.0, seed=1)]
    (one,) = compare(records, PRESENT, GRID)
    assert one.reference == pytest.approx(2.0)
    assert [r["seed"] for r in one.references] == [0, 1]


def test_the_best_score_is_the_highest():
    records = [run(PRESENT, 6.0, measured="score"), *grid(measured="score")]
    (one,) = compare(records, PRESENT, GRID)
    assert (one.best, one.points, one.is_at_edge) == (4.0, 2.0, True)


@pytest.mark.parametrize(
    ("last", "final", "is_far"), [(2.6e-4, 1.0, True), (2.8e-4, 1.0, False), (2.6e-4, 1e-3, False)]
)
def test_a_last_rate_far_from_the_best_fails_unless_the_loss_is_at_its_floor(last, final, is_far):
    records = [run(PRESENT, final, last_rate=last), *grid(), run(PLAIN, 1.0)]
    (one,) = compare(records, PRESENT)
    assert (one.is_rate_far, one.is_too_bad, one.is_failed) == (is_far, False, is_far)


def test_test_scores_are_compared_where_all_runs_have_one():
    (one,) = compare([run(PRESENT, 1.0, score=81.0), *grid(score=80.0)], PRESENT, GRID)
    assert one.test_points == 1.0
    (one,) = compare([run(PRESENT, 1.0, score=81.0), *grid()], PRESENT, GRID)
    assert one.test_points is None


# Bars


@pytest.mark.parametrize(
    ("ours", "rows", "word"),
    [(1.3, 1, "yes"), (1.31, 1, "no"), (1.31, 2, "not all run"), (None, 1, "not all run")],
)
def test_a_bar_is_reached_missed_or_not_known(ours, rows, word):
    found = [] if ours is None else compare([run(PRESENT, ours), *grid()], PRESENT, GRID)
    bar = judge("worst", "at most 1.3", found, worst_ratio, {"tuning": rows})
    assert bar.word == word


def test_a_bar_that_one_half_misses_is_missed():
    halves = {"tuning": Finding("", True), "kept": Finding("", False)}
    assert Bar("", "", halves).word == "no"


@pytest.mark.parametrize(
    ("theirs", "words"), [(2.0, ["yes", "yes"]), (0.5, ["no", "no"]), (1.0, ["no", "no"])]
)
def test_ours_is_ahead_of_a_peer_only_if_it_is_better(theirs, words):
    peer = next(iter(PEERS))
    records = [run(PRESENT, 1.0), run(peer, theirs), run(peer, 0.1, hazard="other-one"), *grid()]
    bars = judge_peers(records, GRID, {"tuning": 1})
    assert [bar.word for bar in bars[:2]] == words
    assert {bar.word for bar in bars[2:]} == {"not all run"}


# Cost and time


def test_the_passes_of_the_first_thousand_steps_are_told_from_those_after():
    trace = {"step": [0, 999, 1999], "forwards": [10.0, 100.0, 130.0]}
    long = run(PRESENT, 1.0, steps=2000, forwards=130.0, trace=trace)
    assert early_passes(long) == pytest.approx(0.1)
    assert late_passes(long) == pytest.approx(0.03)
    silent = run(PRESENT, 1.0, steps=2000, forwards=130.0, trace={"step": [0, 999, 1999]})
    assert (early_passes(silent), late_passes(silent)) == (None, None)
    assert early_passes(run(PRESENT, 1.0, steps=100)) is None


def test_time_to_target_is_read_alike_on_both_sides():
    steps = [*range(0, 100, 5), 99]
    fast = {"step": steps, "loss": [max(1.0, 5 - s / 10) for s in steps]}
    slow = {"step": steps, "loss": [max(1.0, 5 - s / 20) for s in steps]}
    ours, theirs = run(PRESENT, 1.0, trace=fast), grid(trace=slow)
    (one,) = compare([ours, *theirs], PRESENT, GRID)
    mine, its = times_to_target(one)
    assert mine == pytest.approx(0.46)
    assert its == pytest.approx(0.86)
    (one,) = compare([run(PRESENT, 1.0, trace=slow), *grid(trace=fast)], PRESENT, GRID)
    assert times_to_target(one)[1] == pytest.approx(0.46)
    never = {"step": steps, "loss": [5.0] * len(steps)}
    (one,) = compare([run(PRESENT, 1.0, trace=never), *theirs], PRESENT, GRID)
    assert times_to_target(one)[0] == math.inf
    (one,) = compare([run(PRESENT, 1.0), *theirs], PRESENT, GRID)
    assert times_to_target(one) is None


# The page


def test_the_page_knows_the_rows_of_the_suite():
    counts = {"ordinary": len(SCHEDULES), "short": len(SHORT)}
    families = Counter((row.family, row.half) for row in ROWS)
    for half, count in study_of_robust.ROWS.items():
        found = [n for (f, h), n in families.items() if h == half and not f.startswith("batch")]
        assert found == [count] * sum(counts.values())
    assert {n for (f, _), n in families.items() if f.startswith("batch")} == {
        study_of_robust.SIZE_ROWS["tuning"]
    }
    assert tuple(study_of_robust.SCHEDULES) == tuple(SCHEDULES)
    assert study_of_robust.SHORT == SHORT
    assert tuple(SIZES) == study_of_robust.SIZES
    assert len(GRID_FACTORS) == RATES
    assert {way for way, _ in PEERS} == WAYS.keys() - {"plain", "grid", "ours"}


def test_a_page_without_records_of_ordinary_trainings_says_so(folder):
    text = page(folder)
    assert "have not been run" in text
    assert "Not run with this version: `python -m benchmarks.ablations" in text
    assert "figures/cells.svg" not in text
    made = publish("robust", folder, folder)
    assert [path.name for path in made] == ["robust-benchmark.md"]


def test_a_page_with_all_rows_judges_every_bar_of_them(folder):
    write(folder, "ordinary.jsonl.gz", every_row())
    for section in ("ordinary", "short", "sizes"):
        assert {bar.word for bar in bars(folder, section).values()} == {"yes"}
    assert "0.90 times that of the best" in " ".join(page(folder).split())
    made = publish("robust", folder, folder)
    assert [path.name for path in made] == ["robust-benchmark.md", "cells.svg"]
    again = {path: path.read_bytes() for path in made}
    publish("robust", folder, folder)
    assert {path: path.read_bytes() for path in made} == again


def test_every_bar_of_ordinary_trainings_can_be_missed(folder):
    records = [{**r, "score": 79.0} if r["way"] == "ours" else r for r in every_row(ours=1.4)]
    write(folder, "ordinary.jsonl.gz", records)
    for section in ("ordinary", "short", "sizes"):
        assert {bar.word for bar in bars(folder, section).values()} == {"no"}


def test_one_bad_row_misses_the_worst_and_not_the_mean(folder):
    records = every_row()
    records[0] = {**records[0], "final": 1.4}
    write(folder, "ordinary.jsonl.gz", records)
    found = bars(folder, "ordinary")
    assert found["constant rate: worst"].word == "no"
    assert found["constant rate: geometric mean"].word == "yes"
    assert f"1.40 times it (`{ROWS[0].name}`)" in " ".join(page(folder).split())


def test_a_missing_row_leaves_a_bar_open_and_is_counted(folder):
    write(folder, "ordinary.jsonl.gz", every_row(rows=ROWS[1:]))
    bar = bars(folder, "ordinary")["constant rate: worst"]
    assert bar.word == "not all run"
    assert bar.findings["tuning"].text == "0.900 (29 of 30 rows)"
    assert "not run" in page(folder)


# Parts


def absent(part, final, suite="hazards", **more):
    way = ("ours", f"without {part}" if part else "whole")
    return run(way, final, suite=suite, family="a class", **more)


def test_a_part_is_missed_where_a_hazard_fails_without_it():
    plain = [run(PLAIN, 1.0, suite="hazards")]
    records = [absent("", 1.0), absent(PART, 2.0), absent("", 1.0, "ordinary")]
    whole, first, *others = read_parts([*records, absent(PART, 1.0, "ordinary")], plain)
    assert (whole.part, whole.failed) == ("", set())
    assert (first.part, first.newly_failed) == (PART, ["net-adam-constant"])
    assert first.is_on_record
    assert first.is_missed
    assert not any(one.is_on_record for one in others)


def test_a_part_that_changes_nothing_is_not_missed():
    records = [absent(part, 1.0, suite) for part in ("", PART) for suite in ("hazards", "ordinary")]
    _, first, *_ = read_parts(records, [run(PLAIN, 1.0)])
    assert first.is_on_record
    assert not first.is_missed


def test_parts_that_the_rule_no_longer_has_are_not_shown(folder):
    records = [
        absent(part, 1.0, suite) for part in ("", PART, "gone") for suite in ("hazards", "ordinary")
    ]
    write(folder, "ablations.jsonl.gz", records)
    text = page(folder)
    assert f"| `{PART}`: {PARTS[PART]} | 1 |" in text
    assert "`gone`" not in text
    assert "Not run on both kinds:" in text


# Hazards


def test_the_page_of_hazards_shows_grid_and_peers_when_they_are_on_record(tmp_path):
    about = {"suite": "hazards", "family": "a class"}
    ways = [*PEERS, PRESENT, PLAIN, ("ours", "0.1.0")]
    records = [run(way, 1.0, **about) for way in ways]
    write(tmp_path, "hazards.jsonl.gz", records)
    without = hazards.write_study(hazards.read_study(tmp_path))
    assert "Not run: `python -m benchmarks.hazards run --ways grid`" in without
    write(tmp_path, "hazards.jsonl.gz", [*records, *grid(best=0.5, **about)])
    text = hazards.write_study(hazards.read_study(tmp_path))
    assert "| tuning | 1 | 1 | 2 |  | 2 (net-adam-constant) | 0 |" in text
    assert "Not run" not in text
    for name in PEERS.values():
        assert f"| {name} | 1 | 1 | 0 | 100% |" in text
    assert hazards.LOOKS_AT_THE_KEPT_HALF in " ".join(text.split())

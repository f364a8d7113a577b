"""The pages of the documentation say what their records say."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.hazards import summary
from benchmarks.hazards.table import HAZARDS
from typer.testing import CliRunner

from probstep.bench.cli import app
from probstep.bench.plans import list_runs, read_plan
from probstep.bench.report.numbers.best_rates import find_best_rates
from probstep.bench.report.numbers.hazards import HAZARDS as HAZARD_ROWS
from probstep.bench.report.numbers.hazards import compare, mean_ratio, read_records
from probstep.bench.report.numbers.summaries import read_summaries
from probstep.bench.report.publish import PAGES, publish
from probstep.bench.report.studies import front, gauge, hazards, suggest
from probstep.rules.watch import OPEN

from ..report_cases import make_sweep, write_records

ROOT = Path(__file__).parents[3]
RECORDS, DOCS = ROOT / "benchmarks" / "records", ROOT / "docs"


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.file])
def test_a_page_is_what_its_command_makes_of_the_records(name):
    page = PAGES[name]
    assert (DOCS / page.file).read_text() == page.write(page.read(RECORDS))


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if page.parts_of])
def test_a_part_and_its_pictures_are_what_their_command_makes_of_the_records(name, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    for file in PAGES[name].parts_of:
        (docs / file).write_bytes((DOCS / file).read_bytes())
    for path in publish(name, RECORDS, docs):
        here = DOCS / path.relative_to(docs) if docs in path.parents else ROOT / path.name
        assert path.read_text() == here.read_text(), here


def test_every_run_of_the_first_page_is_on_record_once():
    recorded = [history.run.key for history in front.read_study(RECORDS).histories]
    assert len(recorded) == len(set(recorded))
    assert set(recorded) == {run.key for run in list_runs(read_plan("front"))}


def test_a_part_needs_its_marks(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    with pytest.raises(ValueError, match=r"no .*index\.md"):
        publish("limits", RECORDS, docs)
    (docs / "index.md").write_text("nothing")
    with pytest.raises(ValueError, match="no marks '<!-- limits"):
        publish("limits", RECORDS, docs)


def test_every_run_of_the_plan_is_on_record_once():
    def without_subset(run):  # the lines of 0.1.0 do not have it
        return replace(run, subset=None).key

    recorded = [without_subset(history.run) for history in read_summaries(RECORDS / "robust.jsonl")]
    assert len(recorded) == len(set(recorded))
    assert set(recorded) == {without_subset(run) for run in list_runs(read_plan("robust"))}


def test_the_command_writes_figures_that_documents_show(tmp_path):
    made = publish("why", RECORDS, tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in made]
    assert names == ["figures/gauge.svg", "figures/rates.svg"]
    documents = "".join(path.read_text() for path in DOCS.glob("*.md"))
    for path, name in zip(made, names, strict=True):
        assert name in documents
        assert path.read_bytes() == (DOCS / name).read_bytes()


def test_a_page_without_its_records_is_told_without_a_traceback(tmp_path):
    words = ["page", "robust", "--records", str(tmp_path), "--docs", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 1
    assert "needs hazards.jsonl.gz, epoch_time.jsonl in" in " ".join(result.stderr.split())
    result = CliRunner().invoke(app, ["page", "robus"])
    assert "Did you mean 'robust'?" in result.stderr


def test_runs_are_collected_into_a_file_that_a_study_reads(tmp_path):
    out = write_records(tmp_path / "out", make_sweep())
    result = CliRunner().invoke(app, ["collect", str(out), "--to", str(tmp_path / "runs.jsonl")])
    assert result.exit_code == 0
    histories = read_summaries(tmp_path / "runs.jsonl")
    assert result.stdout == f"{len(histories)} runs in {tmp_path / 'runs.jsonl'}\n"
    assert {h.run.key for h in histories} == {records[0].run.key for records in make_sweep()}
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert all(json.loads(line)["status"] in ("done", "diverged") for line in lines)


# Hazards


def hazard(way, final, *, label="", first=1.0, measured="loss", status="done", name="one"):
    """A record of a hazard."""
    return {
        "suite": "hazards",
        "hazard": name,
        "family": "a class",
        "half": "kept",
        "base": "adam",
        "way": way,
        "label": label,
        "seed": 0,
        "final": final,
        "first": first,
        "measured": measured,
        "last_rate": 0.1,
        "status": status,
    }


FAILING = {
    "a loss of more than 1.5 times": ({"final": 0.31}, {"final": 0.2}, True),
    "a loss of 1.5 times": ({"final": 0.3}, {"final": 0.2}, False),
    "a loss below the floor": ({"final": 0.01}, {"final": 1e-9}, False),
    "a loss without an end": ({"final": None, "status": "diverged"}, {"final": 0.2}, True),
    "a score 3 points below": (
        {"final": 90.0, "measured": "score"},
        {"final": 93.0, "measured": "score"},
        True,
    ),
    "a score 2 points below": (
        {"final": 91.0, "measured": "score"},
        {"final": 93.0, "measured": "score"},
        False,
    ),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_hazard_fails_beyond_the_bar(case):
    ours, plain, is_failed = FAILING[case]
    records = [hazard("ours", label="new", **ours), hazard("plain", **plain)]
    (outcome,) = compare(records, ("ours", "new"))
    assert outcome.is_failed == is_failed


def test_a_hazard_counts_only_with_both_ways():
    records = [hazard("ours", 1.0, label="new"), hazard("plain", 1.0, name="other")]
    assert compare(records, ("ours", "new")) == []


def test_the_hazards_are_judged_as_their_own_summary_does():
    records = read_records(RECORDS / "hazards.jsonl.gz")
    for label in hazards.LABELS:
        found = compare(records, ("ours", label))
        expected = summary.compare(records, "ours", label)
        numbers = summary.headline(expected)
        assert {o.name for o in found if o.is_failed} == {r.hazard for r in expected if r.faults}
        assert len(found) == numbers["rows"]
        assert mean_ratio(found) == pytest.approx(numbers["geometric mean"])


def test_the_page_counts_the_rows_of_the_table():
    assert Counter(row.half for row in HAZARDS) == HAZARD_ROWS


# Suggested rates


def suggested(loss, seed=0, **more):
    """A line of the records of suggested rates."""
    return {"seed": seed, "rate": 0.3, "loss": loss} | more


def judge(*lines):
    best = suggest.Best(rates=(0.2, 0.5), loss=0.1, first={0: 2.0, 1: 2.0})
    return suggest.judge("suggest", ("digits_mlp", "sgd"), lines, best)


@pytest.mark.parametrize(
    ("loss", "ratio", "is_good"),
    [(0.13, 1.3, True), (0.131, 1.31, False), (0.001, 0.2, True), (None, math.inf, False)],
)
def test_a_suggested_rate_is_good_within_the_bar_of_the_best_loss(loss, ratio, is_good):
    outcome = judge(suggested(loss))
    assert outcome.ratio == pytest.approx(ratio)
    assert outcome.is_good == is_good


def test_the_losses_of_suggested_rates_are_averaged_over_seeds_by_their_logarithms():
    assert judge(suggested(0.1, seed=0), suggested(0.4, seed=1)).ratio == pytest.approx(2.0)
    assert judge(suggested(0.1, seed=0), suggested(None, seed=1)).ratio == math.inf


def test_an_interval_holds_if_any_of_the_best_rates_lies_in_it():
    inside, outside = suggested(0.1, low=0.4, high=0.9), suggested(0.1, low=0.25, high=0.4)
    assert judge(inside).holds_best == 1
    assert judge(outside).holds_best == 0
    assert judge(inside, outside).holds_best == 0.5
    assert judge(suggested(0.1)).holds_best is None


def test_a_training_with_a_schedule_has_no_fixed_rate():
    histories = list(read_summaries(RECORDS / "robust.jsonl"))
    pair, seeds = ("fmnist_logreg", "sgd"), {0, 1, 2}
    constant = [h for h in histories if "schedule" not in h.run.settings]
    assert len(constant) < len(histories)
    assert find_best_rates({pair}, histories, seeds) == find_best_rates({pair}, constant, seeds)


# Gauges


def gauged(factor, rate):
    """What is made of a gauge that said a factor of a rate, where the best ones are 0.1 to 0.4."""
    line = {"factor": factor, "variance": 0.0, "limit": "curvature", "rate": rate, "when": "end"}
    best = suggest.Best(rates=(0.1, 0.4), loss=1.0, first={})
    return gauge.judge({"problem": "digits_mlp", "method": "sgd", "times": 1.0} | line, best)


@pytest.mark.parametrize(
    ("factor", "rate", "says", "is_wrong"),
    [
        (1e-4, 0.05, "too low", False),
        (1e-4, 0.2, "too low", True),
        (1e-4, 0.8, "too low", True),
        (1.0, 0.05, "open", False),
        (1e4, 0.05, "too high", True),
        (1e4, 0.2, "too high", True),
        (1e4, 0.8, "too high", False),
    ],
)
def test_a_gauge_is_wrong_if_a_best_rate_is_not_on_the_side_that_it_names(
    factor, rate, says, is_wrong
):
    verdict = gauged(factor, rate)
    assert (verdict.says, verdict.is_wrong) == (says, is_wrong)


@pytest.mark.parametrize(("factor", "off_by"), [(0.5, 1.0), (2.0, 1.0), (8.0, 4.0), (0.125, 4.0)])
def test_a_gauge_is_off_by_the_factor_to_the_nearest_best_rate(factor, off_by):
    assert gauged(factor, rate=0.2).off_by == pytest.approx(off_by)


@pytest.mark.parametrize("limit", OPEN)
def test_intervals_hold_in_nine_of_ten_on_the_half_that_they_were_chosen_on(limit):
    verdicts = gauge.read_study(RECORDS).verdicts
    held = [v.holds for v in verdicts if (v.half, v.limit) == ("tuning", limit)]
    assert sum(held) / len(held) == pytest.approx(0.9, abs=0.02)

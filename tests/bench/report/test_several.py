"""The page on several optimizers says what its records say."""

import json

from benchmarks.several import PROBLEMS, key, runs

from probstep.bench.report.studies import several


def record(way, given, loss):
    return {
        "problem": "one",
        "pair": "A + B",
        "way": way,
        "given": given,
        "seed": 0,
        "steps": 100,
        "loss": loss,
        "rates": given,
        "forwards": 30,
    }


def page_of(folder, *records):
    (folder / "several.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return several.write_study(several.read_study(folder))


def test_ours_is_compared_with_the_best_of_the_grid(tmp_path):
    grid = [record("grid", [a, b], a + b) for a in (0.5, 1.0) for b in (0.5, 2.0)]
    page = page_of(tmp_path, *grid, record("ours", [1e-8, 1.0], 1.5), record("ours", [1, 1], 1.0))
    assert "Geometric mean of the ratios: 1.225, the worst: 1.500**, over 2 runs" in page
    assert "0.5, 0.5 (at the edge)" in page
    assert "| 0.5 | **1** | 2.5 |" in page


def test_a_run_that_diverged_is_said_and_a_case_without_ours_is_left_out(tmp_path):
    page = page_of(tmp_path, record("grid", [1, 1], None), record("grid", [1, 2], 2.0))
    assert "Nothing is on record yet." in page
    page = page_of(
        tmp_path,
        record("grid", [1, 1], None),
        record("grid", [1, 2], 2.0),
        record("ours", [1, 1], 2.0),
    )
    assert "| 1 | diverged | **2** |" in page


def test_a_run_is_known_by_what_was_given():
    keys = [
        key({"problem": p.name, "pair": p.pair, "way": way, "given": given, "seed": seed})
        for p, way, given, seed in runs(1)
    ]
    assert len(keys) == len(set(keys)) == 28 * len(PROBLEMS)

"""Records in one file, read back by the tools that they are meant for."""

import json
import math
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from probstep.bench.cli import app
from probstep.bench.export import COLUMNS, flatten, write_lines, write_parquet
from probstep.bench.records import Record, encode_record, read_curves, read_records

from .report_cases import make_records, make_run, make_sweep, write_records

PYARROW = 'pip install "probstep[parquet]"'
STRANGE = "\ud800\x00<b>'\"\\ ö"


@pytest.fixture
def out(tmp_path):
    return write_records(tmp_path / "out", make_sweep())


def export(*words):
    return CliRunner().invoke(app, ["export", *map(str, words)])


def expected(out):
    """What the records say, by run and epoch."""
    rows = [flatten(record) for records in read_records(out) for record in records]
    return {(row["run"], row["epoch"]): row for row in rows}


def test_duckdb_reads_the_parquet_file_as_the_records_are(out, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    pytest.importorskip("pyarrow", reason=PYARROW)
    assert export(out, "--parquet", "--to", tmp_path / "x.parquet").exit_code == 0
    found = duckdb.sql(f"select * from '{tmp_path}/x.parquet'")
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    assert {(row["run"], row["epoch"]): row for row in rows} == expected(out)


def test_duckdb_answers_the_same_of_parquet_lines_and_records(out, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    pytest.importorskip("pyarrow", reason=PYARROW)
    export(out, "--parquet", "--to", tmp_path / "x.parquet")
    export(out, "--lines", "--to", tmp_path / "x.jsonl")
    question = "select method, rate, min(train_loss) from '{}' group by all order by all"
    answers = [
        duckdb.sql(question.format(file)).fetchall()
        for file in (tmp_path / "x.parquet", tmp_path / "x.jsonl", out / "records" / "*.jsonl")
    ]
    assert answers[0] == answers[1] == answers[2]
    assert len(answers[0]) > 20


def test_duckdb_finds_a_setting_in_its_text(out, tmp_path):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    export(out, "--lines", "--to", tmp_path / "x.jsonl")
    question = "select distinct settings::json->>'$.betas[1]' from '{}' where method = '{}'"
    found = duckdb.sql(question.format(tmp_path / "x.jsonl", "probstep_adam")).fetchall()
    assert found == [("0.999",)]


def read_lines(pandas, path):
    return pandas.read_json(path, lines=True, dtype=False, precise_float=True)


def read_parquet(pandas, path):
    pytest.importorskip("pyarrow", reason=PYARROW)
    return pandas.read_parquet(path)


@pytest.mark.parametrize(("form", "read"), [("lines", read_lines), ("parquet", read_parquet)])
def test_pandas_reads_the_file_as_the_records_are(out, tmp_path, form, read):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    export(out, f"--{form}", "--to", tmp_path / "file")
    frame, wanted = read(pandas, tmp_path / "file"), expected(out)
    assert list(frame.columns) == list(COLUMNS)
    assert len(frame) == len(wanted)
    for row in frame.to_dict("records"):
        record = wanted[row["run"], row["epoch"]]
        assert (row["method"], row["settings"]) == (record["method"], record["settings"])
        is_missing = math.isnan(row["train_loss"])
        assert (None if is_missing else row["train_loss"]) == record["train_loss"]


@pytest.fixture
def forged(tmp_path):
    """Records that a stranger has written."""
    run = make_run(STRANGE, STRANGE, settings={STRANGE: [1e308, STRANGE]})
    records = [
        replace(record, steps=10**30, sizes={"train": 10**40}, train_loss=-1e300, reason=STRANGE,
                time={"training_seconds": "long", "finished": 7, "evaluation_seconds": math.inf})
        for record in make_records(run)
    ]  # fmt: skip
    return [records]


def test_what_no_column_can_hold_is_missing(forged, tmp_path):
    assert write_lines(forged, tmp_path / "x.jsonl") == 5
    row = json.loads((tmp_path / "x.jsonl").read_text().splitlines()[-1])
    for name in ("steps", "train_size", "training_seconds", "evaluation_seconds", "finished"):
        assert row[name] is None
    assert row["train_loss"] == -1e300
    assert row["problem"] == "?\x00<b>'\"\\ ö"


def test_forged_records_fit_into_parquet(forged, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason=PYARROW)
    assert write_parquet(forged, tmp_path / "x.parquet") == 5
    (row, *_) = parquet.read_table(tmp_path / "x.parquet").to_pylist()
    assert row == flatten(forged[0][0])


def test_every_column_of_a_record_is_in_its_row(out):
    (record, *_) = next(read_records(out))
    written = set(json.loads(encode_record(record)))
    lifted = {"sizes", "time"}  # their numbers have columns of their own
    assert written - lifted <= COLUMNS.keys()
    assert flatten(record).keys() == COLUMNS.keys()


def test_curves_are_a_line_per_ended_run_that_can_be_read_back(out, tmp_path):
    write_records(out, [make_records(make_run(seed=9))[:2]])  # still running
    result = export(out, "--curves", "--to", tmp_path / "x.jsonl")
    assert result.exit_code == 0
    runs = read_curves(tmp_path / "x.jsonl")
    ended = {r[0].run.key: r for r in read_records(out) if r[-1].is_final}
    assert {records[0].run.key for records in runs} == ended.keys()
    assert f"{len(ended)} runs" in result.stdout
    for records in runs:
        found = [record.train_loss for record in records]
        wanted = [record.train_loss for record in ended[records[0].run.key]]
        assert [loss is None for loss in found] == [loss is None for loss in wanted]
        assert found[:-1] == pytest.approx(wanted[:-1], rel=1e-5)


def test_curves_of_two_directories_come_into_one_file(out, tmp_path):
    other = write_records(tmp_path / "other", [make_records(make_run(seed=9))])
    export(out, "--curves", "--to", tmp_path / "x.jsonl")
    before = read_curves(tmp_path / "x.jsonl")
    result = export(other, "--curves", "--add", "--to", tmp_path / "x.jsonl")
    assert f"{len(before) + 1} runs" in result.stdout
    assert {r[0].run.key for r in before} < {
        r[0].run.key for r in read_curves(tmp_path / "x.jsonl")
    }


def test_only_curves_can_be_added_to(out):
    result = export(out, "--lines", "--add")
    assert result.exit_code == 1
    assert "--add goes with --curves" in result.stderr


def test_the_file_is_in_the_output_directory_unless_it_is_named(out):
    assert "export.jsonl" in export(out, "--lines").stdout
    assert len((out / "export.jsonl").read_text().splitlines()) == len(expected(out))


@pytest.mark.parametrize("words", [[], ["--lines", "--curves"]])
def test_one_form_must_be_chosen(out, words):
    result = export(out, *words)
    assert result.exit_code == 1
    assert "one of --parquet, --lines or --curves" in result.stderr


def test_a_missing_pyarrow_is_told_with_the_way_to_get_it(out, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = export(out, "--parquet")
    assert result.exit_code == 1
    assert 'pip install "probstep[parquet]"' in result.stderr
    assert not (out / "export.parquet").exists()


def test_a_directory_without_records_is_told_and_nothing_is_left_behind(tmp_path):
    result = export(tmp_path, "--lines")
    assert result.exit_code == 1
    assert "There are no records" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_through_a_link(out, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (out / "export.jsonl").symlink_to(elsewhere)
    assert export(out, "--lines").exit_code == 0
    assert elsewhere.read_text() == "mine"


def test_a_record_without_anything_is_a_row_too():
    row = flatten(Record(run=make_run(rate=None), epoch=0, status="running"))
    assert row["rate"] is None
    assert row["probe"] is None
    assert row["settings"] == "{}"

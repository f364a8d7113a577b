import glob
import json
import math
import os

import pytest

from probstep.bench.records import (
    NewerSchemaError,
    Record,
    decode_record,
    decode_records,
    encode_record,
    read_records,
    without_overcome,
)

from ..bench_cases import make_run

RUN = make_run(epochs=3)


def record(epoch, status="running", **values):
    return Record(run=RUN, epoch=epoch, status=status, **values)


def lines(*records):
    return b"".join(encode_record(r).encode() + b"\n" for r in records)


def nested(depth):
    return b'{"x":' * depth + b"1" + b"}" * depth


def test_a_record_survives_its_line_of_json():
    original = record(
        2, "diverged", reason="too far", train_loss=0.1 + 0.2, probe={"up": 3}, time={"s": 1.5}
    )
    assert decode_record(encode_record(original)) == original


def test_a_line_is_flat_strict_json_that_explains_itself():
    values = json.loads(encode_record(record(0, train_loss=math.nan, metrics={"x": math.inf})))
    assert values["problem"] == "tiny"
    assert values["run"] == RUN.key
    assert values["train_loss"] is None
    assert values["metrics"] == {"x": None}


def test_the_key_depends_on_every_setting_and_on_nothing_else():
    same = make_run(epochs=3)
    others = [
        make_run(epochs=4),
        make_run(epochs=3, seed=1),
        make_run(epochs=3, rate=0.2),
        make_run(epochs=3, settings={"momentum": 0.5}),
        make_run(epochs=3, subset=10),
    ]
    assert same.key == RUN.key == "ebe84a3391dd9185"  # another one would orphan all records
    assert len({run.key for run in [same, *others]}) == 1 + len(others)


def test_the_key_does_not_tell_a_whole_number_from_its_float():
    assert make_run(rate=1).key == make_run(rate=1.0).key


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_last_line_hides_nothing_but_itself(cut):
    data = lines(record(0), record(1))
    assert decode_records(data[:-cut])[0] == [record(0)]


@pytest.mark.parametrize(
    "damage",
    [
        b"\0" * 40 + b"\n",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b"[" * 100_000 + b"\n",
        lines(record(1)).replace(b'"probe":null', b'"probe":' + nested(900)),
        lines(record(1)).replace(b'"settings":{}', b'"settings":' + nested(900)),
        lines(record(1)).replace(b'"settings":{}', b'"settings":' + nested(300)),
        lines(record(1)).replace(b'"rate":0.1', b'"rate":1' + b"0" * 400),
        lines(record(1)).replace(b'"schema":1', b'"schema":"x"'),
        lines(record(1)).replace(b'"schema":1', b'"schema":null'),
        lines(record(1)).replace(b'"schema":1', b'"schema":true'),
        lines(record(3)),
        lines(Record(run=make_run(seed=7), epoch=1, status="running")),
        lines(record(1)).replace(b'"seed":0', b'"seed":1'),
    ],
)
def test_what_is_no_record_of_this_run_ends_the_reading(damage):
    good = lines(record(0))
    assert decode_records(good + damage + lines(record(1))) == ([record(0)], len(good))


def test_a_record_of_a_newer_schema_is_no_damage():
    newer = lines(record(1)).replace(b'"schema":1', b'"schema":99')
    for line in (newer, b'{"schema":99,"all":"else is new"}'):
        with pytest.raises(NewerSchemaError, match="newer version of probstep"):
            decode_record(line)
    with pytest.raises(NewerSchemaError):
        decode_records(lines(record(0)) + newer)


def test_marks_that_were_overcome_are_left_out():
    stopped, failed = record(1, "interrupted"), record(2, "failed", reason="no memory")
    history = [record(0), stopped, record(1), failed, record(2)]
    assert decode_records(lines(*history))[0] == history
    assert without_overcome(history) == [record(0), record(1), record(2)]
    assert without_overcome(history[:2]) == [record(0), stopped]


def write(out, name, data):
    (out / "records").mkdir(exist_ok=True)
    (out / "records" / name).write_bytes(data)


def test_records_are_read_past_empty_and_torn_files(tmp_path):
    write(tmp_path, "a.jsonl", b"")
    write(tmp_path, "b.jsonl", lines(record(0), record(1))[:-5])
    assert list(read_records(tmp_path)) == [[record(0)]]


def test_one_bad_file_does_not_hide_the_others(tmp_path):
    write(tmp_path, "a.jsonl", b'{"schema":99}\n')
    write(tmp_path, "b.jsonl", lines(record(0)).replace(b'"schema":1', b'"schema":"x"'))
    write(tmp_path, "c.jsonl", lines(record(0)))
    write(tmp_path, "d.jsonl", b"")
    (tmp_path / "records" / "e.jsonl").mkdir()
    os.mkfifo(tmp_path / "records" / "f.jsonl")
    unread = []
    assert list(read_records(tmp_path, unread)) == [[record(0)]]
    assert [path.stem for path in unread] == ["a", "b", "e", "f"]


def test_duckdb_reads_a_directory_in_one_line(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    write(tmp_path, "a.jsonl", b"")
    write(tmp_path, "b.jsonl", lines(record(0, train_loss=2.0), record(1, train_loss=1.0)))
    query = f"select method, rate, min(train_loss) from '{tmp_path}/records/*.jsonl' group by all"
    assert duckdb.sql(query).fetchall() == [("sgd", 0.1, 1.0)]


def test_pandas_reads_a_directory_in_one_line(tmp_path):
    pandas = pytest.importorskip("pandas")
    write(tmp_path, "a.jsonl", b"")
    write(tmp_path, "b.jsonl", lines(record(0, train_loss=2.0), record(1, train_loss=1.0)))
    paths = glob.glob(f"{tmp_path}/records/*.jsonl")  # noqa: PTH207  # as in the documented line
    frame = pandas.concat(pandas.read_json(path, lines=True) for path in paths)
    assert list(frame.train_loss) == [2.0, 1.0]

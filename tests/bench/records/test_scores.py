"""Scores are read fast, and say what the records say, whatever has happened to the file."""

import math

import pytest

from probstep.bench.records import Record, encode_record, read_ends, read_records, read_scores

from ..bench_cases import make_run

RUN = make_run(epochs=3)


def record(epoch, status="running", **values):
    loss = None if status in ("failed", "interrupted") else 1.0 / (epoch + 1)
    return Record(run=RUN, epoch=epoch, status=status, train_loss=loss, steps=epoch, **values)


def write(out, *lines):
    (out / "records").mkdir(exist_ok=True)
    texts = (line if isinstance(line, str) else encode_record(line) + "\n" for line in lines)
    (out / "records" / f"{RUN.key}.jsonl").write_text("".join(texts))


def told(scores):
    losses = [None if math.isnan(v) else v for v in scores.columns["train_loss"]]
    return scores.run, scores.status, scores.epoch, losses, scores.steps


def expected(records):
    scored = [r for r in records if not r.is_mark]
    steps = (scored or records)[-1].steps
    losses = [r.train_loss for r in scored]
    return records[-1].run, records[-1].status, records[-1].epoch, losses, steps


CASES = {
    "smooth": [record(0), record(1), record(2), record(3, "done")],
    "unfinished": [record(0), record(1)],
    "diverged": [record(0), Record(run=RUN, epoch=1, status="diverged", steps=7)],
    "interrupted": [record(0), record(1), record(2, "interrupted")],
    "overcome": [record(0), record(1, "interrupted"), record(1), record(2, "failed")],
    "twice interrupted": [record(0), record(1, "interrupted"), record(1, "interrupted")],
    "failed at once": [record(0, "failed")],
    "torn": [record(0), record(1), encode_record(record(2))[:50]],
    "torn but whole": [record(0), record(1), encode_record(record(2))],
    "damaged": [record(0), record(1), "no record\n", record(2)],
    "a gap": [record(0), record(2)],
    "a nested probe": [record(0, probe={"a": {"probe": [1]}}), record(1, reason=',"probe":')],
}


@pytest.mark.parametrize("name", CASES)
def test_columns_say_what_the_records_say(name, tmp_path):
    write(tmp_path, *CASES[name])
    [records] = read_records(tmp_path)
    [scores] = read_scores(tmp_path)
    assert told(scores) == expected(records)


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("damaged", "a gap")])
def test_the_end_of_a_file_says_what_its_last_records_say(name, tmp_path):
    write(tmp_path, *CASES[name])
    [records] = read_records(tmp_path)
    [scores] = read_ends(tmp_path)
    run, status, epoch, losses, steps = expected(records)
    assert told(scores)[:3] == (run, status, epoch)
    assert told(scores)[3][-1:] == losses[-1:]
    assert scores.steps == steps


@pytest.mark.parametrize("text", ["no record\n", '{"schema":99}\n', "[" * 100000, "\x00\n"])
@pytest.mark.parametrize("read", [read_ends, read_scores])
def test_what_cannot_be_read_is_counted(read, text, tmp_path):
    write(tmp_path, text)
    unread = []
    assert list(read(tmp_path, unread)) == []
    assert [path.stem for path in unread] == [RUN.key]


@pytest.mark.parametrize("read", [read_ends, read_scores])
def test_an_empty_file_is_a_run_that_has_just_been_claimed(read, tmp_path):
    write(tmp_path)
    unread = []
    assert list(read(tmp_path, unread)) == []
    assert unread == []


@pytest.mark.parametrize("read", [read_ends, read_scores])
@pytest.mark.parametrize(("number", "found"), [("1e400", math.nan), ("-1e300", -1e300)])
def test_forged_numbers_are_numbers_or_missing(read, number, found, tmp_path):
    line = encode_record(record(0)).replace('"train_loss":1.0', f'"train_loss":{number}')
    write(tmp_path, line + "\n", record(1, "done"))
    write(tmp_path, line + "\n")
    [scores] = read(tmp_path)
    assert list(scores.columns["train_loss"]) == pytest.approx([found], nan_ok=True)


@pytest.mark.parametrize("read", [read_ends, read_scores])
def test_a_record_that_is_not_of_the_run_it_names_is_not_read(read, tmp_path):
    line = encode_record(record(0)).replace('"method":"sgd"', '"method":"adam"')
    write(tmp_path, line + "\n")
    unread = []
    assert list(read(tmp_path, unread)) == []
    assert len(unread) == 1

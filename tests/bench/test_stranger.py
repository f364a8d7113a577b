"""A directory, a download or a file from a stranger can be wrong in any way, and hurts nobody."""

import contextlib
import gzip
import io
import json
import os
import pickle
import re
import tracemalloc
import zipfile
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from probstep.bench.cli import app
from probstep.bench.commands import run_plan
from probstep.bench.data import read_cifar, read_idx, read_svhn, read_text
from probstep.bench.data.mat import HEADER_BYTES, LITTLE_ENDIAN_MAT_5
from probstep.bench.data.pickled import read_pickle
from probstep.bench.plans import list_runs, parse_plan, read_plan
from probstep.bench.records import Record, encode_record, read_records, store
from probstep.bench.report.build import make_report
from probstep.bench.report.drawing.chart import Figure, Panel
from probstep.bench.runs.checkpoints import decode_checkpoint, encode_checkpoint
from probstep.bench.runs.runner import Setup, execute
from probstep.bench.runs.training import Note, train
from probstep.drawing.axes import Axis

from .bench_cases import TINY, make_records, make_run, timeless
from .fuzzing import TARGETS, fuzz
from .report_cases import make_records as make_history
from .report_cases import make_run as make_shipped_run
from .report_cases import make_sweep, write_records
from .standard_files import cifar_bytes, draw, idx_bytes

MEGABYTE = 1_000_000


def probstep(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


# --- Data sets ------------------------------------------------------------------------------------


def array_pickle(kind: bytes, state: bytes, content: bytes) -> bytes:
    """A CIFAR file whose images are an array of that type, with that state of its type."""
    return (
        b"\x80\x02}(U\x06labels](K\x01eU\x04datacnumpy.core.multiarray\n_reconstruct\n"
        b"cnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\n"
        + (b"U" + bytes([len(kind)]) + kind + b"K\x00K\x01\x87R" + state + b"b\x89")
        + (b"T" + len(content).to_bytes(4, "little") + content + b"tbu.")
    )


HONEST = b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t"


def test_a_hand_made_cifar_file_is_read_so_that_the_next_test_refuses_only_its_malice(tmp_path):
    (tmp_path / "batch").write_bytes(array_pickle(b"u1", HONEST, draw((3072,)).tobytes()))
    images, labels = read_cifar(tmp_path / "batch")
    assert torch.equal(images.flatten(), torch.from_numpy(draw((3072,))))
    assert labels.tolist() == [1]


def test_numpy_is_not_given_pointers_that_a_cifar_file_holds(tmp_path):
    """With the state of a plain type, numpy takes these bytes for addresses of objects."""
    (tmp_path / "batch").write_bytes(array_pickle(b"O8", HONEST, b"ABCDEFGH" * 3072))
    with pytest.raises(ValueError, match=r"batch is damaged .*something else than an array"):
        read_cifar(tmp_path / "batch")


@pytest.mark.parametrize("protocol", [3, 4])
def test_pickles_that_python_3_writes_are_read_as_numpy_reads_them(protocol):
    for array in (draw((5, 7)), np.asfortranarray(draw((5, 7))), draw((0, 7))):
        content = pickle.dumps({"data": array, "labels": [1, 2, 70_000]}, protocol=protocol)
        found = read_pickle(content)
        assert np.array_equal(found[b"data"], array)
        assert found[b"labels"] == [1, 2, 70_000]


@pytest.mark.parametrize(
    "content",
    [
        b".",
        b"",
        b"\x86.",
        b"}]K\x01s.",  # a key that is a list
        b"]K\x01s.",
        b"e.",
        b"h\x05.",
        b"NNR.",
        b"N)b.",
        b"c" + b"x" * 200,
        b"cnumpy\nndarray\n)\x81.",
        array_pickle(b"u1", HONEST, bytes(3072))[:-2] + b"N\x85R.",  # an array that is called
        array_pickle(b"u1", HONEST, bytes(3072))[:-2] + b"Nb.",  # and one whose state is set
        b"\x80\x04\x8c\x05numpy\x8c\x07ndarray\x93)R.",
        array_pickle(b"u1", HONEST, b"too few"),
        b"(((((((",
    ],
)
def test_a_pickle_that_makes_no_sense_is_a_plain_error(content):
    with pytest.raises(ValueError, match=r".") as caught:
        read_pickle(content)
    assert type(caught.value) is ValueError


def peak_bytes(read, path):
    tracemalloc.start()
    try:
        with pytest.raises((ValueError, OSError)) as caught:
            read(path)
        assert str(path) in str(caught.value)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(10, 28, 28), (2**31, 28, 28), (2**31,), (2**31, 2**31, 1, 1)])
def test_a_bomb_of_gzip_is_not_unpacked_beyond_what_its_shape_says(tmp_path, shape):
    head = b"\x00\x00\x08" + bytes([len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(head + bytes(100 * MEGABYTE), 1))
    assert path.stat().st_size < MEGABYTE
    assert peak_bytes(read_idx, path) < 3 * MEGABYTE


def test_what_follows_a_packed_file_is_refused(tmp_path):
    whole = gzip.compress(idx_bytes(draw((3,))))
    (tmp_path / "a.gz").write_bytes(whole * 1000)
    with pytest.raises(ValueError, match="more follows after its end"):
        read_idx(tmp_path / "a.gz")


def mat_element(kind: int, size: int, content: bytes) -> bytes:
    return kind.to_bytes(4, "little") + size.to_bytes(4, "little") + content


@pytest.mark.parametrize("claimed", [2**32 - 1, 400 * MEGABYTE])
def test_a_bomb_in_a_mat_file_is_not_unpacked(tmp_path, claimed):
    packed = zlib.compress(mat_element(14, claimed, bytes(100 * MEGABYTE)), 1)
    header = bytes(HEADER_BYTES - 4) + LITTLE_ENDIAN_MAT_5
    (tmp_path / "train.mat").write_bytes(header + mat_element(15, len(packed), packed))
    assert peak_bytes(read_svhn, tmp_path / "train.mat") < 3 * MEGABYTE


def test_a_mat_file_of_endless_small_parts_is_refused(tmp_path):
    header = bytes(HEADER_BYTES - 4) + LITTLE_ENDIAN_MAT_5
    (tmp_path / "train.mat").write_bytes(header + mat_element(1, 0, b"") * 100_000)
    with pytest.raises(ValueError, match="more than 100 elements"):
        read_svhn(tmp_path / "train.mat")


def make_device(path):
    path.symlink_to("/dev/zero")


def make_hole(path):
    """A file of 2 TB that takes no room on the disk."""
    with path.open("wb") as file:
        file.truncate(2 << 40)


OTHERS = {
    "a pipe": os.mkfifo,
    "a directory": os.mkdir,
    "a device": make_device,
    "2,199,023,255,552 bytes": make_hole,
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("read", [read_idx, read_cifar, read_svhn, read_text])
def test_something_else_in_the_place_of_a_data_file_is_told_at_once(tmp_path, other, read):
    OTHERS[other](tmp_path / "file")
    with pytest.raises(OSError, match=other) as caught:
        read(tmp_path / "file")
    assert str(tmp_path / "file") in str(caught.value)


# --- Output directories ---------------------------------------------------------------------------


@pytest.fixture
def precious(tmp_path_factory):
    """A folder with a file that nobody may change, and nothing may be added to it."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "precious").write_text("mine")
    yield folder
    assert [path.name for path in folder.iterdir()] == ["precious"]
    assert (folder / "precious").read_text() == "mine"


@pytest.fixture
def unpainted(monkeypatch):
    """Without figures as PNG and PDF, which take seconds."""
    monkeypatch.setattr("probstep.bench.report.build._write_prints", lambda *_: None)


@pytest.fixture
def simple(monkeypatch):
    """With one figure only, and a simple one."""
    figure = Figure("one", "One", "", [[Panel("", Axis(0, 1), Axis(0, 1))]], "x", "y")
    monkeypatch.setattr("probstep.bench.report.build.draw_figures", lambda _: [figure])


@pytest.mark.parametrize("name", ["report.html", "figures/one.png", "figures/one.pdf"])
def test_a_report_is_not_written_through_a_link_in_the_place_of_a_file(
    tmp_path, precious, simple, name
):
    out = write_records(tmp_path, [make_history(make_shipped_run())])
    (out / "report" / "figures").mkdir(parents=True)
    (out / "report" / name).symlink_to(precious / "precious")
    result = probstep("report", out)
    assert result.exit_code == 1
    assert f"{out / 'report' / name} cannot be written: It is a symbolic link" in result.stderr
    assert "--to" in result.stderr


@pytest.mark.parametrize("name", ["report", "report/figures"])
def test_a_report_is_not_written_through_a_link_in_the_place_of_a_folder(tmp_path, precious, name):
    out = write_records(tmp_path, [make_history(make_shipped_run())])
    (out / name).parent.mkdir(exist_ok=True)
    (out / name).symlink_to(precious)
    result = probstep("report", out)
    assert result.exit_code == 1
    assert f"{out / name}: It is a symbolic link, not a directory" in result.stderr


@pytest.mark.parametrize("kind", ["a pipe", "a directory"])
def test_a_report_is_not_written_where_no_file_is(tmp_path, unpainted, kind):
    out = write_records(tmp_path, [make_history(make_shipped_run())])
    (out / "report").mkdir()
    OTHERS[kind](out / "report" / "report.html")
    with pytest.raises(OSError, match=f"report.html cannot be written: It is {kind}, not a file"):
        make_report(out)


def test_a_report_goes_where_the_user_says_even_through_a_link(tmp_path, unpainted):
    out = write_records(tmp_path / "out", [make_history(make_shipped_run())])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    make_report(out, tmp_path / "link")
    assert (tmp_path / "elsewhere" / "report.html").exists()


@pytest.mark.parametrize("folder", ["records", "checkpoints"])
def test_runs_are_not_written_through_a_link_in_the_place_of_a_folder(tmp_path, precious, folder):
    (tmp_path / folder).symlink_to(precious)
    with pytest.raises(OSError, match="It is a symbolic link"):
        store.prepare(tmp_path)


def test_records_are_not_added_to_a_file_that_has_a_second_name(tmp_path, precious):
    store.prepare(tmp_path)
    os.link(precious / "precious", tmp_path / "records" / f"{make_run().key}.jsonl")
    with pytest.raises(OSError, match="It has a second name"):
        store.claim(tmp_path, make_run())


@pytest.mark.parametrize("kind", ["a pipe", "a directory", "a device"])
@pytest.mark.parametrize("place", ["checkpoints/{}.pt", "records/{}.jsonl", "records/{}.damaged"])
def test_something_else_in_the_place_of_a_runs_file_ends_the_command_at_once(
    tmp_path, tiny, kind, place
):
    run = make_run()
    store.prepare(tmp_path)
    (tmp_path / "records" / f"{run.key}.jsonl").write_text("damage")
    path = tmp_path / place.format(run.key)
    path.unlink(missing_ok=True)
    OTHERS[kind](path)
    expected = "It is a symbolic link|It is a device" if kind == "a device" else f"It is {kind}"
    with pytest.raises(OSError, match=expected) as caught:
        list(execute([run], Setup(out=tmp_path, sources=(tiny,))))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", OTHERS)
def test_something_else_among_the_records_is_passed_over_and_counted(tmp_path, kind):
    out = write_records(tmp_path, [make_history(make_shipped_run())])
    OTHERS[kind](out / "records" / "other.jsonl")
    unread = []
    assert len(list(read_records(out, unread))) == 1
    assert [path.name for path in unread] == ["other.jsonl"]


# --- Plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["...toml", "..toml"])
def test_a_plans_name_does_not_lead_out_of_the_runs(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text('problems = ["tiny"]\nmethods = ["sgd"]')
    result = probstep("run", name, "--import", TINY)
    assert result.exit_code == 1
    assert f"{name} does not name an output directory. Name one with --out." in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("other", OTHERS)
def test_something_else_in_the_place_of_a_plan_is_told_at_once(tmp_path, other):
    OTHERS[other](tmp_path / "plan.toml")
    with pytest.raises(ValueError, match=f"Cannot read the plan .*plan.toml: .*{other}"):
        read_plan(str(tmp_path / "plan.toml"))


START = 'problems = ["digits_mlp"]\nmethods = ["sgd"]\n'
ENDLESS = {
    "more runs than can be counted": "vary = { momentum = [" + "0.1," * 99 + "], dampening = ["
    "" + "0.1," * 99 + "], weight_decay = [" + "0.1," * 99 + "] }",
    "more pairs than can be counted": "runs = [{problems = ["
    "" + '"digits_mlp",' * 999 + "], methods = [" + '"sgd",' * 999 + "]}]",
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_plan_without_end_is_refused_before_its_runs_are_listed(case):
    with pytest.raises(ValueError, match=r"mine: the plan has [\d,]+ runs or more"):
        parse_plan(START + ENDLESS[case], "mine")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("about = " + "[" * 5000, "not TOML"),
        ("epochs = " + "9" * 5000, "not TOML"),
        ("epochs = 99999999999999999999", "less than or equal to 1000000000"),
        ("seeds = [99999999999999999999]", "less than 9223372036854775808"),
        ("settings = { momentum = nan }", "nan"),
        ("settings = { momentum = -inf }", "inf"),
        ("vary = { momentum = [nan] }", "nan"),
        ("settings = { momentum = " + "[" * 30 + "]" * 30 + " }", "nested too deeply"),
        ("rates = [1e400]", "a rate is a positive number"),
        ("rates = [1" + "0" * 400 + "]", "a rate is a positive number"),
    ],
)
def test_a_plan_with_values_that_no_run_can_have_is_told(text, words):
    with pytest.raises(ValueError, match=words) as caught:
        list_runs(parse_plan(START + text, "mine"))
    assert str(caught.value).startswith("mine")


def test_a_plan_that_is_no_text_is_named(tmp_path):
    (tmp_path / "plan.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"plan\.toml: it is not UTF-8"):
        read_plan(str(tmp_path / "plan.toml"))


def test_of_many_mistakes_in_a_plan_the_first_are_told():
    with pytest.raises(ValueError, match="seeds") as caught:
        parse_plan(START + "seeds = [" + "-1," * 5000 + "]", "mine")
    assert len(str(caught.value).splitlines()) == 20


# --- Numbers and texts ----------------------------------------------------------------------------

FORGED = ["-1e300", "1e300", "NaN", "1e400", "-Infinity"]


def write_forged(out, field, number, runs=None):
    """The runs of a small sweep; the last record of each has the number in the place of its own."""
    (out / "records").mkdir(parents=True)
    for records in runs or make_sweep(rates=(1e-3, 1.0)):
        *lines, last = [encode_record(record) for record in records]
        lines.append(re.sub(rf'"{field}":[^,}}]*', f'"{field}":{number}', last))
        path = out / "records" / f"{records[0].run.key}.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines))
    return out


SHOWN = {"-1e300": "-1e+300", "1e300": "1e+300"}
REASONS = {"NaN": "on record is nan", "1e400": "on record is inf", "-Infinity": "on record is -inf"}


@pytest.mark.parametrize("number", FORGED)
@pytest.mark.parametrize("field", ["train_loss", "test_accuracy", "effective_rate"])
def test_forged_numbers_are_shown_as_such(tmp_path, field, number):
    out = write_forged(tmp_path / "out", field, number)
    table = probstep("show", out)
    assert table.exit_code == 0
    reason = REASONS.get(number, "") if field == "train_loss" else ""
    assert SHOWN.get(number, reason) in table.stdout
    lines = probstep("show", out, "--json").stdout.splitlines()
    values = [json.loads(line, parse_constant=pytest.fail)[field] for line in lines]
    finite = {float(number)} if number in SHOWN else set()
    assert finite <= set(values) <= finite | {None}  # of a run that diverged there is no value


@pytest.mark.parametrize("number", ["-1e300", "NaN", "1e400"])
def test_forged_losses_are_reported_as_such(tmp_path, unpainted, number):
    out = write_forged(tmp_path / "out", "train_loss", number)
    result = probstep("report", out)
    assert result.exit_code == 0, result.stderr
    page = (out / "report" / "report.html").read_text()
    assert {"-1e300": "-1e300", "NaN": "record is nan", "1e400": "record is inf"}[number] in page


@pytest.mark.parametrize("number", FORGED)
@pytest.mark.parametrize(
    "field", ["test_loss", "train_accuracy", "test_accuracy", "effective_rate", "training_seconds"]
)
def test_forged_numbers_anywhere_do_not_stop_the_page(tmp_path, unpainted, field, number):
    assert make_report(write_forged(tmp_path / "out", field, number)).page.exists()


@pytest.mark.parametrize("field", ["steps", "forward_passes", "seed", "epochs"])
def test_whole_numbers_beyond_all_floats_do_not_stop_the_page(tmp_path, unpainted, field):
    huge = 10**400
    if field in ("seed", "epochs"):
        run = replace(make_shipped_run(epochs=2), **{field: huge})
        records = [Record(run=run, epoch=0, status="diverged", reason="it was too far")]
        out = write_records(tmp_path / "out", [records])
    else:
        out = write_forged(tmp_path / "out", field, huge)
    assert make_report(out).page.exists()
    assert probstep("show", out).exit_code == 0


@pytest.mark.parametrize("epochs", [0, -1])
def test_runs_without_epochs_do_not_stop_the_page(tmp_path, unpainted, epochs):
    runs = [make_shipped_run(method=m, epochs=epochs) for m in ("sgd", "probstep_sgd")]
    ends = [[Record(run=run, epoch=0, status="done", train_loss=0.5)] for run in runs]
    assert make_report(write_records(tmp_path, ends)).page.exists()


@pytest.mark.parametrize("number", FORGED)
def test_forged_records_do_not_stop_a_forecast(tmp_path, tiny, number):
    run = make_run()
    make_records(tmp_path / "whole", [run], tiny)
    [records] = read_records(tmp_path / "whole")
    out = write_forged(tmp_path / "out", "train_loss", number, [records[:2]])
    (tmp_path / "plan.toml").write_text('problems = ["tiny"]\nmethods = ["sgd"]\nrates = [0.1]')
    words = ("run", tmp_path / "plan.toml", "--import", TINY, "--out", out)
    forecast = json.loads(probstep(*words, "--dry-run").stdout, parse_constant=pytest.fail)
    assert forecast["runs"] == 1
    assert probstep(*words).exit_code == 0


def test_a_diverged_run_is_told_in_strict_json(tmp_path, tiny):
    runs = [make_run(method="sgd", rate=1e30)]
    screen = Console(file=io.StringIO(), width=200)
    run_plan(runs, Setup(out=tmp_path, sources=(tiny,)), screen)
    told = [json.loads(s, parse_constant=pytest.fail) for s in screen.file.getvalue().splitlines()]
    assert told[0]["status"] == "diverged"


EVIL = "\x1b]0;owned\x07\x1b[2J"


def test_a_strangers_reason_cannot_command_the_terminal(tmp_path, tiny):
    run = make_run()
    store.prepare(tmp_path)
    with store.claim(tmp_path, run) as claim:
        made_by = make_records(tmp_path / "whole", [run], tiny)[run.key][0].imported
        claim.append(Record(run=run, epoch=0, status="failed", reason=EVIL, imported=made_by))
    screen = Console(file=io.StringIO(), force_terminal=True, width=200, color_system=None)
    run_plan([run], Setup(out=tmp_path, sources=(tiny,)), screen)
    assert "1 failed: " in screen.file.getvalue()
    assert "\x1b]" not in screen.file.getvalue()
    assert "\x1b[2J" not in screen.file.getvalue()


def test_what_an_error_quotes_from_a_strangers_record_cannot_command_the_terminal(tmp_path):
    out = tmp_path / "out"
    store.prepare(out)
    with store.claim(out, make_run()) as claim:
        claim.append(Record(run=make_run(), epoch=0, status="running", imported=EVIL))
    (out / "records" / f"{EVIL}.jsonl").write_text("damage")
    (tmp_path / "plan.toml").write_text(
        'problems = ["tiny"]\nmethods = ["sgd"]\nrates = [0.1]\nepochs = 4\nbatch_size = 8'
    )
    with store.claim(out, make_run(batch_size=8)) as claim:
        claim.append(Record(run=claim.run, epoch=0, status="running", imported=EVIL))
    refused = probstep("run", tmp_path / "plan.toml", "--import", TINY, "--out", out)
    assert "another --import file" in refused.stderr
    shown = probstep("show", out)
    assert "1 run could not be read" in shown.stderr
    assert "\x1b" not in refused.stderr + shown.stderr + shown.stdout


# --- Checkpoints ----------------------------------------------------------------------------------


def test_a_packed_checkpoint_is_not_unpacked():
    whole = zipfile.ZipFile(io.BytesIO(encode_checkpoint({"x": torch.zeros(10 * MEGABYTE // 4)})))
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        for info in whole.infolist():
            archive.writestr(info.filename, whole.read(info))
    assert len(bomb.getvalue()) < MEGABYTE
    assert torch.load(io.BytesIO(bomb.getvalue()), weights_only=True)["x"].sum() == 0  # torch would
    with pytest.raises(ValueError, match=r"it would unpack to 10,0\d\d,\d\d\d bytes"):
        decode_checkpoint(bomb.getvalue())


def test_a_tensor_that_is_larger_than_what_is_stored_of_it_is_refused():
    deep = [torch.zeros(1).expand(10**12)]
    for _ in range(50):
        deep = [deep, deep]  # as a tree it has 2**50 leaves
    with pytest.raises(ValueError, match="a tensor of 1,000,000,000,000 numbers"):
        decode_checkpoint(encode_checkpoint({"x": deep}))


def checkpoint_of(program: bytes) -> bytes:
    """A checkpoint whose pickle is this one."""
    file = io.BytesIO()
    whole = zipfile.ZipFile(io.BytesIO(encode_checkpoint({})))
    with zipfile.ZipFile(file, "w") as archive:
        for info in whole.infolist():
            content = program if info.filename.endswith("data.pkl") else whole.read(info)
            archive.writestr(info.filename, content)
    return file.getvalue()


def test_a_hand_made_checkpoint_is_read_so_that_the_next_test_refuses_only_its_malice():
    program = b"\x80\x02})" + b"q\x01h\x01\x86" * 3 + b"(K\x01K\x02tsK\x03](K\x04K\x05es."
    [(first, one), (three, rest)] = decode_checkpoint(checkpoint_of(program)).items()
    assert first == ((((), ()), ((), ())), (((), ()), ((), ())))
    assert one == (1, 2)
    assert (three, rest) == (3, [4, 5])


@pytest.mark.parametrize(
    "key",
    [
        b")" + b"\x85" * 1_000_000,  # torch lets Python hash it, which ends the process
        b")" + b"q\x01h\x01\x86" * 60,  # or which lasts for ever
        b"(" + b")" * 200_000 + b"t",
    ],
)
def test_a_checkpoint_cannot_make_python_hash_without_end(key):
    with pytest.raises(ValueError, match="it nests tuples without end"):
        decode_checkpoint(checkpoint_of(b"\x80\x02}" + key + b"K\x01s."))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        pickle.dumps({"run": 1}),
        encode_checkpoint({}),
        encode_checkpoint({"a": 1}),
    ],
)
def test_a_checkpoint_that_is_none_lets_the_run_start_anew(tmp_path, tiny, data):
    run = make_run()
    whole = make_records(tmp_path, [run], tiny)
    first, *rest = train(run, checkpoint=data, recorded=1)
    assert isinstance(first, Note)
    assert "its checkpoint is of no use" in first.text
    assert [replace(m.record, time={}) for m in rest] == whole[run.key]
    assert timeless(tmp_path) == whole


# --- Anything -------------------------------------------------------------------------------------

COUNTS = {"plan": 150, "records": 40, "checkpoint": 40}


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_files_are_used_or_refused_by_name(tmp_path, tiny, name):
    """`benchmarks/fuzz.py` does the same for as long as one likes."""
    count = COUNTS.get(name, 200)
    assert sum(fuzz(name, 0, count, tmp_path / "fuzz").values()) == count
    assert [path.name for path in tmp_path.iterdir()] == ["fuzz"]


def test_a_pickle_with_any_byte_changed_is_read_or_a_plain_error():
    whole = cifar_bytes(1)
    for place in [k for k in range(len(whole)) if k < 250 or k > len(whole) - 60]:
        for value in range(0, 256, 17):
            with contextlib.suppress(ValueError):
                read_pickle(whole[:place] + bytes([value]) + whole[place + 1 :])

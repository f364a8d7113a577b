import errno
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from probstep.bench.records import NewerSchemaError, Record, decode_records, encode_record, store

from ..bench_cases import make_run

RUN = make_run()


def record(epoch, status="running"):
    return Record(run=RUN, epoch=epoch, status=status)


@pytest.fixture
def out(tmp_path):
    store.prepare(tmp_path)
    return tmp_path


def records_path(out):
    return out / "records" / f"{RUN.key}.jsonl"


def test_records_are_appended_and_found_again(out):
    with store.claim(out, RUN) as claim:
        assert claim.append(record(0))
        assert claim.append(record(1))
    with store.claim(out, RUN) as claim:
        assert claim.records == [record(0), record(1)]


def test_an_epoch_is_recorded_once(out):
    with store.claim(out, RUN) as claim:
        claim.append(record(0))
        assert not claim.append(record(0))
    assert decode_records(records_path(out).read_bytes())[0] == [record(0)]


def test_a_run_is_claimed_by_one_at_a_time(out):
    with store.claim(out, RUN):
        assert store.claim(out, RUN) is None
    with store.claim(out, RUN) as claim:
        assert claim is not None


def test_a_claim_ends_with_its_process_however_that_ends(out):
    code = (
        "import sys, time; from pathlib import Path; sys.path.insert(0, sys.argv[2]);"
        "from bench_cases import make_run; from probstep.bench.records import store;"
        "claim = store.claim(Path(sys.argv[1]), make_run()); print('mine', flush=True);"
        "time.sleep(60)"
    )
    here = Path(__file__).parents[1]
    other = subprocess.Popen([sys.executable, "-c", code, out, here], stdout=subprocess.PIPE)
    with other:
        assert other.stdout.readline() == b"mine\n"
        assert store.claim(out, RUN) is None
        other.send_signal(signal.SIGKILL)
    with store.claim(out, RUN) as claim:
        assert claim is not None


def test_a_torn_line_is_moved_away_and_written_again(out):
    whole = encode_record(record(0)) + "\n" + encode_record(record(1)) + "\n"
    records_path(out).write_text(whole[:-20])
    with store.claim(out, RUN) as claim:
        assert claim.records == [record(0)]
        claim.append(record(1))
    assert records_path(out).read_text() == whole
    assert records_path(out).with_suffix(".damaged").read_text() == whole[:-20].split("\n")[1]


def test_records_of_a_newer_version_are_refused_and_not_touched(out):
    newer = encode_record(record(0)).replace('"schema":1', '"schema":2') + "\n"
    records_path(out).write_text(newer)
    with pytest.raises(NewerSchemaError, match=r"Update probstep, or .* --out"):
        store.claim(out, RUN)
    assert [path.name for path in (out / "records").iterdir()] == [records_path(out).name]
    assert records_path(out).read_text() == newer


def test_a_checkpoint_is_replaced_whole(out):
    with store.claim(out, RUN) as claim:
        assert claim.load_checkpoint() is None
        claim.save_checkpoint(b"old")
        claim.save_checkpoint(b"new")
        assert claim.load_checkpoint() == b"new"
        assert [p.name for p in (out / "checkpoints").iterdir()] == [f"{RUN.key}.pt"]
        claim.drop_checkpoint()
        assert claim.load_checkpoint() is None


@pytest.fixture
def precious(tmp_path_factory):
    path = tmp_path_factory.mktemp("home") / "precious"
    path.write_text("mine")
    yield path
    assert path.read_text() == "mine"


def test_records_are_not_written_through_a_symbolic_link(out, precious):
    records_path(out).symlink_to(precious)
    with pytest.raises(OSError, match="It is a symbolic link"):
        store.claim(out, RUN)


def test_damage_is_not_moved_through_a_symbolic_link(out, precious):
    records_path(out).write_text("damage")
    records_path(out).with_suffix(".damaged").symlink_to(precious)
    with pytest.raises(OSError, match="It is a symbolic link"):
        store.claim(out, RUN)
    assert records_path(out).read_text() == "damage"


@pytest.mark.parametrize("suffix", [".pt", ".new"])
def test_checkpoints_are_not_written_through_a_symbolic_link(out, precious, suffix):
    with store.claim(out, RUN) as claim:
        claim.checkpoint_path.with_suffix(suffix).symlink_to(precious)
        claim.save_checkpoint(b"new")
        assert claim.load_checkpoint() == b"new"
        assert not claim.checkpoint_path.is_symlink()


def test_the_first_file_is_not_made_through_a_symbolic_link(out, precious):
    (out / "records" / ".writable").symlink_to(precious)
    with pytest.raises(OSError, match="It is a symbolic link"):
        store.prepare(out)


@pytest.fixture
def little_space():
    """Files may not grow beyond a few bytes more than a record: a full disk, for this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(encode_record(record(0))) + 100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_keeps_what_was_recorded_and_says_what_to_do(out, little_space):
    with store.claim(out, RUN) as claim:
        claim.append(record(0))
        with pytest.raises(OSError, match=r"limit on file sizes.*what was recorded is kept"):
            claim.append(record(1))
        with pytest.raises(OSError, match="limit on file sizes"):
            claim.save_checkpoint(b"x" * 10_000)
    assert records_path(out).read_text() == encode_record(record(0)) + "\n"
    assert list((out / "checkpoints").iterdir()) == []


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read-only")]
)
def test_an_error_of_the_disk_names_the_remedy(out, monkeypatch, number, words):
    def refuse(descriptor):
        raise OSError(number, os.strerror(number))

    with store.claim(out, RUN) as claim:
        monkeypatch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError, match=words):
            claim.append(record(0))
    assert records_path(out).read_bytes() == b""


def test_a_file_in_the_way_is_told_at_once(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Choose another directory with --out"):
        store.prepare(tmp_path / "file" / "out")


@pytest.fixture
def unprivileged():
    """Nothing is read-only to root, so a test that root runs is somebody else for a while."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    yield
    if was_root:
        os.seteuid(0)


def test_a_read_only_directory_is_told_at_once(tmp_path, unprivileged):
    if os.access(tmp_path, os.W_OK, effective_ids=True):
        tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="You may not write there"):
        store.prepare(tmp_path / "out")


def test_rereading_finds_what_an_interruption_hid(out):
    with store.claim(out, RUN) as claim:
        claim.append(record(0))
        claim.records.clear()
        claim.reread()
        assert claim.records == [record(0)]

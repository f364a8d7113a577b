"""Downloads are complete and right, or leave nothing behind; served from this machine."""

import hashlib
import io
import os
import tarfile
import tempfile
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from probstep.bench.data import CATALOG, Files, data_directory, download_files, find_folder
from probstep.bench.data.__main__ import main
from probstep.bench.data.catalog import get_files

from ..standard_files import cifar_bytes, tar_bytes

CONTENT = os.urandom(300_000)
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Serves /whole, breaks off in /broken, knows nothing else but what `served` holds."""

    served: dict[str, bytes]

    def do_GET(self) -> None:
        name = self.path.strip("/")
        if name not in self.served:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.served[name])))
        self.end_headers()
        content = self.served[name]
        self.wfile.write(content[: len(content) // 2] if name == "broken" else content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve(monkeypatch):
    """Start a server that has these files; returns its address."""
    servers = []

    def start(served: dict[str, bytes]) -> str:
        handler = type("Handler", (Handler,), {"served": served})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def one_file(url: str, name: str, md5: str = MD5) -> Files:
    return Files("one", "One", "one/raw", (name,), url, {name: md5})


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def test_a_download_is_where_the_reader_looks(tmp_path, serve):
    files = one_file(serve({"whole": CONTENT}), "whole")
    folder = download_files(files, tmp_path)
    assert folder == find_folder(files, tmp_path)
    assert (folder / "whole").read_bytes() == CONTENT
    assert files_in(tmp_path) == ["whole"]


def test_a_download_shows_its_progress_on_standard_error(tmp_path, serve, capsys):
    download_files(one_file(serve({"whole": CONTENT}), "whole"), tmp_path)
    printed = capsys.readouterr()
    assert "whole" in printed.err
    assert "300.0/300.0 kB" in printed.err
    assert not printed.out


def test_a_file_that_is_already_right_is_not_fetched_again(tmp_path, serve):
    files = one_file(serve({"whole": CONTENT}), "whole")
    download_files(files, tmp_path)
    download_files(replace(files, url=serve({})), tmp_path)


FAILURES = {
    "interrupted": (
        "broken",
        MD5,
        OSError,
        "broke off after 150000 of 300000 bytes|IncompleteRead",
    ),
    "wrong checksum": ("whole", "0" * 32, ValueError, f"md5 {MD5}, but 0+ was expected"),
    "missing": ("absent", MD5, OSError, "answered 404"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failed_download_says_why_and_leaves_no_half_file(tmp_path, serve, case):
    name, md5, error, message = FAILURES[case]
    url = serve({"whole": CONTENT, "broken": CONTENT})
    with pytest.raises(error, match=message) as caught:
        download_files(one_file(url, name, md5), tmp_path)
    assert url + name in str(caught.value)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("case", FAILURES)
def test_a_failed_download_leaves_the_file_that_was_there(tmp_path, serve, case):
    name, md5, error, _ = FAILURES[case]
    (tmp_path / "one/raw").mkdir(parents=True)
    (tmp_path / "one/raw" / name).write_bytes(b"subset")
    with pytest.raises(error):
        download_files(one_file(serve({"whole": CONTENT, "broken": CONTENT}), name, md5), tmp_path)
    assert (tmp_path / "one/raw" / name).read_bytes() == b"subset"


def test_a_server_that_is_not_there_is_named(tmp_path):
    with pytest.raises(OSError, match=r"http://127\.0\.0\.1:9/whole could not be downloaded"):
        download_files(one_file("http://127.0.0.1:9/", "whole"), tmp_path)
    assert files_in(tmp_path) == []


def test_an_interruption_by_the_user_leaves_no_half_file(tmp_path, serve, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rich.progress.Progress.advance", interrupt)
    with pytest.raises(KeyboardInterrupt):
        download_files(one_file(serve({"whole": CONTENT}), "whole"), tmp_path)
    assert files_in(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere; run as another user")
def test_a_read_only_directory_is_named_with_a_remedy(tmp_path, serve):
    tmp_path.chmod(0o500)
    with pytest.raises(OSError, match="Name a writable data directory"):
        download_files(one_file(serve({"whole": CONTENT}), "whole"), tmp_path)
    tmp_path.chmod(0o700)


def test_a_directory_that_refuses_files_is_named_with_a_remedy(tmp_path, serve, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    with pytest.raises(
        OSError, match=r"Permission denied\. Name a writable data directory"
    ) as caught:
        download_files(one_file(serve({"whole": CONTENT}), "whole"), tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_data_directory_that_is_a_file_is_named_with_a_remedy(tmp_path, serve):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="Name a writable data directory"):
        download_files(one_file(serve({"whole": CONTENT}), "whole"), tmp_path / "file")


def archive_of(url: str, content: bytes) -> Files:
    md5 = hashlib.md5(content).hexdigest()
    return replace(CATALOG["cifar100"], url=url, downloads={"cifar-100-python.tar.gz": md5})


def test_an_archive_is_unpacked_and_removed(tmp_path, serve):
    train, test = cifar_bytes(5, "fine_labels"), cifar_bytes(3, "fine_labels")
    members = {"cifar-100-python/train": train, "cifar-100-python/test": test}
    content = tar_bytes(members)
    url = serve({"cifar-100-python.tar.gz": content})
    folder = download_files(archive_of(url, content), tmp_path)
    assert (folder / "train").read_bytes() == train
    assert files_in(tmp_path) == ["test", "train"]


def test_only_the_files_that_are_needed_leave_an_archive(tmp_path, serve):
    members = {"cifar-100-python/train": b"1", "cifar-100-python/test": b"2"}
    escapes = {"../escaped": b"3", "/tmp/escaped-absolutely": b"4", "cifar-100-python/../up": b"5"}
    content = tar_bytes(escapes | members)
    directory = tmp_path / "inside"
    download_files(archive_of(serve({"cifar-100-python.tar.gz": content}), content), directory)
    assert files_in(tmp_path) == ["test", "train"]
    assert not Path("/tmp/escaped-absolutely").exists()


def test_a_link_in_an_archive_is_not_followed(tmp_path, serve):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        link = tarfile.TarInfo("cifar-100-python/train")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    content = buffer.getvalue()
    with pytest.raises(ValueError, match="no regular file 'cifar-100-python/train'"):
        download_files(archive_of(serve({"cifar-100-python.tar.gz": content}), content), tmp_path)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("name", ["whole", "cifar-100-python.tar.gz"])
def test_a_download_without_end_is_broken_off_and_not_kept(tmp_path, serve, monkeypatch, name):
    monkeypatch.setattr("probstep.bench.data.download.MOST_BYTES", 100_000)
    with pytest.raises(OSError, match="more than 100,000 bytes came"):
        download_files(one_file(serve({name: CONTENT}), name), tmp_path)
    assert files_in(tmp_path) == []


def test_a_file_without_end_in_an_archive_is_not_unpacked(tmp_path, serve, monkeypatch):
    monkeypatch.setattr("probstep.bench.data.download.MOST_BYTES", 100_000)
    content = tar_bytes({"cifar-100-python/train": bytes(300_000)})
    with pytest.raises(ValueError, match=r"cannot be unpacked: more than 100,000 bytes came"):
        download_files(archive_of(serve({"cifar-100-python.tar.gz": content}), content), tmp_path)
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("content", [b"nonsense", tar_bytes({"a": CONTENT})[:-9000]])
def test_an_archive_that_cannot_be_unpacked_leaves_nothing(tmp_path, serve, content):
    with pytest.raises(ValueError, match="archive"):
        download_files(archive_of(serve({"cifar-100-python.tar.gz": content}), content), tmp_path)
    assert files_in(tmp_path) == []


def test_the_command_downloads_into_the_named_directory(tmp_path, serve, monkeypatch, capsys):
    monkeypatch.setitem(CATALOG, "one", one_file(serve({"whole": CONTENT}), "whole"))
    main(["one", "--data-dir", str(tmp_path)])
    assert files_in(tmp_path) == ["whole"]
    assert capsys.readouterr().out == f"one: {tmp_path / 'one/raw'}\n"


@pytest.mark.parametrize(
    ("name", "message"), [("minst", "Did you mean 'mnist'"), ("war_and_peace", "2600")]
)
def test_the_command_fails_with_a_sentence(name, message, capsys):
    with pytest.raises(SystemExit) as caught:
        main([name])
    assert caught.value.code == 1
    assert message in capsys.readouterr().err


def test_the_argument_comes_before_the_variable_and_that_before_the_default(monkeypatch):
    monkeypatch.delenv("PROBSTEP_DATA", raising=False)
    assert data_directory() == Path.home() / ".cache/probstep"
    monkeypatch.setenv("PROBSTEP_DATA", "/variable")
    assert data_directory() == Path("/variable")
    assert data_directory("/argument") == Path("/argument")


def test_folders_elsewhere_are_found_when_the_data_directory_lacks_the_files(tmp_path):
    debian = tmp_path / "debian"
    debian.mkdir()
    files = replace(CATALOG["fashion_mnist"], elsewhere=(debian,))
    for name in files.names:
        (debian / name).touch()
    assert find_folder(files, tmp_path) == debian
    (tmp_path / files.folder).mkdir(parents=True)
    for name in files.names:
        (tmp_path / files.folder / name.removesuffix(".gz")).touch()
    assert find_folder(files, tmp_path) == tmp_path / files.folder


def test_fashion_mnist_is_looked_for_where_debian_installs_it():
    assert CATALOG["fashion_mnist"].elsewhere == (Path("/usr/share/datasets/fashion-mnist"),)


@pytest.mark.parametrize("name", CATALOG)
def test_a_missing_file_is_reported_with_its_place_and_a_remedy(tmp_path, name):
    files = replace(get_files(name), elsewhere=(tmp_path / "elsewhere",))
    (tmp_path / files.folder).mkdir(parents=True, exist_ok=True)
    for present in files.names[1:]:
        (tmp_path / files.folder / present).touch()
    with pytest.raises(FileNotFoundError) as caught:
        find_folder(files, tmp_path)
    message = str(caught.value)
    assert f"{files.names[0]} in {tmp_path / files.folder}" in message
    assert str(tmp_path / "elsewhere") in message
    assert (f"python -m probstep.bench.data {name}" in message) == bool(files.url)
    assert "PROBSTEP_DATA" in message

"""The live page by plain requests: who may ask, for what, and what is answered."""

import http.client
import socket
from urllib.parse import urlsplit

import pytest

from probstep.bench.live import serve
from probstep.bench.records.planned import write_planned

from ..report_cases import make_records, make_run, write_records

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    out = tmp_path_factory.mktemp("<b>live")
    evil = make_run(EVIL, EVIL, settings={EVIL: EVIL})
    write_planned(out, [evil, make_run(method=EVIL, seed=5), make_run()])
    write_records(out, [make_records(evil, status="failed", reason=EVIL)])
    with serve(out) as address:
        yield urlsplit(address)


def ask(address, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection(address.hostname, address.port)
    connection.request(method, path, headers={"Host": address.netloc, **headers})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_it_listens_on_the_loopback_interface_only(address):
    assert address.hostname == "127.0.0.1"
    outside = socket.gethostbyname(socket.gethostname())
    if not outside.startswith("127."):
        with pytest.raises(ConnectionError), socket.create_connection((outside, address.port)):
            pass


@pytest.mark.parametrize("path", ["/", "/now", "/report"])
def test_each_page_is_html_that_nobody_keeps_or_guesses_at(address, path):
    answer, text = ask(address, path)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert int(answer.headers["Content-Length"]) == len(text.encode())


def test_no_script_may_run_but_the_pages_own_and_nobody_may_frame_it(address):
    policy = ask(address)[0].headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'sha256-" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert ask(address, "/report")[0].headers["Content-Security-Policy"] == "frame-ancestors 'self'"


@pytest.mark.parametrize("path", ["/", "/now"])
def test_every_text_is_escaped(address, path):
    _, text = ask(address, path)
    assert EVIL not in text
    assert "<b>live" not in text
    assert text.count("&lt;img src=x onerror=alert(1)&gt;") >= 5


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", ""]
)
def test_a_request_under_another_name_is_refused(address, host):
    answer, text = ask(address, Host=host.format(port=address.port))
    assert answer.status == 403
    assert "live" not in text


def test_localhost_is_a_name_of_this_host(address):
    assert ask(address, Host=f"localhost:{address.port}")[0].status == 200


def test_a_request_with_two_names_or_none_is_refused(address):
    for hosts in ("", f"Host: {address.netloc}\r\nHost: evil.example\r\n"):
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(f"GET / HTTP/1.0\r\n{hosts}\r\n".encode())
            assert b" 403 " in connection.makefile("rb").readline()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_pages_can_only_be_read(address, method):
    answer, _ = ask(address, method=method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET"


@pytest.mark.parametrize("path", ["/records", "/../etc/passwd", "/now?x", "/%6eow", "/now/"])
def test_there_is_no_other_page(address, path):
    assert ask(address, path)[0].status == 404


def test_what_is_no_request_is_answered_and_ends_nothing(address):
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(b"\xff\xfe nonsense\r\n\r\n")
        connection.makefile("rb").read()
    assert ask(address)[0].status == 200


def test_a_reader_who_leaves_early_is_no_error(address, capfd):
    for _ in range(3):
        connection = socket.create_connection((address.hostname, address.port))
        connection.sendall(b"GET / HT")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()  # with a reset
    assert ask(address)[0].status == 200
    assert capfd.readouterr().err == ""


def test_a_port_that_is_taken_is_told(address, tmp_path):
    with (
        pytest.raises(OSError, match=r"is taken\. Choose another with --port"),
        serve(tmp_path, address.port),
    ):
        pass


def test_the_port_is_free_again_afterwards(tmp_path):
    with serve(tmp_path) as first:
        port = urlsplit(first).port
    with serve(tmp_path, port) as second:
        assert second == first

"""Serves the live page to this machine's own browser, and to nobody else.

It listens on the loopback interface only. A page from elsewhere in the same browser could reach it
under a name of its own (DNS rebinding), so a request must name this host; it can ask for three
pages and change nothing.
"""

import errno
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from probstep.bench.live.latest import Latest
from probstep.bench.live.page import write_now, write_page, write_policy
from probstep.bench.live.scene import Scene, Watcher
from probstep.bench.report.build import compose_page

LOOPBACK = "127.0.0.1"
PAUSE = 10  # looking takes at most one part in so many of the time
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FRAMED = "frame-ancestors 'self'"  # the report has a policy of its own in its head


@dataclass(frozen=True)
class Answer:
    """A page, and what its headers say beside the usual."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Site:
    """The pages on one output directory."""

    watcher: Watcher
    reports: Latest
    reporter: Executor
    looking: threading.Lock = field(default_factory=threading.Lock)
    scene: Scene = field(default_factory=lambda: Scene({}, {}))
    due: float = -math.inf  # when to look again

    @property
    def pages(self) -> dict[str, Callable[[], Answer]]:
        """What can be asked for."""
        return {"/": self._front, "/now": self._now, "/report": self._report}

    def look(self) -> Scene:
        """How the runs stand; if that has changed, another report is begun."""
        with self.looking:
            if time.monotonic() >= self.due:
                self._look()
            return self.scene

    def _look(self) -> None:
        begun = time.monotonic()
        self.scene = scene = self.watcher.look()
        state = {key: seen.record.epoch for key, seen in scene.seen.items()}, scene.counts
        with suppress(RuntimeError):  # the server is about to end
            self.reporter.submit(self.reports.renew, state)
        self.due = begun + PAUSE * (time.monotonic() - begun)

    def _front(self) -> Answer:
        title = f"probstep live: {self.watcher.out}"
        policy = {"Content-Security-Policy": write_policy()}
        version = self.reports.version
        return Answer(write_page(title, self.look(), version).encode(), policy)

    def _now(self) -> Answer:
        version = {"Probstep-Report": str(self.reports.version)}
        return Answer(write_now(self.look()).encode(), version)

    def _report(self) -> Answer:
        return Answer(self.reports.page, {"Content-Security-Policy": FRAMED})


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = 10  # seconds that a client may keep a thread waiting
    server_version = "probstep"
    sys_version = ""

    def __init__(self, site: Site, *args: Any) -> None:
        self.site = site
        super().__init__(*args)

    def do_GET(self) -> None:
        """Answer with the page that was asked for."""
        if not self._is_named():
            self._refuse(HTTPStatus.FORBIDDEN, "This server answers to the name of its own host.")
        elif self.path not in self.site.pages:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such page.")
        else:
            self._send(HTTPStatus.OK, self.site.pages[self.path]())

    def refuse_method(self) -> None:
        """Answer that pages can only be read."""
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "Pages can only be read.", {"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = refuse_method  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Say nothing: the terminal belongs to the reader."""

    def _is_named(self) -> bool:
        """Whether the request is to this host, by one of its own names."""
        _, port = self.connection.getsockname()
        names = {f"{LOOPBACK}:{port}", f"localhost:{port}"}
        hosts = self.headers.get_all("Host", [])
        return len(hosts) == 1 and hosts[0] in names

    def _refuse(
        self, status: HTTPStatus, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._send(status, Answer(reason.encode(), headers or {}))

    def _send(self, status: HTTPStatus, answer: Answer) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)


class Server(ThreadingHTTPServer):
    """One thread per request; a reader who has gone is no error."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Pass over connections that broke or took too long."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


@contextmanager
def serve(out: Path, port: int = 0) -> Iterator[str]:
    """Serve the pages on an output directory until the block is left; the address to open.

    Args:
        out: The output directory of `probstep run`.
        port: The port; 0 for one that is free.

    Raises:
        OSError: The port is taken.
    """
    reporter = ThreadPoolExecutor(max_workers=1)
    site = Site(Watcher(out), Latest(lambda: compose_page(out).encode()), reporter)
    try:
        server = Server((LOOPBACK, port), partial(Handler, site))
    except OSError as error:
        remedy = "Choose another with --port, or leave it out for one that is free"
        reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used: {error}"
        raise OSError(error.errno, f"Port {port} {reason}. {remedy}.") from error
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        reporter.shutdown(cancel_futures=True)  # a thread that draws must not outlive the rest

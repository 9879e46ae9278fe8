"""/metrics over HTTP, in threads: it answers also when the event loop does not."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from services.metrics.exposition import CONTENT_TYPE
from services.rpc.ports import CannotListen
from storage.workers import FunctionWorker

PATH: Final = "/metrics"
CONNECTIONS_MAX: Final = 16  # at once; more are closed
SILENCE_SECONDS: Final = 10.0  # of a connection, then it is closed


class PageGuard(NamedTuple):
    """What a page asks of its readers."""

    contexts: Callable[[], ssl.SSLContext] | None = None  # of the next connection; None: plaintext
    admission: Callable[[str, str], HTTPStatus] | None = (
        None  # by authorization and address; None: everybody
    )


FOR_EVERYBODY: Final = PageGuard()


class MetricsEndpoint:
    """Serves what ``page`` returns, to one caller after the other. Raises CannotListen."""

    def __init__(
        self, listen: str, page: Callable[[], bytes], guard: PageGuard = FOR_EVERYBODY
    ) -> None:
        host, _, port = listen.rpartition(":")
        try:
            self._server = _PageServer(host.strip("[]"), int(port), page, guard)
        except OSError as error:
            raise CannotListen(listen) from error
        self.address = f"{host}:{self._server.server_address[1]}"
        self._worker = FunctionWorker("metrics", self._serve_one, has_work=lambda: True)
        self._worker.start()

    def _serve_one(self) -> float:
        self._server.handle_request()
        return 0.0

    def close(self) -> None:
        """Serve no more; a page that is under way may still be read."""
        self._worker.end()
        self._server.socket.shutdown(socket.SHUT_RDWR)  # ends the wait for the next caller
        self._worker.stop()
        self._server.server_close()


class _PageServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, page: Callable[[], bytes], guard: PageGuard) -> None:
        self.page = page
        self.guard = guard
        self.turn = threading.Lock()
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _PageRequest)

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if self.guard.contexts is not None:  # the handshake is the thread's of the connection
            connection.settimeout(SILENCE_SECONDS)
            connection = self.guard.contexts().wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: it is a caller who went away."""


class _PageRequest(BaseHTTPRequestHandler):
    server: _PageServer
    timeout = SILENCE_SECONDS

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self.send_error(HTTPStatus.NOT_FOUND, f"ask for {PATH}")
            return
        admission = self.server.guard.admission
        status = HTTPStatus.OK
        if admission is not None:
            status = admission(self.headers.get("Authorization", ""), self.client_address[0])
        if status is not HTTPStatus.OK:
            self.send_response(status)
            if status is HTTPStatus.UNAUTHORIZED:
                self.send_header("WWW-Authenticate", 'Basic realm="penstock"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        with self.server.turn:
            page = self.server.page()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def version_string(self) -> str:
        return "penstock"

    def log_message(self, *_: object) -> None:
        """Log nothing: whoever scrapes does it all the time."""

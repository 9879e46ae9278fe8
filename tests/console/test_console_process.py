"""The console as a process serves it: over TLS, with certificates that are replaced, and with services away."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from certificates import Certificates

from services.config.settings import ConsoleSettings
from services.console.__main__ import serve
from services.console.sessions import COOKIE
from services.testing import BackgroundLoop

NOBODY = "127.0.0.1:9"  # the port of discard, where nothing listens


@contextmanager
def served(**settings: Any) -> Iterator[str]:
    """Run a console whose services are away; give HOST:PORT."""
    chosen = ConsoleSettings(
        listen="127.0.0.1:0", writer=NOBODY, reader=NOBODY, indexer=NOBODY, **settings
    )
    with BackgroundLoop() as loop:
        addresses: list[str] = []
        running = asyncio.run_coroutine_threadsafe(serve(chosen, addresses.append), loop._loop)
        deadline = time.monotonic() + 20
        while not addresses:
            assert time.monotonic() < deadline and not running.done()
            time.sleep(0.02)
        try:
            yield addresses[0]
        finally:
            running.cancel()


def serial(address: str, trusted: ssl.SSLContext) -> int:
    """Return the number of the certificate that is shown."""
    host, _, port = address.partition(":")
    with (
        socket.create_connection((host, int(port)), 5) as plain,
        trusted.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        found = secure.getpeercert()
    assert found is not None
    return int(str(found["serialNumber"]), 16)


def test_a_port_with_tls_takes_up_a_new_certificate_and_keeps_the_good_one(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    trusted = ssl.create_default_context(cafile=str(certificates.ca))
    files = {"listen_tls_cert": certificates.server.cert, "listen_tls_key": certificates.server.key}
    with served(**files, accounts=True) as address:
        first = serial(address, trusted)
        shown = httpx2.get(f"https://{address}/sign-in", verify=trusted)
        assert shown.status_code == 200 and "Secure" in shown.headers["set-cookie"]
        certificates.server.key.write_text("no key")
        time.sleep(2.5)
        assert serial(address, trusted) == first
        certificates.issue("server")
        deadline = time.monotonic() + 10
        while serial(address, trusted) == first:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_pages_whose_services_never_answered_say_which() -> None:
    with served() as address:
        for page in ("/", "/topics", "/groups", "/later", "/log", "/accounts"):
            begun = time.monotonic()
            shown = httpx2.get(f"http://{address}{page}", timeout=20)

            assert "does not answer" in shown.text
            assert shown.status_code in (200, 503)
            assert time.monotonic() - begun < 5
            assert COOKIE in shown.cookies

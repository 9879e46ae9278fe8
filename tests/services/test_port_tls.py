"""Ports with TLS: who may connect, who calls, what each failure says, and files that change."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import pytest
import structlog
from certificates import Certificates
from real_processes import until
from tls_port import TlsPort

from penstock import TLS, Client, Unavailable
from services.rpc import tls as port_tls
from services.testing import BackgroundLoop

WITHIN_S = 5.0  # far below a connection's 20 s


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_tls, "LOOK_SECONDS", 0.02)


def test_one_sided_tls_knows_the_service_and_not_the_client(
    background: BackgroundLoop, certificates: Certificates
) -> None:
    with TlsPort(background, certificates.settings) as port:
        port.ask(certificates.one_sided)
        port.ask(certificates.alice)
    assert port.servicer.callers == [None, None]


@pytest.mark.parametrize("rpc_server", ["core", "aio"])
def test_mutual_tls_knows_the_name_in_the_clients_certificate(
    rpc_server: str, background: BackgroundLoop, certificates: Certificates
) -> None:
    """Accounts will go by it."""
    with TlsPort(background, certificates.mutual | {"rpc_server": rpc_server}) as port:
        port.ask(certificates.alice)
    assert port.servicer.callers == ["alice"]


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Another authority."""
    return Certificates(tmp_path_factory.mktemp("strange"))


def elsewhere(certificates: Certificates) -> dict[str, Any]:
    cert, key = certificates.issue("elsewhere", "store.example.com")
    return {"tls_cert": cert, "tls_key": key}


@pytest.mark.parametrize(
    ("settings", "tls", "advised"),
    [
        ("settings", lambda c, s: None, "if the service serves TLS, give tls"),
        ("settings", lambda c, s: s.one_sided, "no authority that the client knows"),
        ("settings", lambda c, s: TLS(), "no authority that the client knows"),
        ("plaintext", lambda c, s: c.one_sided, "the service serves plaintext"),
        ("elsewhere", lambda c, s: c.one_sided, "the service's certificate is for another name"),
        ("mutual", lambda c, s: c.one_sided, "if the service asks for the client's certificate"),
        ("mutual", lambda c, s: TLS(ca=c.ca, cert=s.client.cert, key=s.client.key), "does the client CA"),
    ],
)  # fmt: skip
def test_who_cannot_connect_is_told_what_to_do_in_time(
    settings: str,
    tls: Callable[[Certificates, Certificates], TLS | None],
    advised: str,
    background: BackgroundLoop,
    certificates: Certificates,
    strange: Certificates,
) -> None:
    served = {
        "settings": certificates.settings,
        "mutual": certificates.mutual,
        "plaintext": {},
        "elsewhere": elsewhere(certificates),
    }[settings]
    began = time.monotonic()
    with TlsPort(background, served) as port, pytest.raises(Unavailable, match=advised):
        port.ask(tls(certificates, strange))
    assert time.monotonic() - began < WITHIN_S
    assert port.servicer.callers == []


def test_a_client_may_say_which_name_it_expects(
    background: BackgroundLoop, certificates: Certificates
) -> None:
    with TlsPort(background, elsewhere(certificates)) as port:
        port.ask(TLS(ca=certificates.ca, server_name="store.example.com"))


def test_tls_1_2_is_spoken_and_1_1_is_not(
    background: BackgroundLoop, certificates: Certificates
) -> None:
    with TlsPort(background, certificates.settings) as port, pytest.deprecated_call():
        assert version_with(port.address, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
        with pytest.raises(ssl.SSLError):
            version_with(port.address, ssl.TLSVersion.TLSv1_1)


def version_with(address: str, newest: ssl.TLSVersion) -> str | None:
    """Return the version that is spoken with a client that knows none newer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.maximum_version = newest
    context.minimum_version = min(newest, ssl.TLSVersion.TLSv1_2)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5) as plain:
        return context.wrap_socket(plain).version()


@pytest.mark.parametrize("rpc_server", ["core", "aio"])
def test_new_files_are_taken_up_and_bad_ones_are_not(
    rpc_server: str,
    background: BackgroundLoop,
    certificates: Certificates,
    quick_looks: None,
) -> None:
    """A connection that is there goes on with the old certificate."""
    cert, key = certificates.issue("renewed")
    settings = certificates.mutual | {"tls_cert": cert, "tls_key": key, "rpc_server": rpc_server}
    with (
        structlog.testing.capture_logs() as events,
        TlsPort(background, settings) as port,
        Client(writer=port.address, tls=certificates.alice, timeout_s=5) as there,
    ):

        def is_said(problem: str) -> bool:
            return any(problem in event.get("problem", "") for event in events)

        there.topics()
        first = port.shown()
        certificates.issue("renewed")
        until(lambda: port.shown() != first)
        second = port.shown()
        port.ask(certificates.alice)

        certificates.issue("renewed", expired=True)
        until(lambda: is_said("renewed.pem expired on"))
        key.write_text("no key")
        until(lambda: is_said("renewed.key holds no private key"))
        assert port.shown() == second

        certificates.issue("renewed")
        until(lambda: port.shown() not in (first, second))
        there.topics()
        port.ask(certificates.alice)
    assert [event["log_level"] for event in events if "taken up" in event["event"]] == [
        "info", "error", "error", "info",
    ]  # fmt: skip

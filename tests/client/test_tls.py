"""TLS of a client: what may be wrong with its files, and what a failed handshake asks for."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Certificates
from cryptography.hazmat.primitives import serialization

from penstock import TLS, AsyncClient, BadTlsFile, Client
from penstock.tls import ChangedFiles, advice, authorities, identity, tls_of


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def encrypted(key: Path) -> bytes:
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    return private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


@pytest.mark.parametrize(
    ("cert", "key", "problem"),
    [
        (lambda c: c.server.cert, lambda c: c.client.key, "alice.key is not the private key of .*server.pem"),
        (lambda c: c.server.cert, lambda _: "/nowhere.key", "/nowhere.key: No such file or directory"),
        (lambda c: c.server.cert, lambda c: c.ca, "ca.pem holds no private key in PEM"),
        (lambda c: c.server.cert, lambda c: encrypted(c.server.key), "is encrypted; take the passphrase off"),
        (lambda c: c.server.key, lambda c: c.server.key, "server.key is a private key, not a certificate"),
        (lambda _: b"no PEM", lambda c: c.server.key, "the PEM text holds no certificate in PEM"),
    ],
)  # fmt: skip
def test_a_certificate_and_a_key_that_do_not_do_are_named_with_the_cause(
    cert: Callable[[Certificates], Path | bytes],
    key: Callable[[Certificates], Path | bytes],
    problem: str,
    certificates: Certificates,
) -> None:
    with pytest.raises(BadTlsFile, match=problem):
        identity(cert(certificates), key(certificates))


def test_an_expired_certificate_is_named_with_its_date(certificates: Certificates) -> None:
    expired = certificates.issue("expired", expired=True)
    with pytest.raises(BadTlsFile, match=r"expired.pem expired on \d{4}-\d\d-\d\d \d\d:\d\d UTC"):
        identity(*expired)
    with pytest.raises(BadTlsFile, match=r"expired.pem expired on "):
        authorities(expired.cert)


def test_a_client_says_what_is_wrong_with_its_files_when_it_is_made(
    certificates: Certificates,
) -> None:
    with pytest.raises(BadTlsFile, match="go together"):
        TLS(cert=certificates.server.cert)
    for kind in (Client, AsyncClient):
        with pytest.raises(BadTlsFile, match="No such file"):
            kind(tls=TLS(ca="/nowhere.pem"))


def test_tls_with_what_is_in_its_files_goes_to_other_machines_and_shows_no_key(
    certificates: Certificates,
) -> None:
    there = pickle.loads(pickle.dumps(certificates.alice.loaded()))
    assert there.key == certificates.client.key.read_bytes()
    assert there.paths == []
    assert "PRIVATE" not in repr(there)
    there.credentials()


def test_words_say_tls_once_there_are_authorities() -> None:
    assert tls_of("", "c", "k", "n") is None
    assert tls_of("public", "", "", "") == TLS()
    assert tls_of("ca", "c", "k", "n") == TLS(ca="ca", cert="c", key="k", server_name="n")


NOT_CONNECTED = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: "


@pytest.mark.parametrize(
    ("details", "tls", "words"),
    [
        (f"{NOT_CONNECTED}Socket closed", None, "if the service serves TLS"),
        (f"{NOT_CONNECTED}Connection reset by peer", TLS(), "asks for the client's certificate"),
        (f"{NOT_CONNECTED}Socket closed", TLS(cert="c", key="k"), "does the client CA"),
        (
            "CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate",
            TLS(),
            "no authority",
        ),
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired", TLS(), "needs a new one"),
        ("Hostname Verification Check failed", TLS(), "is for another name"),
        ("SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER", TLS(), "serves plaintext"),
        (f"{NOT_CONNECTED}Connection refused", None, ""),
        ("Socket closed", None, ""),  # of a connection that was there
    ],
)
def test_a_handshake_that_failed_says_what_to_do(details: str, tls: TLS | None, words: str) -> None:
    found = advice(details, tls)
    assert words in found if words else found == ""


def test_files_are_read_again_once_they_have_changed_and_settled(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"
    path.write_text("1")
    other.write_text("1")
    problems: list[str] = []
    said: list[str] = []

    def read() -> None:
        if problems:
            raise BadTlsFile(problems[0])

    files = ChangedFiles([path, other], read)
    assert not files.look()
    path.write_text("two")
    assert not files.look()  # the other one may follow
    assert files.look()
    assert not files.look()
    other.unlink()
    assert not files.look()  # another one may take its place
    other.write_text("new")
    assert [files.look(), files.look(), files.look()] == [False, True, False]
    other.unlink()
    assert [files.look(), files.look(), files.look()] == [False, True, False]
    problems.append("expired")
    other.write_text("bad")
    assert [files.look(said.append) for _ in range(4)] == [False] * 4
    assert said == ["expired"]
    problems.clear()
    assert [files.look(), files.look()] == [True, False]


def test_what_is_no_tls_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"TLS\(ca="):
        Client(writer="127.0.0.1:1", tls="ca.pem")  # type: ignore[arg-type]

"""TLS of connections: which files, what may be wrong with them, and what a failed handshake asks for."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import grpc
    from cryptography.x509 import Certificate

T = TypeVar("T")
Pem = str | os.PathLike[str] | bytes
"""A PEM file, or what is in it."""

LOOK_SECONDS: Final = 1.0  # how often files are looked at
PUBLIC: Final = "public"  # as one types it where a file of authorities is asked for
_CLOSED: Final = ("Socket closed", "Connection reset", "Broken pipe")
_log = logging.getLogger(__name__)
_NOT_CONNECTED: Final = "failed to connect to all addresses"


class BadTlsFile(ValueError):
    """A file for TLS is missing, or is not what it should be; the text names it and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """How a client speaks TLS. Files are PEM; bytes are taken for what is in the file.

    ``ca`` has the authorities of the services' certificates; None: the public ones that gRPC knows. The
    client shows ``cert``, whose private key is ``key``, to a service that asks for one (mutual TLS).
    ``server_name`` is the name in the services' certificates if it is not the host of their addresses.
    """

    ca: Pem | None = None
    cert: Pem | None = None
    key: Pem | None = field(default=None, repr=False)
    server_name: str = ""

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise BadTlsFile("a certificate and its key go together: give both or none")

    @property
    def paths(self) -> list[Path]:
        """The files that it names."""
        return [
            Path(os.fspath(each))
            for each in (self.ca, self.cert, self.key)
            if each is not None and not isinstance(each, bytes)
        ]

    def loaded(self) -> TLS:
        """Return the same with what is in the files. Raises BadTlsFile."""
        ca, own = self._read()
        if own is None:
            return replace(self, ca=ca)
        return replace(self, ca=ca, cert=own.chain, key=own.key)

    def credentials(self) -> grpc.ChannelCredentials:
        """Return what a channel is opened with. Raises BadTlsFile."""
        from grpc import ssl_channel_credentials

        ca, own = self._read()
        if own is None:
            return ssl_channel_credentials(ca)
        return ssl_channel_credentials(ca, own.key, own.chain)

    def _read(self) -> tuple[bytes | None, KeyPair | None]:
        ca = None if self.ca is None else authorities(self.ca)
        if self.cert is None or self.key is None:
            return ca, None
        return ca, identity(self.cert, self.key)


class ChangedFiles(Generic[T]):
    """What was read of some files. It is read again once they have changed and settled."""

    def __init__(self, paths: Sequence[Path], read: Callable[[], T]) -> None:
        """Read the files. Raises what ``read`` raises."""
        self._paths = tuple(paths)
        self._read = read
        self._taken: tuple[tuple[int, ...] | None, ...] | None = self._state()
        self._found = self._taken
        self._problem = ""
        self.value = read()

    def look(self, say: Callable[[str], object] = lambda _: None) -> bool:
        """Return whether ``value`` is new. Bad files leave the one before; ``say`` is given each problem once."""
        before, self._found = self._found, self._state()
        if self._found == self._taken or self._found != before:
            return False
        try:
            self.value = self._read()
        except (BadTlsFile, OSError) as problem:
            if str(problem) != self._problem:
                say(str(problem))
            self._taken, self._problem = None, str(problem)  # the next look reads them again
            return False
        self._taken, self._problem = self._found, ""
        return True

    def _state(self) -> tuple[tuple[int, ...] | None, ...]:
        return tuple(map(_state_of, self._paths))


class WatchedTls:
    """TLS, with what was good in its files last."""

    def __init__(self, tls: TLS | None) -> None:
        """Read the files. Raises BadTlsFile, TypeError."""
        if not isinstance(tls, TLS | None):
            raise TypeError(f"tls is {tls!r}; give penstock.TLS(ca=...), or None for plaintext")
        self._files = None if tls is None else ChangedFiles(tls.paths, tls.loaded)
        self._look_at = 0.0

    @property
    def loaded(self) -> TLS | None:
        """TLS with what was in the files; None for plaintext."""
        return None if self._files is None else self._files.value

    def look(self, now: float) -> bool:
        """Return whether the files have changed and are good, at most each second; bad ones change nothing."""
        if now < self._look_at or self._files is None:
            return False
        self._look_at = now + LOOK_SECONDS
        return self._files.look(
            lambda problem: _log.warning(
                "connections keep the certificates that they have: %s", problem
            )
        )


class KeyPair(NamedTuple):
    """A certificate with its chain, its private key, and until when it is valid."""

    chain: bytes
    key: bytes
    expires_at: datetime


def tls_of(ca: str, cert: str, key: str, server_name: str) -> TLS | None:
    """Return TLS as flags and options say it; None without ``ca``, which may be the word PUBLIC. Raises
    BadTlsFile.
    """
    if not ca:
        return None
    return TLS(
        ca=None if ca == PUBLIC else ca,
        cert=cert or None,
        key=key or None,
        server_name=server_name,
    )


def open_channel(
    kind: Any, address: str, options: Sequence[tuple[str, Any]], tls: TLS | None
) -> Any:
    """Return a channel of ``kind``, which is ``grpc`` or ``grpc.aio``. Raises BadTlsFile."""
    if tls is None:
        return kind.insecure_channel(address, options=options)
    if tls.server_name:
        options = [*options, ("grpc.ssl_target_name_override", tls.server_name)]
    return kind.secure_channel(address, tls.credentials(), options=options)


def authorities(source: Pem) -> bytes:
    """Return the certificates of authorities. Raises BadTlsFile."""
    name, pem = _read(source)
    found = _certificates(name, pem)
    if all(each.not_valid_after_utc <= datetime.now(UTC) for each in found):
        raise BadTlsFile(f"{name} expired on {_date(found[0].not_valid_after_utc)}")
    return pem


def identity(cert: Pem, key: Pem) -> KeyPair:
    """Return a certificate and its private key. Raises BadTlsFile."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    name, chain = _read(cert)
    own = _certificates(name, chain)[0]
    key_name, secret = _read(key)
    try:
        public = load_pem_private_key(secret, None).public_key()
    except TypeError:
        raise BadTlsFile(f"{key_name} is encrypted; take the passphrase off it") from None
    except Exception:  # noqa: BLE001  a dozen kinds, and none says more
        raise BadTlsFile(f"{key_name} holds no private key in PEM") from None
    if public != own.public_key():
        raise BadTlsFile(f"{key_name} is not the private key of {name}")
    now = datetime.now(UTC)
    if own.not_valid_after_utc <= now:
        raise BadTlsFile(f"{name} expired on {_date(own.not_valid_after_utc)}")
    if own.not_valid_before_utc > now:
        raise BadTlsFile(f"{name} is not valid before {_date(own.not_valid_before_utc)}")
    return KeyPair(chain, secret, own.not_valid_after_utc)


def advice(details: str, tls: TLS | None) -> str:
    """Return what to do about a connection that failed with grpc's ``details``, "" if TLS is not why."""
    if "CERTIFICATE_VERIFY_FAILED" in details:
        if "expired" in details or "not yet valid" in details:
            return "the service's certificate is not valid today: it needs a new one"
        return (
            "no authority that the client knows has signed the service's certificate: give the file of"
            " the one that did, as TLS(ca=...) or --tls-ca"
        )
    if "Hostname Verification" in details:
        return (
            "the service's certificate is for another name: call the service by a name in it, or give"
            " that name as TLS(server_name=...) or --tls-server-name"
        )
    if "WRONG_VERSION_NUMBER" in details:
        return "the service serves plaintext: leave out tls=TLS(...), or --tls-ca"
    if _NOT_CONNECTED not in details or not any(word in details for word in _CLOSED):
        return ""
    if tls is None:
        return "if the service serves TLS, give tls=TLS(ca=...), or --tls-ca"
    if tls.cert is None:
        return (
            "if the service asks for the client's certificate, give TLS(cert=..., key=...), or --tls-cert"
            " and --tls-key"
        )
    return "does the client CA of the service sign the client's certificate?"


def _read(source: Pem) -> tuple[str, bytes]:
    if isinstance(source, bytes):
        return "the PEM text", source
    name = os.fspath(source)
    try:
        return name, Path(name).read_bytes()
    except OSError as error:
        raise BadTlsFile(f"{name}: {error.strerror}") from None


def _certificates(name: str, pem: bytes) -> list[Certificate]:
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return load_pem_x509_certificates(pem)
    except ValueError:
        is_key = b"PRIVATE KEY-----" in pem
        what = "is a private key, not a certificate" if is_key else "holds no certificate in PEM"
        raise BadTlsFile(f"{name} {what}") from None


def _state_of(path: Path) -> tuple[int, ...] | None:
    """Return what changes with a file; None while it is away."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _date(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"

"""Who reads the metrics page where other machines reach it: over TLS, with accounts who sees the cluster."""

from __future__ import annotations

import base64
import binascii
import hmac
import ssl
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

from penstock.tls import ChangedFiles, identity
from services.accounts.audit import AuditLog
from services.config.settings import ProcessSettings
from services.config.values import is_open_to_network
from services.metrics.endpoint import FOR_EVERYBODY, PageGuard
from services.rpc.peers import ip_address
from storage.accounts.account_table import AccountFile
from storage.accounts.rules import THE_CLUSTER, Action, Host, Rules
from storage.files.filesystem import FileSystem

_SCHEME = "Basic "


def page_guard(settings: ProcessSettings) -> PageGuard:
    """Return what guards the page of a process: nothing on loopback."""
    if not settings.metrics_listen or not is_open_to_network(settings.metrics_listen):
        return FOR_EVERYBODY
    store: Path | None = getattr(settings, "store", None)
    if store is None or not getattr(settings, "accounts", False):
        return PageGuard(_contexts(settings))
    rules = AccountFile(FileSystem(), store / "config").rules
    return PageGuard(_contexts(settings), _admission(rules))


def _contexts(settings: ProcessSettings) -> Callable[[], ssl.SSLContext] | None:
    """Return what gives the context of the next connection: files that have changed are read again."""
    cert, key = settings.tls_cert, settings.tls_key
    if cert is None or key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)

    def read() -> None:
        identity(cert, key)
        context.load_cert_chain(cert, key)

    files = ChangedFiles([cert, key], read)

    def current() -> ssl.SSLContext:
        files.look()  # what is wrong with them the process's port says
        return context

    return current


def _admission(rules: Callable[[], Rules]) -> Callable[[str, str], HTTPStatus]:
    audit = AuditLog()

    def status(authorization: str, host: str) -> HTTPStatus:
        name, status = checked(authorization, ip_address(host))
        if authorization and status is not HTTPStatus.OK:
            audit.denied(user=name, address=host, method="GET /metrics", problem=status.phrase)
        return status

    def checked(authorization: str, source: Host) -> tuple[str, HTTPStatus]:
        name, secret = _basic(authorization)
        now = rules()
        user = now.users.get(name)
        if (
            user is None
            or not user.is_enabled
            or not any(hmac.compare_digest(each.encode(), secret.encode()) for each in user.secrets)
        ):
            return "", HTTPStatus.UNAUTHORIZED
        may = now.allows(user, THE_CLUSTER, Action.GET, source)
        return name, HTTPStatus.OK if may else HTTPStatus.FORBIDDEN

    return status


def _basic(authorization: str) -> tuple[str, str]:
    """Return the access key and the secret key of HTTP's basic authentication, two empty texts without it."""
    try:
        text = base64.b64decode(authorization.removeprefix(_SCHEME), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    name, _, secret = text.partition(":")
    return (name, secret) if authorization.startswith(_SCHEME) else ("", "")

"""The accounts of a store as one of its processes opens them: interceptors of its ports, and its own
credentials.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from penstock.credentials import Credentials, Metadata
from penstock.v1 import accounts_pb2
from services.accounts.audit import AuditLog
from services.accounts.guard import Guard
from services.accounts.remote import RemoteAccounts
from services.accounts.servicer import AccountServicer, AuthenticationServicer
from services.config.settings import (
    GatewaySettings,
    ProcessSettings,
    ReaderSettings,
    StoreProcessSettings,
)
from services.limits.limiter import (
    ConnectionLimits,
    UserLimits,
    limits_connections,
    set_limits,
)
from services.rpc.calls import Interceptor
from services.rpc.server import Contract
from services.upstream import ServiceAddress, Upstream
from storage.accounts.account_table import SERVICES_USER, AccountFile, AccountTable
from storage.accounts.document import ACCOUNTS_FILE
from storage.accounts.limits import Limits
from storage.accounts.rules import Rules, User
from storage.errors import BrokenAccounts
from storage.files.filesystem import FileSystem

ACCOUNTS: Final = accounts_pb2.DESCRIPTOR.services_by_name["Accounts"]
AUTHENTICATION: Final = accounts_pb2.DESCRIPTOR.services_by_name["Authentication"]


class ServedAccounts(NamedTuple):
    """What a process needs of the accounts; nothing where they are off."""

    interceptors: tuple[Interceptor, ...] = ()
    metadata: Callable[[], Metadata] = tuple  # of its calls to other services of the store


def own_accounts(settings: StoreProcessSettings) -> tuple[ServedAccounts, Contract]:
    """Return the accounts of the writer, which alone changes them; and the contract that does.

    Raises BrokenAccounts where they are on and there is no user.
    """
    audit = AuditLog()
    _check_not_forgotten(settings)
    if not settings.accounts:
        return without_accounts(settings), Contract(ACCOUNTS, AccountServicer(None, audit))
    table = AccountTable(FileSystem(), _config(settings))
    if not table.rules.users:
        raise BrokenAccounts(
            "--accounts needs a user: penstock user create NAME --super --store"
            f" {settings.store} makes the first one"
        )
    table.renew_services_user()
    accounts = _served(settings, lambda: table.rules, audit)
    return accounts, Contract(ACCOUNTS, AccountServicer(table, audit))


def _check_not_forgotten(settings: StoreProcessSettings) -> None:
    """Raise BrokenAccounts for a store with accounts unless settings say on or off."""
    said = "accounts" in settings.model_fields_set
    if not said and FileSystem().exists(_config(settings) / ACCOUNTS_FILE):
        raise BrokenAccounts(
            f"{settings.store} has accounts: start with --accounts, or with --no-accounts to serve everybody"
        )


def read_accounts(settings: StoreProcessSettings) -> tuple[ServedAccounts, Contract]:
    """Return the accounts of a process beside the writer; and the contract for gateways. Raises
    BrokenAccounts.
    """
    _check_not_forgotten(settings)
    if not settings.accounts:
        return without_accounts(settings), Contract(AUTHENTICATION, AuthenticationServicer(None))
    rules = AccountFile(FileSystem(), _config(settings)).rules
    accounts = _served(settings, rules, AuditLog())
    return accounts, Contract(AUTHENTICATION, AuthenticationServicer(rules))


def gateway_interceptors(settings: ReaderSettings) -> tuple[Interceptor, ...]:
    """Return the interceptors of a reader's port for the gateway, which has the limits of a gateway; its
    clients' certificates name no users.

    Raises BrokenAccounts.
    """
    of_port = settings.of_gateway()
    if not settings.accounts:
        return without_accounts(of_port).interceptors
    rules = AccountFile(FileSystem(), _config(settings)).rules
    return (_guard(rules, AuditLog(), set_limits(of_port), takes_certificates=False),)


def without_accounts(settings: ProcessSettings) -> ServedAccounts:
    """Return what limits each connection where accounts are off, if settings ask for it."""
    if not limits_connections(settings):
        return ServedAccounts()
    limits = ConnectionLimits(set_limits(settings), AuditLog().limited)
    return ServedAccounts((limits,))


def remote_accounts(
    settings: GatewaySettings, reader: ServiceAddress
) -> tuple[ServedAccounts, RemoteAccounts]:
    """Return the accounts of a gateway on another machine, which has a service user's keys; and what to
    close.
    """
    remote = RemoteAccounts(Upstream(reader))
    audit = AuditLog()
    guard = Guard(
        remote.rules,
        takes_certificates=False,
        audit=audit,
        limits=UserLimits(set_limits(settings), audit.limited),
        verify=remote.verify,
    )
    return ServedAccounts((guard,), reader.metadata), remote


def _config(settings: StoreProcessSettings) -> Path:
    return settings.store / "config"


def _served(
    settings: StoreProcessSettings, rules: Callable[[], Rules], audit: AuditLog
) -> ServedAccounts:
    signer: User | None = None
    signed: Metadata = ()

    def metadata() -> Metadata:
        nonlocal signer, signed
        user = rules().users.get(SERVICES_USER)
        if user is not None and user is not signer:
            signer, signed = user, Credentials(user.name, user.secrets[-1]).metadata()
        return signed

    guard = _guard(
        rules, audit, set_limits(settings), takes_certificates=settings.tls_client_ca is not None
    )
    return ServedAccounts((guard,), metadata)


def _guard(
    rules: Callable[[], Rules], audit: AuditLog, limits: Limits, *, takes_certificates: bool
) -> Guard:
    return Guard(
        rules,
        takes_certificates=takes_certificates,
        audit=audit,
        limits=UserLimits(limits, audit.limited),
    )

"""The accounts of a store as one of its processes opens them: interceptors of its ports, and its own credentials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from penstock.credentials import Credentials, Metadata
from penstock.v1 import accounts_pb2
from services.accounts.audit import AuditLog
from services.accounts.guard import Guard
from services.accounts.in_band import InBandGuard
from services.accounts.servicer import AccountServicer
from services.config.settings import StoreProcessSettings
from services.rpc.calls import Interceptor
from services.rpc.server import Contract
from storage.accounts.account_table import SERVICES_USER, AccountFile, AccountTable
from storage.accounts.rules import Rules
from storage.errors import BrokenAccounts
from storage.files.filesystem import OsFileSystem

ACCOUNTS: Final = accounts_pb2.DESCRIPTOR.services_by_name["Accounts"]


class ServedAccounts(NamedTuple):
    """What a process needs of the accounts; nothing where they are off."""

    interceptors: tuple[Interceptor, ...] = ()
    metadata: Callable[[], Metadata] = tuple  # of its calls to other services of the store


def own_accounts(settings: StoreProcessSettings) -> tuple[ServedAccounts, Contract]:
    """Return the accounts of the writer, which alone changes them; and the contract that does.

    Raises BrokenAccounts where they are on and there is no user.
    """
    audit = AuditLog()
    if not settings.accounts:
        return ServedAccounts(), Contract(ACCOUNTS, AccountServicer(None, audit))
    table = AccountTable(OsFileSystem(), _config(settings))
    if not table.rules.users:
        raise BrokenAccounts(
            "--accounts needs a user: penstock user create NAME --super --store"
            f" {settings.store} makes the first one"
        )
    table.add_services_user()
    accounts = _served(settings, lambda: table.rules, audit)
    return accounts, Contract(ACCOUNTS, AccountServicer(table, audit))


def read_accounts(settings: StoreProcessSettings) -> ServedAccounts:
    """Return the accounts of a process beside the writer. Raises BrokenAccounts."""
    if not settings.accounts:
        return ServedAccounts()
    return _served(settings, AccountFile(OsFileSystem(), _config(settings)).rules, AuditLog())


def _config(settings: StoreProcessSettings) -> Path:
    return settings.store / "config"


def _served(
    settings: StoreProcessSettings, rules: Callable[[], Rules], audit: AuditLog
) -> ServedAccounts:
    signed: Metadata = ()

    def metadata() -> Metadata:
        nonlocal signed
        if not signed and (user := rules().users.get(SERVICES_USER)) is not None:
            signed = Credentials(user.name, user.secrets[-1]).metadata()
        return signed

    guard = Guard(rules, takes_certificates=settings.tls_client_ca is not None, audit=audit)
    return ServedAccounts((InBandGuard(guard),), metadata)

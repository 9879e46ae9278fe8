"""Users of a store that no service has open."""

from __future__ import annotations

from pathlib import Path

from storage.accounts.account_table import AccountTable
from storage.accounts.rules import UserKind
from storage.files.filesystem import FileSystem


def make_users(store: Path, **kinds: UserKind) -> dict[str, str]:
    """Create each user; return their secret keys."""
    table = AccountTable(FileSystem(), store / "config")
    return {name: table.create_user(name, kind).secrets[0] for name, kind in kinds.items()}

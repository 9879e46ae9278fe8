"""One application: what it has committed, and its open transactions."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from storage.staged.ledger import Ledger, load_ledger
from storage.staged.open_transaction import OpenTransaction, load_open, remove_open

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem


class Application:
    """An application's ledger, and its open transactions by version."""

    def __init__(self, directory: Path, ledger: Ledger) -> None:
        self.directory = directory
        self.ledger = ledger
        self.open: dict[int, OpenTransaction] = {}
        self.committing = threading.Lock()  # held for a whole commit


def load_application(filesystem: FileSystem, directory: Path) -> Application | None:
    """Read an application's directory; what was never acknowledged, or is done with, is removed.

    None if nothing is left. Raises StoreFailed for a ledger or an intent that cannot be read.
    """
    ledger = load_ledger(filesystem, directory)
    found: dict[int, OpenTransaction] = {}
    for entry in filesystem.list_directory(directory):
        if not entry.is_directory or not entry.name.isdecimal():
            continue
        version = int(entry.name)
        if ledger is not None and ledger.holds(version):
            remove_open(filesystem, directory / entry.name)
            continue
        transaction = load_open(filesystem, directory / entry.name, version)
        if transaction is not None:
            found[version] = transaction
    if ledger is None:
        if not found:
            remove_open(filesystem, directory)
            return None
        app_id = next(iter(found.values())).app_id
        one_off = any(transaction.one_off for transaction in found.values())
        ledger = Ledger(app_id=app_id, one_off=one_off)
    app = Application(directory, ledger)
    app.open = found
    return app

"""One application: what it has committed, and its open staged commits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.errors import DamagedLedger, DeviceFailed, StoreBusy, StoreError, StoreFull
from storage.staged.ledger import Ledger, load_ledger, settle_ledger
from storage.staged.open_commit import OpenCommit, damaged_stages, load_open, remove_open

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem

_LOG: Final = logging.getLogger(__name__)


class Application:
    """An application's ledger, and its open staged commits by version."""

    def __init__(self, directory: Path, ledger: Ledger) -> None:
        self.directory = directory
        self.ledger = ledger
        self.open: dict[int, OpenCommit] = {}
        self.committing = threading.Lock()  # held for a whole commit


def version_directory(directory: Path, version: int) -> Path:
    """Return where the stages of one version of an application lie."""
    return directory / f"{version:020d}"


def load_application(filesystem: FileSystem, directory: Path, before_ms: int) -> Application | None:
    """Read an application's directory; what was never acknowledged, or is done with, is removed.

    So are damaged stages that were written before a time. None if nothing is left but such that stay.
    Raises DamagedLedger for a ledger or an intent that is damaged, OSError and StoreBusy for a file that cannot be
    read now.
    """
    with suppress(StoreFull):  # then the next start, or the next commit, writes the second file
        problem = settle_ledger(filesystem, directory)
        if problem:
            _LOG.warning("%s: %s; the other of the two files counts", directory, problem)
    ledger = load_ledger(filesystem, directory)
    found: dict[int, OpenCommit] = {}
    for entry in filesystem.list_directory(directory):
        if not entry.is_directory or not entry.name.isdecimal():
            continue
        version = int(entry.name)
        if ledger is not None and ledger.holds(version):
            remove_open(filesystem, directory / entry.name)
            continue
        commit = load_open(filesystem, directory / entry.name, version, before_ms)
        if commit is not None:
            found[version] = commit
    if ledger is None:
        if not found:
            if not holds_damaged_stages(filesystem, directory):
                remove_open(filesystem, directory)
            return None
        app_id = next(iter(found.values())).app_id
        one_off = any(commit.one_off for commit in found.values())
        ledger = Ledger(app_id=app_id, one_off=one_off)
    app = Application(directory, ledger)
    app.open = found
    return app


def holds_damaged_stages(filesystem: FileSystem, directory: Path) -> bool:
    """Return whether there are damaged stages in the directory of an application that has no staged commit open."""
    return any(
        damaged_stages(filesystem, OpenCommit(filesystem, directory / entry.name, int(entry.name)))
        for entry in filesystem.list_directory(directory)
        if entry.is_directory and entry.name.isdecimal()
    )


def load_applications(
    filesystem: FileSystem, root: Path, before_ms: int
) -> tuple[dict[str, Application], dict[str, StoreError]]:
    """Return the applications below ``root`` by id, after making all that is there durable.

    What a process wrote, and was killed before it was durable, counts. The second table has why an
    application is not among them, by the name of its directory. Raises OSError.
    """
    if filesystem.exists(root):
        filesystem.sync_directory(root)
    found: dict[str, Application] = {}
    refused: dict[str, StoreError] = {}
    for entry in filesystem.list_directory(root):
        try:
            _make_durable(filesystem, root / entry.name)
            app = load_application(filesystem, root / entry.name, before_ms)
        except DamagedLedger as error:
            refused[entry.name] = error
        except StoreBusy as busy:
            refused[entry.name] = DeviceFailed(
                f"the start could not read {root / entry.name}: {busy}. Start the writer again when there are"
                " descriptors and memory"
            )
        except OSError as error:
            refused[entry.name] = DeviceFailed(
                f"the device does not give what is in {root / entry.name}: {error}. Look at the device;"
                " then start the writer again"
            )
        else:
            if app is not None:
                found[app.ledger.app_id] = app
    for problem in refused.values():
        _LOG.error("%s", problem)
    return found, refused


def _make_durable(filesystem: FileSystem, directory: Path) -> None:
    for entry in filesystem.list_directory(directory):
        path = directory / entry.name
        if entry.is_directory:
            _make_durable(filesystem, path)
        else:
            file = filesystem.open(path, writable=True)
            file.sync_all()
            file.close()
    if filesystem.exists(directory):
        filesystem.sync_directory(directory)


def needed_offset(applications: Mapping[str, Application]) -> int | None:
    """Return from which commit offset on the records of decided commits are looked for; None without any."""
    commits = [commit for app in list(applications.values()) for commit in list(app.open.values())]
    intents = [commit.intent for commit in commits]
    return min((intent.log_offset for intent in intents if intent is not None), default=None)

"""One application: what it has committed, and its open staged commits."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.errors import DamagedLedger, DeviceFailed, StoreBusy, StoreError, StoreFull
from storage.format.stage import safe_name
from storage.staged.ledger import (
    Intent,
    Ledger,
    Outcome,
    intent_name,
    ledger_name,
    load_intents,
    load_ledgers,
)
from storage.staged.open_commit import OpenCommit, OpenCommitState, load_open, remove_open

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.journal.states import StateJournal

_LOG: Final = logging.getLogger(__name__)


class Application:
    """An application's ledger, and its open staged commits by version."""

    def __init__(self, directory: Path, ledger: Ledger) -> None:
        self.directory = directory
        self.ledger = ledger
        self.open: dict[int, OpenCommit] = {}
        self.committing = threading.Lock()  # held for a whole commit


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationState:
    """One application: its highest committed version (-1: none) and its open staged commits.

    ``problem`` says why it is refused, empty if it is not; ``app_id`` is then its directory's name.
    """

    app_id: str
    last_version: int
    last: Outcome | None
    open: tuple[OpenCommitState, ...]
    problem: str = ""


def version_directory(directory: Path, version: int) -> Path:
    """Return where the stages of one version of an application lie."""
    return directory / f"{version:020d}"


def load_application(
    filesystem: FileSystem, directory: Path, ledger: Ledger | None, intents: Mapping[int, Intent]
) -> Application | None:
    """Read an application's directory; what was never acknowledged, is damaged or done with, is removed.

    None if nothing is left. Raises OSError and StoreBusy for a file that cannot be read now.
    """
    versions = {
        int(entry.name)
        for entry in filesystem.list_directory(directory)
        if entry.is_directory and entry.name.isdecimal()
    }
    found: dict[int, OpenCommit] = {}
    for version in sorted(versions | intents.keys()):
        place = version_directory(directory, version)
        if ledger is not None and ledger.holds(version):
            remove_open(filesystem, place)
            continue
        commit = load_open(filesystem, place, version, intents.get(version))
        if commit is not None:
            found[version] = commit
    if ledger is None:
        if not found:
            remove_open(filesystem, directory)
            return None
        app_id = next(iter(found.values())).app_id
        one_off = any(commit.one_off for commit in found.values())
        ledger = Ledger(app_id=app_id, one_off=one_off)
    app = Application(directory, ledger)
    app.open = found
    return app


def forget(filesystem: FileSystem, states: StateJournal, app: Application) -> None:
    """Remove an application of which no commit is open. Raises StoreFull with nothing changed, OSError."""
    if filesystem.exists(app.directory):
        # Stages that were removed must not come back when the ledger has gone.
        filesystem.sync_directory(app.directory)
    states.put({ledger_name(app.ledger.app_id): b""})
    with suppress(OSError):
        remove_open(filesystem, app.directory)


def load_applications(
    filesystem: FileSystem, root: Path, states: StateJournal
) -> tuple[dict[str, Application], dict[str, StoreError]]:
    """Return the applications of the journal and below ``root`` by id, after making all names there durable.

    What a process wrote, and was killed before it was durable, counts. The second table has why an
    application is not among them, by the name of its directory: all of them where the journal is damaged.
    A decided commit whose directory somebody removed is given up. Raises OSError.
    """
    ledgers = {safe_name(ledger.app_id): ledger for ledger in load_ledgers(states)}
    intents: dict[str, dict[int, Intent]] = defaultdict(dict)
    given_up: dict[str, bytes] = {}
    for intent in load_intents(states):
        name = safe_name(intent.app_id)
        if filesystem.exists(version_directory(root / name, intent.version)):
            intents[name][intent.version] = intent
        else:
            given_up[intent_name(intent.app_id, intent.version)] = b""
    names = (
        {entry.name for entry in filesystem.list_directory(root)} | ledgers.keys() | intents.keys()
    )
    damaged = states.damaged_file()
    if damaged is not None:
        problem = DamagedLedger(damaged_journal(damaged))
        return {}, dict.fromkeys(["", *sorted(names)], problem)
    if given_up:
        _LOG.warning("staged commits are given up, their directories are gone: %s", [*given_up])
        with suppress(StoreFull):  # the next start does it
            states.put(given_up)
    if filesystem.exists(root):
        filesystem.sync_directory(root)
    found: dict[str, Application] = {}
    refused: dict[str, StoreError] = {}
    for name in sorted(names):
        try:
            _sync_directories(filesystem, root / name)
            app = load_application(
                filesystem, root / name, ledgers.get(name), intents.get(name, {})
            )
        except (OSError, StoreBusy) as error:
            refused[name] = DeviceFailed(
                f"the start could not read {root / name}: {error}. Start the writer again when the device, or"
                " memory and descriptors, allow"
            )
        else:
            if app is not None:
                found[app.ledger.app_id] = app
    for refusal in refused.values():
        _LOG.error("%s", refusal)
    return found, refused


def damaged_journal(file: Path) -> str:
    """Return why staged commits are refused while a file of the writer's journal is there."""
    return (
        f"{file} is damaged, so what was committed or decided last is not known. Remove it if nothing will be"
        " committed again that was committed just before it was damaged; then start the writer again"
    )


def _sync_directories(filesystem: FileSystem, directory: Path) -> None:
    """Make names durable; the content of a file was when it got its name."""
    for entry in filesystem.list_directory(directory):
        if entry.is_directory:
            filesystem.sync_directory(directory / entry.name)
    if filesystem.exists(directory):
        filesystem.sync_directory(directory)

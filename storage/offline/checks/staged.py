"""Staged commits under way, and what of them is damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage import findings as kinds
from storage.errors import DamagedStage, StoreBusy
from storage.findings import DAMAGE, NOTE, WARNING, Finding
from storage.format.stage import safe_name
from storage.journal.states import read_states
from storage.staged.application import version_directory
from storage.staged.ledger import Intent, load_intents, load_ledgers
from storage.staged.stages import DIRECTORY, Stage, is_sealed, read_stage, stage_name

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.view.layout import StorePaths

_TO_STAGE_AGAIN: Final = "a stage is damaged: its records are to be staged again"


def staged_commits(disk: FileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Yield the commits that are not stored yet, and their stages that are damaged or lost."""
    states, root = read_states(disk, paths.journal), paths.root / DIRECTORY
    ledgers = {safe_name(ledger.app_id): ledger for ledger in load_ledgers(states)}
    intents = {
        version_directory(root / safe_name(intent.app_id), intent.version): intent
        for intent in load_intents(states)
    }
    open_commits = {
        root / app.name / version.name
        for app in disk.list_directory(root)
        for version in disk.list_directory(root / app.name)
        if version.is_directory and version.name.isdecimal()
    }
    for directory in sorted(open_commits | intents.keys()):
        ledger = ledgers.get(directory.parent.name)
        if ledger is None or not ledger.holds(int(directory.name)):
            name = str(directory.relative_to(paths.root))
            yield from _open(disk, directory, name, intents.get(directory))


def _open(disk: FileSystem, directory: Path, name: str, intent: Intent | None) -> Iterator[Finding]:
    stages: dict[str, Stage] = {}
    unread: set[str] = set()
    for entry in disk.list_directory(directory):
        if not is_sealed(entry.name):
            continue
        problem = ""
        try:
            stage = read_stage(disk, directory / entry.name)
            if stage is None:
                problem = _TO_STAGE_AGAIN
            else:
                stages[stage.header.attempt] = stage
                stage.check()
        except DamagedStage:
            problem = _TO_STAGE_AGAIN
        except (StoreBusy, OSError) as error:
            problem = f"cannot be read: {error}"
            unread.add(entry.name)
        if problem and disk.exists(directory / entry.name):  # else it was committed meanwhile
            yield _damage(f"{name}/{entry.name}", problem)
    severity, message = NOTE, ""
    if intent is None:
        count = sum(stage.seal.record_count for stage in stages.values())
        message = f"{count} records are staged and not committed"
    else:
        severity = WARNING
        message = "a commit was decided and is not complete; the next start completes it"
    yield Finding(severity=severity, kind=kinds.STAGED_COMMIT, file=name, message=message)
    for attempt in () if intent is None else intent.attempts:
        if attempt not in stages and stage_name(attempt) not in unread:
            yield _damage(name, f"the stage of attempt {attempt!r}, which is decided, is lost")


def _damage(file: str, message: str) -> Finding:
    return Finding(severity=DAMAGE, kind=kinds.STAGED_DAMAGE, file=file, message=message)

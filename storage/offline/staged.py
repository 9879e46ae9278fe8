"""Findings about staged commits under way, and about ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.errors import DamagedLedger, DamagedStage, StoreBusy
from storage.staged.intent import load_intent
from storage.staged.ledger import LEDGER_FILE, damaged_ledger_files, load_ledger
from storage.staged.stages import DIRECTORY, Stage, is_sealed, read_stage, stage_name
from storage.tables.own_document import missing_file

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem

Finding = tuple[str, str, str]

_TO_STAGE_AGAIN: Final = "a stage is damaged: its records are to be staged again"


def staged_findings(disk: FileSystem, root: Path) -> Iterator[Finding]:
    """Yield ``(severity, file, message)``; nothing is changed."""
    for app in disk.list_directory(root / DIRECTORY):
        yield from _application(disk, root / DIRECTORY / app.name, f"{DIRECTORY}/{app.name}")


def _application(disk: FileSystem, directory: Path, name: str) -> Iterator[Finding]:
    try:
        ledger = load_ledger(disk, directory)
    except (DamagedLedger, StoreBusy, OSError) as error:
        yield "damage", name, str(error)
        return
    for file, problem in damaged_ledger_files(disk, directory).items():
        yield "warning", f"{name}/{file}", f"{problem}; the other of the two is used"
    for file, problem in missing_file(disk, directory / LEDGER_FILE).items():
        yield "warning", f"{name}/{file}", problem
    for entry in disk.list_directory(directory):
        if not entry.is_directory or not entry.name.isdecimal():
            continue
        if ledger is None or not ledger.holds(int(entry.name)):
            yield from _open(disk, directory / entry.name, f"{name}/{entry.name}")


def _open(disk: FileSystem, directory: Path, name: str) -> Iterator[Finding]:
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
            yield "damage", f"{name}/{entry.name}", problem
    try:
        intent = load_intent(disk, directory)
    except (DamagedLedger, StoreBusy, OSError) as error:
        yield "damage", name, str(error)
        return
    if intent is None:
        count = sum(stage.seal.record_count for stage in stages.values())
        yield "note", name, f"{count} records are staged and not committed"
        return
    yield "warning", name, "a commit was decided and is not complete; the next start completes it"
    for attempt in intent.attempts:
        if attempt not in stages and stage_name(attempt) not in unread:
            yield "damage", name, f"the stage of attempt {attempt!r}, which is decided, is lost"

"""Which of the copies of a broker's table counts.

A table has three files: ``topics.json``, which a broker reads and writes; ``topics.json.bak``, which both
leave as the version before; ``topics.json.checked``, ours, which holds what we wrote last, under a
checksum. A broker ignores ours, so after its run ours is stale, and ``.bak`` says so: whoever replaces a
table, a broker of any version or ours of a former one, makes its present file the ``.bak``. Ours is not
synced with each write: a power cut may leave it not whole, and leaves the table whole; then the table counts,
and the next start of its owner writes ours again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from storage.tables.checked_copy import CheckedCopy, fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem, ReadFileSystem

BACKUP: Final = ".bak"
CHECKED: Final = ".checked"
DAMAGED: Final = ".damaged"  # what a start has replaced
TABLE: Final = ""
ENDINGS: Final = (TABLE, BACKUP, CHECKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCopy:
    """The copy that counts: the ending of its file's name, None if there is none, and its bytes.

    ``problem`` says what is wrong with the others, empty if nothing is. ``settled``: the table and the
    checked copy both hold ``data``.
    """

    ending: str | None
    data: bytes = b""
    problem: str = ""
    settled: bool = False
    generation: int = 0


def choose_copy(
    table: bytes | None,
    backup: bytes | None,
    checked: CheckedCopy | None,
    is_readable: Callable[[bytes], bool],
) -> ChosenCopy:
    """Decide among what the three files hold, None for one that is not there (or, of ours, is damaged)."""

    def chosen(ending: str, data: bytes, problem: str = "") -> ChosenCopy:
        return ChosenCopy(
            ending=ending, data=data, problem=problem,
            settled=checked is not None and table == data == checked.data,
            generation=0 if checked is None else checked.generation,
        )  # fmt: skip

    if checked is None:
        if table is not None and is_readable(table):
            return chosen(TABLE, table)
        problem = "is missing" if table is None else "cannot be read"
        if backup is not None and is_readable(backup):
            return chosen(BACKUP, backup, f"{problem}; its .bak is used")
        if table is None and backup is None:
            return ChosenCopy(ending=None)
        return ChosenCopy(ending=None, problem=f"{problem}; there is no .bak to use")
    if table == checked.data:
        return chosen(TABLE, checked.data)
    if table is not None and fingerprint(table) == checked.previous:
        # Our write was cut between two names; or somebody has put the former version back.
        return chosen(CHECKED, checked.data, "is older than its checked copy, which is used")
    readable = table is not None and is_readable(table)
    replaced_once = backup == checked.data and fingerprint(backup) != checked.previous
    replaced_more_often = (
        backup is not None
        and backup != checked.data
        and fingerprint(backup) != checked.previous
        and is_readable(backup)
    )
    if table is not None and readable and (replaced_once or replaced_more_often):
        return chosen(TABLE, table)
    if backup is not None and not readable and replaced_more_often:
        # A broker died between the two names of its write.
        return chosen(BACKUP, backup, "cannot be read; its .bak is used")
    problem = "is missing" if table is None else "is damaged"
    return chosen(CHECKED, checked.data, f"{problem}; its checked copy is used")


class TableCopies:
    """The three files of one table. The owner of the table alone calls ``settle`` and ``replace``."""

    def __init__(self, filesystem: FileSystem, path: Path) -> None:
        self._filesystem = filesystem
        self._path = path

    def settle(self, is_readable: Callable[[bytes], bool]) -> str:
        """Make the table and the checked copy hold the copy that counts; return what was wrong with it.

        Durable on return. A damaged table stays as ``NAME.damaged``. Raises StoreFull, OSError.
        """
        chosen = read_copies(self._filesystem, self._path, is_readable)
        if chosen.ending is None or (chosen.settled and self._knows_backup()):
            return chosen.problem
        if chosen.ending != TABLE:
            damaged = _read(self._filesystem, self._path)
            if damaged is not None:
                self._filesystem.write_atomically(_with(self._path, DAMAGED), damaged, backup=False)
        self._write(chosen.data, chosen.generation + 1, with_table=chosen.ending != TABLE)
        return chosen.problem

    def replace(self, data: bytes) -> None:
        """Replace table and checked copy; what the table was is its ``.bak`` then. Durable on return.

        Raises StoreFull with nothing changed, OSError.
        """
        before = _read(self._filesystem, self._path)
        checked, _ = read_checked(self._filesystem, self._path)
        generation = 1 if checked is None else checked.generation + 1
        if before == data:
            if checked is None or checked.data != data:
                self._write(data, generation, with_table=False)
            return
        if before is None:
            before = _read(self._filesystem, _with(self._path, BACKUP))  # stays the .bak
        copy = CheckedCopy(generation=generation, previous=fingerprint(before), data=data)
        self._filesystem.write_atomically(
            self._path, data, backup=True, copy=(CHECKED, copy.encode()), syncs_copy=False
        )

    def _knows_backup(self) -> bool:
        """Return whether the ``.bak`` is what our last write left as such."""
        checked, _ = read_checked(self._filesystem, self._path)
        backup = _read(self._filesystem, _with(self._path, BACKUP))
        return checked is not None and fingerprint(backup) == checked.previous

    def _write(self, data: bytes, generation: int, *, with_table: bool) -> None:
        """Write the checked copy, and the table itself if it does not hold ``data``; ``.bak`` stays."""
        filesystem, path = self._filesystem, self._path
        backup = _read(filesystem, _with(path, BACKUP))
        # Two alike would not say which of them a broker has replaced, so the .bak goes; last, as it may be the only copy.
        goes = backup == data
        previous = fingerprint(None if goes else backup)
        copy = CheckedCopy(generation=generation, previous=previous, data=data)
        if with_table:
            filesystem.write_atomically(path, data, backup=False, copy=(CHECKED, copy.encode()))
        else:
            filesystem.write_atomically(_with(path, CHECKED), copy.encode(), backup=False)
        if goes:
            filesystem.unlink(_with(path, BACKUP))
            filesystem.sync_directory(path.parent)


def read_copies(
    filesystem: ReadFileSystem, path: Path, is_readable: Callable[[bytes], bool]
) -> ChosenCopy:
    """Return the copy of a table that counts; nothing is changed. Raises OSError."""
    checked, problem = read_checked(filesystem, path)  # first: it is replaced before the table
    table = _read(filesystem, path)
    if checked is not None and table == checked.data:
        return choose_copy(table, None, checked, is_readable)
    backup = _read(filesystem, _with(path, BACKUP))
    chosen = choose_copy(table, backup, checked, is_readable)
    if problem and not chosen.problem:
        return replace(chosen, problem=f"its checked copy is not whole: {problem}")
    return chosen


def read_checked(filesystem: ReadFileSystem, path: Path) -> tuple[CheckedCopy | None, str]:
    """Return the checked copy of a table, None without a whole one, and what is wrong with its file."""
    content = _read(filesystem, _with(path, CHECKED))
    if content is None:
        return None, ""
    try:
        return CheckedCopy.decode(content), ""
    except ValueError as error:
        return None, str(error)


def _read(filesystem: ReadFileSystem, path: Path) -> bytes | None:
    try:
        return filesystem.read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _with(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)

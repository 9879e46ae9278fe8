"""What an application has committed: the exact set of its versions, as ranges, and the last outcome.

One small document an application, ``ledger.json``, twice and with a checksum
(``storage.tables.own_document``), replaced in one step::

    {"appId": "orders", "oneOff": false, "floor": 0, "committed": [[0, 41], [43, 43]],
     "last": {"version": 43, "commitOffset": 17, "endCommitOffset": 1117, "records": 10,
              "committedMs": 1700000000000}, "checksum": "9ae1f0c2"}

A stream commits one version after the other, so its set is one range. Versions that leave gaps, such
as dates, take a range each; of more than ``RANGES_MAX`` the oldest are dropped. Whether a version below
``floor`` was committed is then not known: it is refused, so that it is neither lost nor stored twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from storage.errors import DamagedLedger
from storage.tables.own_document import damaged_files, load_document, save_document, settle_document

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem

LEDGER_FILE: Final = "ledger.json"
RANGES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a commit stored: ``record_count`` records in ``[commit_offset, end_commit_offset)``.

    Records of others may lie between them. All numbers are 0 for a staged commit of no records.
    """

    version: int
    commit_offset: int
    end_commit_offset: int
    record_count: int
    committed_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Which versions of an application are committed."""

    app_id: str
    one_off: bool = False
    floor: int = 0
    committed: tuple[tuple[int, int], ...] = ()
    last: Outcome | None = None

    def holds(self, version: int) -> bool:
        """Whether the version is committed, for certain."""
        at = bisect_right(self.committed, (version, 1 << 64)) - 1
        return at >= 0 and self.committed[at][0] <= version <= self.committed[at][1]

    def is_forgotten(self, version: int) -> bool:
        """Whether a version is so old that the ledger no longer knows."""
        return version < self.floor and not self.holds(version)

    @property
    def last_version(self) -> int:
        """The highest committed version; -1 without one."""
        return self.committed[-1][1] if self.committed else -1

    def outcome_of(self, version: int) -> Outcome | None:
        """What the commit of a version stored, if that is still known."""
        return self.last if self.last is not None and self.last.version == version else None

    def with_committed(self, outcome: Outcome, *, ranges_max: int = RANGES_MAX) -> Ledger:
        """Return the ledger with one more version."""
        version = outcome.version
        ranges = list(self.committed)
        at = bisect_right(ranges, (version, 1 << 64))
        low = high = version
        if at < len(ranges) and ranges[at][0] == version + 1:
            high = ranges.pop(at)[1]
        if at and ranges[at - 1][1] == version - 1:
            at -= 1
            low = ranges.pop(at)[0]
        ranges.insert(at, (low, high))
        floor = self.floor
        if len(ranges) > ranges_max:
            floor = ranges[-ranges_max][0]
            ranges = ranges[-ranges_max:]
        return replace(self, floor=floor, committed=tuple(ranges), last=outcome)

    def to_document(self) -> dict[str, object]:
        """Return the document's fields."""
        last = self.last
        return {
            "appId": self.app_id,
            "oneOff": self.one_off,
            "floor": self.floor,
            "committed": self.committed,
            "last": None
            if last is None
            else {
                "version": last.version,
                "commitOffset": last.commit_offset,
                "endCommitOffset": last.end_commit_offset,
                "records": last.record_count,
                "committedMs": last.committed_ms,
            },
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Ledger:
        """Read the document's fields. Raises ValueError, KeyError or TypeError if they are not a ledger's."""
        last = document["last"]
        return cls(
            app_id=str(document["appId"]),
            one_off=bool(document["oneOff"]),
            floor=int(document["floor"]),
            committed=tuple((int(low), int(high)) for low, high in document["committed"]),
            last=None
            if last is None
            else Outcome(
                version=int(last["version"]),
                commit_offset=int(last["commitOffset"]),
                end_commit_offset=int(last["endCommitOffset"]),
                record_count=int(last["records"]),
                committed_ms=int(last["committedMs"]),
            ),
        )


def load_ledger(filesystem: FileSystem, directory: Path) -> Ledger | None:
    """Return the ledger in an application's directory, None without one.

    Raises DamagedLedger where neither of its files is whole: to go on without it could store rows twice.
    Raises OSError and StoreBusy where a file before the whole one cannot be read now: the other may be older.
    """
    path = directory / LEDGER_FILE
    try:
        return load_document(filesystem, path, Ledger.from_document)
    except ValueError as error:
        raise DamagedLedger(
            f"{path} cannot be read, nor its .bak, so what its application has committed is not known:"
            f" {error}. Restore one of the two, or remove both if nothing will be committed again that"
            " they knew; then start the writer again"
        ) from error


def settle_ledger(filesystem: FileSystem, directory: Path) -> str:
    """Make both files of a ledger hold the same; return what was wrong, empty if nothing was."""
    return settle_document(filesystem, directory / LEDGER_FILE, Ledger.from_document)


def damaged_ledger_files(filesystem: FileSystem, directory: Path) -> dict[str, str]:
    """Return which of a ledger's two files are there and not whole, and what is wrong with each."""
    return damaged_files(filesystem, directory / LEDGER_FILE, Ledger.from_document)


def save_ledger(filesystem: FileSystem, directory: Path, ledger: Ledger) -> None:
    """Replace the ledger; durable on return. Raises StoreFull, OSError."""
    save_document(filesystem, directory / LEDGER_FILE, ledger.to_document())

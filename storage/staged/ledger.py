"""What an application has committed: the exact set of its versions, as ranges, and the last outcome.

One small document an application, a state of the writer's journal::

    {"appId": "orders", "oneOff": false, "floor": 0, "committed": [[0, 41], [43, 43]],
     "last": {"version": 43, "commitOffset": 17, "endCommitOffset": 1117, "records": 10,
              "committedMs": 1700000000000}}

A stream commits one version after the other, so its set is one range. Versions that leave gaps, such
as dates, take a range each; of more than ``RANGES_MAX`` the oldest are dropped. Whether a version below
``floor`` was committed is then not known: it is refused, so that it is neither lost nor stored twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from storage.journal.states import encode_document
from storage.staged.intent import intent_name

if TYPE_CHECKING:
    from storage.journal.states import ReadStates, StateJournal

PREFIX: Final = "ledger/"  # of names of states
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
        """Read the document's fields."""
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


def ledger_name(app_id: str) -> str:
    """Return the name of a state."""
    return PREFIX + app_id


def save_ledger(states: StateJournal, ledger: Ledger, version: int) -> None:
    """Replace the ledger, and remove the intent of a version that it has by now; durable on return.

    Raises StoreFull, OSError.
    """
    saved = encode_document(ledger.to_document())
    states.put({ledger_name(ledger.app_id): saved, intent_name(ledger.app_id, version): b""})


def load_ledgers(states: StateJournal | ReadStates) -> list[Ledger]:
    """Return the ledgers of all applications."""
    return [Ledger.from_document(states.document(name)) for name in states.names(PREFIX)]

"""What staged commits have in the writer's journal: an application's ledger, the intents of commits.

An intent is the decision of a commit: from here on it will be completed, whatever happens. It stays until the
ledger has the version. A ledger is the exact set of committed versions, as ranges, and the last outcome::

    {"app_id": "orders", "one_off": false, "floor": 0, "committed": [[0, 41], [43, 43]],
     "last": {"version": 43, "commit_offset": 17, "end_commit_offset": 1117, "record_count": 10,
              "committed_ms": 1700000000000}}

A stream commits one version after the other, so its set is one range. Versions that leave gaps, such
as dates, take a range each; of more than ``RANGES_MAX`` the oldest are dropped. Whether a version below
``floor`` was committed is then not known: it is refused, so that it is neither lost nor stored twice.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from storage.journal.states import encode_document

if TYPE_CHECKING:
    from storage.journal.states import StateJournal, States

INTENTS: Final = "intent/"  # of names of states
LEDGERS: Final = "ledger/"
RANGES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """The decision: which attempts, in which order; all their records lie after ``log_offset``."""

    app_id: str
    version: int
    one_off: bool
    attempts: tuple[str, ...]
    log_offset: int


def intent_name(app_id: str, version: int) -> str:
    """Return the name of a state."""
    return f"{INTENTS}{version}/{app_id}"


def save_intent(states: StateJournal, intent: Intent) -> None:
    """Write the decision; durable on return. Raises StoreFull, OSError."""
    states.put_document(intent_name(intent.app_id, intent.version), asdict(intent))


def needed_offset(states: StateJournal) -> int | None:
    """Return from which commit offset on the records of decided commits are looked for; None without any."""
    return min((intent.log_offset for intent in load_intents(states)), default=None)


def load_intents(states: States) -> list[Intent]:
    """Return all decisions that are not completed."""
    documents = [states.document(name) for name in states.names(INTENTS)]
    return [Intent(**{**each, "attempts": tuple(each["attempts"])}) for each in documents]


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


def ledger_name(app_id: str) -> str:
    """Return the name of a state."""
    return LEDGERS + app_id


def save_ledger(states: StateJournal, ledger: Ledger, version: int) -> None:
    """Replace the ledger, and remove the intent of a version that it has by now; durable on return.

    Raises StoreFull, OSError.
    """
    saved = encode_document(asdict(ledger))
    states.put({ledger_name(ledger.app_id): saved, intent_name(ledger.app_id, version): b""})


def load_ledgers(states: States) -> list[Ledger]:
    """Return the ledgers of all applications."""
    return [_ledger(**states.document(name)) for name in states.names(LEDGERS)]


def _ledger(*, committed: list[list[int]], last: dict[str, int] | None, **others: Any) -> Ledger:
    outcome = None if last is None else Outcome(**last)
    ranges = tuple((low, high) for low, high in committed)
    return Ledger(committed=ranges, last=outcome, **others)

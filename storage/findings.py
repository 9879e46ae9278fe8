"""What is found in a store: which kind, where, what it costs, what repairs it.

Severities: *damage* is what was whole once and is not now, whether it can be made again or not; *warning*
is something wrong that the next start repairs, or that a broker would stumble over; *note* is worth
knowing; *ok* is a check that found nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

Line = dict[str, Any]

NOTE: Final = "note"
WARNING: Final = "warning"
DAMAGE: Final = "damage"
OK: Final = "ok"


class FindingKind(NamedTuple):
    """What findings of one kind have in common.

    ``place`` says which numbers ``begin`` and ``end`` of such a finding are, "" if it has none.
    ``command`` has the store's directory for ``{0}``; "" where nothing need or can be done. ``warning_command`` is
    what to do instead where such a finding is a warning.
    """

    name: str
    place: str
    cost: str
    command: str
    warning_command: str = ""


NOTHING_LOST: Final = "nothing: it is rebuilt from the log"
START: Final = "penstock serve --store {0}"
REPAIR: Final = "penstock doctor --repair {0}"

STATE: Final = FindingKind("state", "", "", "")

LOG_RECORD: Final = FindingKind(
    "log-record", "commit offsets", "the records of that range", "restore the file from a backup"
)
LOG_FILE_MISSING: Final = FindingKind(
    "log-file-missing",
    "commit offsets",
    "the records of that range",
    "restore the file from a backup",
)
LOG_FILE_LENGTH: Final = FindingKind(
    "log-file-length", "", "the records that are cut off", "restore the file from a backup", START
)
LOG_FILE_FOREIGN: Final = FindingKind(
    "log-file-foreign", "", "nothing to us; a broker does not start", REPAIR
)
LOG_TAIL: Final = FindingKind("log-tail", "commit offsets", "nothing that was whole", START)
QUEUE_UNIT: Final = FindingKind("queue-unit", "queue offsets", NOTHING_LOST, REPAIR, START)
QUEUE_UNIT_MISSING: Final = FindingKind(
    "queue-unit-missing", "queue offsets", NOTHING_LOST, REPAIR, START
)
QUEUE_FILE_MISSING: Final = FindingKind(
    "queue-file-missing", "queue offsets", NOTHING_LOST, REPAIR, START
)
QUEUE_FILE_LENGTH: Final = FindingKind("queue-file-length", "", NOTHING_LOST, START)
QUEUE_END: Final = FindingKind(
    "queue-end", "queue offsets", "nothing: no record of the log belongs there", REPAIR
)
QUEUE_RECORD: Final = FindingKind(
    "queue-record", "queue offsets", "that message: consumers get DATA_LOSS for its offset",
    "restore its log file from a backup",
)  # fmt: skip
HALF_RECORD: Final = FindingKind(
    "half-record", "queue offsets",
    "nothing if its transaction has ended; else that message",
    "restore its log file from a backup",
)  # fmt: skip
HALF_REMOVAL: Final = FindingKind(
    "half-removal", "queue offsets",
    "nothing if a start has read it; else transactions that were rolled back or given up may be pending again",
    "restore its log file from a backup",
)  # fmt: skip
DELAYED_RECORD: Final = FindingKind(
    "delayed-record", "queue offsets", "nothing if it was delivered; else that message is not",
    "restore its log file from a backup",
)  # fmt: skip
INDEX_FILE: Final = FindingKind(
    "index-file", "commit offsets", "keys that queries do not find, until it is rebuilt",
    REPAIR,
)  # fmt: skip
INDEX_ENTRIES: Final = FindingKind(
    "index-entries", "", "keys that queries do not find, until it is rebuilt", REPAIR
)
INDEX_FILE_MISSING: Final = FindingKind(
    "index-file-missing", "commit offsets", "keys that queries do not find, until it is rebuilt",
    START,
)  # fmt: skip
INDEX_BEHIND: Final = FindingKind(
    "index-behind", "commit offsets", "keys that queries do not find yet", START
)
TABLE: Final = FindingKind(
    "table", "", "nothing, but where its .bak is used: what was changed last", START
)
TOPIC_ENTRY: Final = FindingKind(
    "topic-entry", "", "producers get NOT_FOUND until it is repaired; the topic's attributes", START
)
GROUP_OFFSET: Final = FindingKind(
    "group-offset", "queue offsets", "nothing: the group goes on at the end of its queue", START
)
TABLE_LOST: Final = FindingKind(
    "table-lost", "", "what no other file says: topics without messages, attributes of topics, groups and their offsets",
    "restore config/ from a backup",
)  # fmt: skip
TABLE_MISSING: Final = FindingKind(
    "table-missing", "", "what no other file says: attributes of topics",
    "restore config/ from a backup",
)  # fmt: skip
CHECKPOINT: Final = FindingKind("checkpoint", "", "a longer start", START)
CHECKPOINT_SLOT: Final = FindingKind(
    "checkpoint-slot", "file positions", "a longer start at most: the other slot counts", START
)
LEASE_JOURNAL: Final = FindingKind(
    "lease-journal", "", "messages that were acknowledged with what is lost of it come again", START
)
TIMER_FILE: Final = FindingKind(
    "timer-file", "",
    "nothing: the next start goes by what is whole, or reads the records of delayed messages again",
    START,
)  # fmt: skip
JOURNAL: Final = FindingKind(
    "journal", "",
    "staged commits are refused while its damaged file is there; the rest goes on from older positions",
    START,
)  # fmt: skip
STAGED_COMMIT: Final = FindingKind(
    "staged-commit", "", "messages that are not all visible yet", START
)
STAGED_DAMAGE: Final = FindingKind(
    "staged-damage", "", "the staged commits of that application", "restore the file from a backup"
)

KINDS: Final = (
    LOG_RECORD, LOG_FILE_MISSING, LOG_FILE_LENGTH, LOG_FILE_FOREIGN, LOG_TAIL, QUEUE_UNIT,
    QUEUE_UNIT_MISSING, QUEUE_FILE_MISSING, QUEUE_FILE_LENGTH, QUEUE_END, QUEUE_RECORD, HALF_RECORD,
    HALF_REMOVAL, DELAYED_RECORD, INDEX_FILE,
    INDEX_ENTRIES, INDEX_FILE_MISSING, INDEX_BEHIND, TABLE, TOPIC_ENTRY, GROUP_OFFSET, TABLE_LOST, TABLE_MISSING, CHECKPOINT, CHECKPOINT_SLOT,
    LEASE_JOURNAL, TIMER_FILE, JOURNAL, STAGED_COMMIT, STAGED_DAMAGE, STATE,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found; ``file`` is relative to the store, "" for the whole of it.

    ``begin`` and ``end`` are what ``kind.place`` says, None where there is no such range.
    """

    severity: str
    kind: FindingKind
    file: str
    message: str
    begin: int | None = None
    end: int | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether something is to be done about it."""
        return self.severity in (WARNING, DAMAGE)

    def as_line(self, directory: str) -> Line:
        """Return it as printed in JSON; numbers, cost and command only where there are any."""
        line: Line = {
            "severity": self.severity, "kind": self.kind.name, "file": self.file,
            "message": self.message,
        }  # fmt: skip
        if self.begin is not None:
            line |= {"begin": self.begin, "end": self.end}
        if self.is_wrong:
            command = self.kind.command
            if self.severity == WARNING:
                command = self.kind.warning_command or command
            line |= {"cost": self.kind.cost, "command": command.format(directory)}
        return line

"""What retention decides, without touching a file.

A file of the log expires so long after its last modification, as with a broker. Expired files are deleted
in some hours of the day, or at any hour when the disk is fuller than ``clean_percent``. Above
``force_percent`` files are deleted whatever their age; above ``refuse_percent`` nothing more is appended
either, until the disk is down to ``force_percent`` again. Ratios are compared with "more than".
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from storage.config import StoreConfig, parse_delete_hours

HOUR_MS: Final = 3_600_000
DELETED_IN_A_ROUND_MAX: Final = 10


class Urgency(Enum):
    """What may be deleted now."""

    NOTHING = "not now"
    EXPIRED = "files that have expired"
    ANY = "the oldest files, whatever their age"


class DatedLogFile(NamedTuple):
    """One file of the log: commit offsets ``[start_offset, end_offset)``."""

    start_offset: int
    end_offset: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """When files go. ``retention_ms`` 0: never, and the disk is not looked at."""

    retention_ms: int
    delete_hours: frozenset[int]
    clean_percent: int
    force_percent: int
    refuse_percent: int

    @property
    def is_on(self) -> bool:
        """Whether anything is ever deleted unasked."""
        return self.retention_ms > 0

    def urgency(self, now_ms: int, used_percent: int) -> Urgency:
        """Return what may be deleted at a time, on a disk that is so full."""
        if not self.is_on:
            return Urgency.NOTHING
        if used_percent > self.force_percent:
            return Urgency.ANY
        if used_percent > self.clean_percent or hour_of_day(now_ms) in self.delete_hours:
            return Urgency.EXPIRED
        return Urgency.NOTHING

    def refuses(self, used_percent: int, *, refused: bool) -> bool:
        """Return whether appends are refused; ``refused`` whether they were until now."""
        if not self.is_on:
            return False
        return used_percent > (self.force_percent if refused else self.refuse_percent)

    def deletion_ms(self, file: DatedLogFile) -> int:
        """Return from when on a file may be deleted by its age: expired, in an hour for deleting.

        0 where nothing is deleted.
        """
        if not self.is_on:
            return 0
        at_ms = file.modified_ms + self.retention_ms
        if hour_of_day(at_ms) in self.delete_hours:
            return at_ms
        begin = time.localtime(at_ms // 1000)
        at_ms = (at_ms // 1000 - begin.tm_min * 60 - begin.tm_sec) * 1000
        for _ in range(25):  # a day, and the hour that a clock may be set back
            at_ms += HOUR_MS
            if hour_of_day(at_ms) in self.delete_hours:
                break
        return at_ms


def retention_policy(config: StoreConfig) -> RetentionPolicy:
    """Return what a configuration says of retention."""
    return RetentionPolicy(
        retention_ms=config.retention_ms,
        delete_hours=parse_delete_hours(config.retention_delete_hours),
        clean_percent=config.retention_clean_percent,
        force_percent=config.retention_force_percent,
        refuse_percent=config.retention_refuse_percent,
    )


def hour_of_day(now_ms: int) -> int:
    """Return the hour of a time, 0 to 23, in the machine's time zone."""
    return time.localtime(now_ms // 1000).tm_hour


def may_go(file: DatedLogFile, *, now_ms: int, retention_ms: int, urgency: Urgency) -> bool:
    """Return whether the oldest file of several may be deleted, as far as nobody needs it."""
    if urgency is Urgency.EXPIRED:
        return file.modified_ms + retention_ms <= now_ms
    return urgency is Urgency.ANY

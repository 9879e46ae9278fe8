"""The worker that deletes old files of the log, then what queues held of them.

The minimum commit offset is the writer's: it is where its oldest file of the log begins, and the checkpoint
page has it for everybody else. Of each file, in this order: it is taken out of the writer's log; the
minimum is published, so that nobody asks for what follows; its name goes, durably. A stop in between
leaves the file, and the next start begins with it again. A file is deleted outside every lock that an
append takes, and views of it stay good.

A round deletes at most ``DELETED_IN_A_ROUND_MAX`` files of the log, with pauses, and is followed by one
way through the queues. The disk is looked at before each file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.errors import InvalidMessage, StoreError
from storage.files.protocol import NS_PER_MS
from storage.format.names import file_name
from storage.retention.policy import (
    DELETED_IN_A_ROUND_MAX,
    DatedLogFile,
    RetentionPolicy,
    Urgency,
    may_go,
)
from storage.retention.queue_cleaning import QueueCleaning
from storage.retention.report import RetainedFile, RetentionReport
from storage.retention.watched_clock import WatchedClock
from storage.workers import Worker

if TYPE_CHECKING:
    from pathlib import Path

    from storage.clock import Clock
    from storage.files.filesystem import FileSystem
    from storage.files.mapped_file_queue import FileEntry, MappedFileQueue
    from storage.log.followers import Followers
    from storage.queues.queue_table import QueueTable
    from storage.retention.queue_cleaning import DropUnits
    from storage.workers import Workers

_LOG: Final = logging.getLogger(__name__)

LOOK_S: Final = 10.0  # between rounds
PAUSE_S: Final = 0.1  # after each deleted file
STEP_S: Final = 0.01  # between looks at some queues
HELD_LOOKS_MAX: Final = 20  # of a round that was asked for: some hold files for moments


class _CleaningRound(NamedTuple):
    """A round under way; ``asks`` is the number of the last call that it is for."""

    asks: int
    asked_ms: int | None  # the age that somebody asked to have deleted
    rests: Iterator[float]  # its steps: each says how long to rest after it


class RetentionWorker(Worker):
    """Deletes what a policy says. ``publish`` takes the minimum commit offset that others go by.

    ``last_timestamp_ms`` is when the newest record was stored, 0: not known.
    """

    full_retry_s = LOOK_S

    def __init__(
        self,
        filesystem: FileSystem,
        files: MappedFileQueue,
        queues: QueueTable,
        followers: Followers,
        policy: RetentionPolicy,
        clock: Clock,
        *,
        publish: Callable[[int], None],
        drop_units: DropUnits,
        last_timestamp_ms: int = 0,
        workers: Workers | None = None,
    ) -> None:
        super().__init__("retention", workers=workers)
        self.policy = policy
        self.refusal = ""  # why appends are refused
        self._filesystem = filesystem
        self._files = files
        self._queues = queues
        self._followers = followers
        self._clock = clock
        self._publish = publish
        self._asked_ms: int | None = None  # the age that somebody asked to have deleted
        self._asks = self._answered = 0
        self._round: _CleaningRound | None = None
        self._used_percent = 0
        self._is_held = False  # the file that would go next
        self._watched = WatchedClock(clock)
        if policy.is_on:
            newest_ms = last_timestamp_ms or max(
                (each.modified_ms for each in self._log_files()), default=0
            )
            self._watched.compare(newest_ms, policy.retention_ms)
        self._undeleted: list[Path] = []  # taken out of the log, and still to be deleted
        self._trouble = ""
        self._cleaning = QueueCleaning(filesystem, queues, drop_units)
        self._deleted_file_count = self._deleted_bytes = self._last_deleted_ms = 0

    # ---- what others ask

    def delete_expired(self, older_than_ms: int | None = None, timeout_s: float = 60.0) -> bool:
        """Delete the log files that are older than that, or than the retention, at once and at any hour.

        Returns whether it was done before the timeout; what is needed stays. Raises InvalidMessage
        without an age where the store keeps everything.
        """
        age_ms = self.policy.retention_ms if older_than_ms is None else older_than_ms
        if age_ms < 0 or (older_than_ms is None and not self.policy.is_on):
            raise InvalidMessage("older_than_ms", "must be given: the store keeps everything")
        with self.changed:
            self._asked_ms = age_ms
            self._asks += 1
            asks = self._asks
        self.wake()
        return self.wait_for(lambda: self._answered >= asks, timeout_s)

    def report(self) -> RetentionReport:
        """Return what retention has done, and what it will; looks at the disk."""
        policy, holds = self.policy, self._followers.offsets()
        files = self._log_files()
        return RetentionReport(
            retention_ms=policy.retention_ms, delete_hours=tuple(sorted(policy.delete_hours)),
            clean_percent=policy.clean_percent, force_percent=policy.force_percent,
            refuse_percent=policy.refuse_percent, used_percent=self._measure(),
            refuses_appends=bool(self.refusal), problem=self.refusal or self._trouble or self.problem,
            min_commit_offset=self._files.first_offset,
            deleted_file_count=self._deleted_file_count, deleted_bytes=self._deleted_bytes,
            last_deleted_ms=self._last_deleted_ms, holds=holds,
            files=tuple(
                RetainedFile(
                    start_offset=file.start_offset, size_bytes=file.end_offset - file.start_offset,
                    modified_ms=file.modified_ms, expires_ms=policy.deletion_ms(file),
                    held_by=tuple(sorted(k for k, need in holds.items() if need < file.end_offset)),
                    is_newest=number == len(files) - 1,
                )
                for number, file in enumerate(files)
            ),
        )  # fmt: skip

    # ---- steps

    def idle_s(self) -> float:
        """Return the time between rounds."""
        return LOOK_S

    def has_work(self) -> bool:
        """Return whether somebody asked for a deletion."""
        return self._asked_ms is not None

    def work(self) -> float | None:
        """Delete one file at most; return how long to rest, None at the end of a round."""
        with suppress(OSError, StoreError):
            self._followers.offsets()  # each look lets go of what is durable since the one before
        self._watched.look()
        if self._round is None:
            if not self.policy.is_on and self._asked_ms is None:
                return None
            with self.changed:
                asked_ms, self._asked_ms = self._asked_ms, None
                self._round = _CleaningRound(self._asks, asked_ms, self._steps(asked_ms))
        try:
            self._look_at_disk()
            rest_s = next(self._round.rests, None)
            if rest_s is not None:
                return rest_s
            self._trouble = ""
        except StoreError:  # there was no room for it: the round begins again
            self._round = self._round._replace(rests=self._steps(self._round.asked_ms))
            raise
        except OSError as error:
            if str(error) != self._trouble:
                _LOG.warning("retention: tried again in the next round: %s", error)
            self._trouble = str(error)
        self._answered, self._round = self._round.asks, None
        self.notify()
        return None

    def _steps(self, asked_ms: int | None) -> Iterator[float]:
        """Make a round's steps; ``asked_ms`` is the age that somebody asked to have deleted.

        The way through the queues may take long: the log's next files go first every ``LOOK_S``.
        """
        yield from self._clean_log(asked_ms)
        began_s = self._watched.looked_s
        for deleted in self._cleaning.way(self._files.first_offset):
            if deleted is None:
                yield STEP_S
            else:
                _LOG.info("deleted %s: the log has its messages no more", deleted)
                is_full = self._used_percent > self.policy.force_percent
                yield STEP_S if is_full else PAUSE_S
            if self._watched.looked_s - began_s >= LOOK_S:
                yield from self._clean_log(asked_ms)
                began_s = self._watched.looked_s

    def _clean_log(self, asked_ms: int | None) -> Iterator[float]:
        """Delete files of the log, a bounded number unasked."""
        deleted = held_looks = 0
        while self._undeleted or asked_ms is not None or deleted < DELETED_IN_A_ROUND_MAX:
            if self._undeleted or self._take_out_oldest(asked_ms):
                self._delete(self._undeleted[0])
                deleted += 1
            elif self._is_held and asked_ms is not None and held_looks < HELD_LOOKS_MAX:
                held_looks += 1  # it would go, and may be held for moments only
            else:
                return
            yield PAUSE_S

    def _take_out_oldest(self, age_ms: int | None) -> bool:
        """Take the oldest file out of the log, if it may go, and publish where the log begins then."""
        now_ms, urgency = self._clock.now_ms(), Urgency.EXPIRED
        if age_ms is None:
            age_ms = self.policy.retention_ms
            urgency = self.policy.urgency(now_ms, self._used_percent)
            if urgency is Urgency.EXPIRED and self._watched.is_doubtful:
                return False
        self._is_held = False
        entries = self._files.entries
        if len(entries) < 2:
            return False
        oldest = self._log_file(entries[0])
        if not may_go(oldest, now_ms=now_ms, retention_ms=age_ms, urgency=urgency):
            return False
        needed_offset = self._followers.needed_offset(forced=urgency is Urgency.ANY)
        if needed_offset is not None and oldest.end_offset > needed_offset:
            self._is_held = True
            return False
        self._undeleted.append(self._files.directory / file_name(oldest.start_offset))
        self._files.forget(oldest.start_offset)
        self._publish(self._files.first_offset)
        self._deleted_bytes += oldest.end_offset - oldest.start_offset
        return True

    def _delete(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            self._filesystem.unlink(path)
        self._filesystem.sync_directory(path.parent)
        self._undeleted.remove(path)
        self._deleted_file_count += 1
        self._last_deleted_ms = self._clock.now_ms()
        _LOG.info(
            "deleted %s: the log begins at commit offset %d, the disk is %d %% full",
            path, self._files.first_offset, self._used_percent,
        )  # fmt: skip

    def _log_files(self) -> list[DatedLogFile]:
        """Return the log's files, oldest first; of one that is gone, modified long ago."""
        return [self._log_file(entry) for entry in self._files.entries]

    def _log_file(self, entry: FileEntry) -> DatedLogFile:
        try:
            modified_ms = self._filesystem.status(entry.path).modified_ns // NS_PER_MS
        except FileNotFoundError:
            modified_ms = 0
        return DatedLogFile(entry.start_offset, entry.end_offset, modified_ms)

    def _measure(self) -> int:
        """Return how full the disk is: the fuller of the log's and the queues'."""
        directories = {self._files.directory, self._queues.directory}
        return max(self._filesystem.space(each).used_percent for each in directories)

    def _look_at_disk(self) -> None:
        """Find out how full the disk is, and whether appends are refused."""
        self._used_percent = percent = self._measure()
        refused = bool(self.refusal)
        refuses = self.policy.refuses(percent, refused=refused)
        if refuses:
            self.refusal = (
                f"the disk is {percent} % full; appends go on at {self.policy.force_percent} %"
            )
        else:
            self.refusal = ""
        if refuses and not refused:
            _LOG.error("appends are refused: %s", self.refusal)
        elif refused and not refuses:
            _LOG.warning("appends are accepted again: the disk is %d %% full", percent)

    def finish(self) -> None:
        """Delete what was taken out of the log, and of queues."""
        with suppress(OSError, StoreError):
            for path in list(self._undeleted):
                self._delete(path)
            for _ in self._cleaning.finish():
                pass

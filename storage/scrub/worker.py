"""The worker that reads all of a running store, slowly, again and again.

A pass goes over the log from its first record to where log and queues were durable when the pass began, and
compares every unit of the queues with its record on the way; then it looks at the tables. What it
finds is an event in the log, once, and counted in the status. Wrong units are rebuilt at once. A pass that
was interrupted goes on at the next start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from storage import findings as kinds
from storage.errors import StoreError
from storage.files.libc import read_only_when_idle
from storage.findings import DAMAGE, Finding
from storage.format.names import file_name
from storage.scrub.log_windows import LogWindows
from storage.view.incarnations import Incarnations
from storage.view.log.commit_log import ListedLog
from storage.view.log.walk import RANGE_ROWS_MAX, DamagedRange, RecordRun
from storage.view.queues.comparison import RangeCheck, ReadUnits, UnitRange
from storage.view.queues.queue_files import QueueFiles
from storage.view.queues.units import UnitBuilder
from storage.view.settings import load_settings
from storage.view.table_damage import damaged_tables
from storage.workers import Worker

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.files.filesystem import FileSystem
    from storage.journal.states import StateJournal
    from storage.view.layout import StorePaths
    from storage.view.queues.record_queues import QueueKey
    from storage.workers import Workers

_LOG: Final = logging.getLogger(__name__)

BEGIN_S: Final = 10.0  # after the start, which has better things to do
LOOK_S: Final = 600.0  # between looks at the clock when no pass is due
SAVE_BYTES: Final = 1 << 30  # read between two notes of how far it is
FINDINGS_MAX: Final = 1_000  # kept to say each but once
STATE: Final = "scrub"  # in the writer's journal


@dataclass(slots=True, kw_only=True)
class ScrubProgress:
    """How far the scrub is, for the next start to go on from there.

    ``position`` is a commit offset in ``[0, end]``; ``end`` is 0 between passes; all are 0 of a store that was
    never read.
    """

    position: int = 0
    end: int = 0
    began_ms: int = 0
    completed_ms: int = 0

    @property
    def is_under_way(self) -> bool:
        """Whether a pass was begun and has not come to its end."""
        return self.end > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubStatus:
    """How far the scrub is. ``position`` and ``end`` are commit offsets, 0 between passes.

    ``completed_ms`` is when the last pass ended, 0 if none has; ``finding_count`` counts what was found
    since the start, ``repaired_count`` the units that were made right; ``last_finding`` is the newest in words.
    """

    position: int
    end: int
    completed_ms: int
    finding_count: int
    repaired_count: int
    last_finding: str


class ScrubWorker(Worker):
    """Makes passes over a store, the next one ``interval_ms`` after the last began; 0: none.

    A store that was never read is due ``interval_ms`` after its oldest record was stored. ``min_offset`` says
    where the log begins, ``durable_offset`` up to where log and queues are durable, ``rebuild`` rebuilds units
    of a queue and returns how many were wrong.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        paths: StorePaths,
        states: StateJournal,
        clock: Clock,
        *,
        interval_ms: int,
        bytes_per_s: int,
        min_offset: Callable[[], int],
        durable_offset: Callable[[], int],
        rebuild: Callable[[str, int, int, int], int] | None = None,
        workers: Workers | None = None,
    ) -> None:
        super().__init__("scrub", workers=workers)
        self._filesystem = filesystem
        self._paths = paths
        self._states = states
        self._clock = clock
        self._interval_ms = interval_ms
        self._bytes_per_s = bytes_per_s
        self._min_offset = min_offset
        self._durable_offset = durable_offset
        self._rebuild = rebuild
        self._log = LogWindows(filesystem, paths.commit_log)
        self._builder = UnitBuilder(RANGE_ROWS_MAX)
        self._progress = ScrubProgress(**(states.document(STATE) or {}))
        self._log.rewind(self._progress.position)
        self._saved_bytes = 0
        self._known: set[tuple[str, str, int | None, int | None]] = set()
        self._finding_count = self._repaired_count = 0
        self._last_finding = ""

    @property
    def status(self) -> ScrubStatus:
        """How far it is, from any thread."""
        progress = self._progress
        return ScrubStatus(
            position=progress.position, end=progress.end, completed_ms=progress.completed_ms,
            finding_count=self._finding_count, repaired_count=self._repaired_count,
            last_finding=self._last_finding,
        )  # fmt: skip

    def run(self) -> None:
        """Make steps until the end, in a thread that the device serves after all others."""
        read_only_when_idle()
        super().run()

    def idle_s(self) -> float:
        """Return the time before the first step."""
        return BEGIN_S

    def work(self) -> float:
        """Read one window, or look whether a pass is due; return how long to rest."""
        if not self._progress.is_under_way and not self._begin():
            return LOOK_S
        began, before = time.monotonic(), self._log.read_bytes
        self._read()
        if self._log.position >= self._progress.end:
            self._complete()
        elif self._log.read_bytes - self._saved_bytes >= SAVE_BYTES:
            self._save()
        wanted_s = (self._log.read_bytes - before) / self._bytes_per_s
        return max(wanted_s - (time.monotonic() - began), 0.0)

    def finish(self) -> None:
        """Note how far it is."""
        if self._progress.is_under_way:
            self._save()
        self._log.release()

    def _first_time_ms(self) -> int:
        """Return when the oldest record was stored, at most 0 where there is none."""
        log = ListedLog(self._filesystem, self._paths.commit_log)
        return log.record_time_ms(self._min_offset())

    def _topics(self) -> Incarnations:
        return load_settings(self._filesystem, self._paths).incarnations

    def _begin(self) -> bool:
        """Begin a pass if one is due."""
        progress, now_ms, end = self._progress, self._clock.now_ms(), self._durable_offset()
        last_ms = progress.began_ms if progress.completed_ms else self._first_time_ms()
        if not self._interval_ms or last_ms <= 0 or now_ms < last_ms + self._interval_ms:
            return False
        progress.began_ms, progress.position, progress.end = now_ms, self._min_offset(), end
        self._log.rewind(progress.position)
        return progress.is_under_way

    def _read(self) -> None:
        if self._log.position < self._min_offset():  # what it was reading was deleted
            self._log.rewind(self._min_offset())
        for met in self._log.step(self._progress.end):
            min_offset = self._min_offset()
            if isinstance(met, DamagedRange):
                if met.end_offset > min_offset:
                    met = replace(met, begin_offset=max(met.begin_offset, min_offset))
                    self._found(_damage(met, self._paths, self._filesystem))
            elif met.begin_offset >= min_offset:
                self._compare(met)
        self._progress.position = min(self._log.position, self._progress.end)

    def _compare(self, records: RecordRun) -> None:
        """Compare units with their records; a queue file that cannot be read is a finding."""
        try:
            if self._wrong_units(records):
                # Again: a topic that was deleted meanwhile is among the deleted ones by now.
                for key, wrong in self._wrong_units(records):
                    if records.begin_offset >= self._min_offset():  # else deleted meanwhile
                        self._found_units(key, wrong)
        except FileNotFoundError:
            pass  # retention or a deletion took it; a file that is missing has no units
        except OSError as error:
            self._found_unreadable(error)

    def _wrong_units(self, records: RecordRun) -> list[tuple[QueueKey, UnitRange]]:
        check = RangeCheck()
        check.take(records, self._builder, self._held, self._topics(), records.end_offset)
        return [(key, wrong) for key, found in check.wrong.items() for wrong in found]

    def _held(self, key: QueueKey) -> ReadUnits:
        """Return the units of a queue, whose files are listed anew: dispatch and retention change them."""
        directory = self._paths.consume_queue / key[0] / str(key[1])
        return QueueFiles.whole(self._filesystem, directory).units

    def _found_unreadable(self, error: OSError) -> None:
        self._found(
            Finding(
                severity=DAMAGE, kind=kinds.QUEUE_UNIT, file="consumequeue",
                message=f"cannot be read: {error}",
            )
        )  # fmt: skip

    def _found_units(self, key: QueueKey, wrong: UnitRange) -> None:
        outcome = ""
        if self._rebuild is not None:
            try:
                rebuilt = self._rebuild(*key, wrong.begin, wrong.end)
            except (OSError, StoreError) as error:
                outcome = f"; they cannot be rebuilt: {error}"
            else:
                if not rebuilt:
                    return  # they are right: the record is not where it belongs
                self._repaired_count += rebuilt
                outcome = f"; {rebuilt} rebuilt"
        file = f"consumequeue/{key[0]}/{key[1]}"
        message = f"units from queue offset {wrong.begin} on were not what the log says{outcome}"
        self._found(
            Finding(
                severity=DAMAGE, kind=kinds.QUEUE_UNIT, file=file, message=message,
                begin=wrong.begin, end=wrong.end,
            )
        )  # fmt: skip

    def _found(self, finding: Finding) -> None:
        """Say what was found, once."""
        key = finding.kind.name, finding.file, finding.begin, finding.end
        if key in self._known:
            return
        if len(self._known) < FINDINGS_MAX:
            self._known.add(key)
        self._finding_count += 1
        self._last_finding = f"{finding.kind.name}: {finding.file}: {finding.message}"
        _LOG.warning("scrub: %s; cost: %s", self._last_finding, finding.kind.cost)

    def _complete(self) -> None:
        for finding in damaged_tables(self._filesystem, self._paths):
            if finding.is_wrong:
                self._found(finding)
        self._log.release()
        self._progress.completed_ms = self._clock.now_ms()
        self._progress.position = self._progress.end = 0
        self._save()

    def _save(self) -> None:
        self._saved_bytes = self._log.read_bytes
        try:
            self._states.put_document(STATE, asdict(self._progress))
        except (OSError, StoreError) as error:
            _LOG.warning("scrub: how far it is cannot be noted: %s", error)


def _damage(damage: DamagedRange, paths: StorePaths, filesystem: FileSystem) -> Finding:
    begin, end = damage.begin_offset, damage.end_offset
    names = [each.name for each in filesystem.list_directory(paths.commit_log)]
    holding = max((name for name in names if name <= file_name(begin)), default="")
    return Finding(
        severity=DAMAGE, kind=kinds.LOG_RECORD, file=f"commitlog/{holding}",
        message=f"{end - begin} bytes at commit offset {begin}: {damage.reason}",
        begin=begin, end=end,
    )  # fmt: skip

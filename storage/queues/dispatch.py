"""The follower of the commit log that builds the consume queues, and its thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from storage.errors import StoreFull
from storage.format.consume_entry import UNIT_SIZE
from storage.queues.consume_queue import ConsumeQueue, placeholder_units
from storage.queues.queue_table import QueueTable
from storage.view.log_follower import ROWS_MAX, LogFiles, LogFollower
from storage.view.units import Scanned, UnitBuilder

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.files.filesystem import ByteArray
    from storage.view.log_walk import Records

COALESCE_MIN_S: Final = 0.001
COALESCE_MAX_S: Final = 0.005
COALESCE_GROWTH: Final = 1.25  # a round: nine rounds without a pause reach the longest
FULL_RETRY_S: Final = 0.2


class Dispatcher(LogFollower):
    """Builds the consume queues; the only one who writes units while the store is open."""

    def __init__(
        self, files: LogFiles, queues: QueueTable, position: int, *, unit_count: int
    ) -> None:
        super().__init__(files, position)
        self.queues = queues
        self.reached = (position, unit_count)
        self._unit_count = unit_count
        self._builder = UnitBuilder(ROWS_MAX)
        self._scanned: Scanned | None = None
        self._met: dict[tuple[bytes, int], ConsumeQueue] = {}
        self._damage: tuple[int, int] = (0, 0)

    def scan(self, data: ByteArray, begin: int) -> tuple[int, int, int]:
        """Fill the row table and build the units, in one compiled call."""
        scanned = self._scanned = self._builder.scan(data, self._rows, begin)
        return scanned[:3]

    def take(self, records: Records) -> None:
        """Append each queue's units in one write. Doing it again is harmless."""
        scanned = self._scanned
        if scanned is None or not scanned.is_plain:
            for topic, queue_id, units, queue_offsets in self._builder.build(
                records.data, records.rows, len(records.rows), records.data_offset
            ):
                queue = self.queues.get(topic, queue_id)
                self._append(queue, int(queue_offsets[0]), units.data)
            return
        data, met = records.data, self._met
        for position, length, queue_id, begin, end, first in scanned.runs:
            if begin == end:
                continue
            name = data[position : position + length].tobytes()
            units_of_run = scanned.units[begin * UNIT_SIZE : end * UNIT_SIZE]
            known = met.get((name, queue_id))
            if known is not None and known.append_next(first, units_of_run):
                self._unit_count += end - begin
                continue
            queue = met[name, queue_id] = self.queues.get(name.decode("ascii"), queue_id)
            self._append(queue, first, units_of_run)

    def _append(self, queue: ConsumeQueue, first: int, units: memoryview) -> None:
        """Append what the queue does not have yet of units from queue offset ``first`` on."""
        count_before = queue.unit_count
        try:
            if first > queue.next_offset:
                if queue.exists:
                    queue.append(placeholder_units(self._damage, first - queue.next_offset))
                else:
                    queue.next_offset = first
            built = (queue.next_offset - first) * UNIT_SIZE
            if built < len(units):
                queue.append(units[built:])
        finally:  # what went in front of units that did not fit stays
            self._unit_count += queue.unit_count - count_before

    def step(self, limit: int) -> bool:
        """Go on by one chunk; ``reached`` is the position with the unit count that belongs to it."""
        moved = super().step(limit)
        if moved:
            self.reached = (self.position, self._unit_count)
        return moved

    def forget_units(self, count: int) -> None:
        """Hear that queues with so many units were deleted, while nothing is dispatched."""
        self._unit_count -= count
        self._met.clear()
        self.reached = (self.position, self._unit_count)

    def skip_damage(self, begin: int, end: int) -> None:
        """Remember where the records of a coming gap in queue offsets were."""
        self._damage = (begin, end)


class DispatchThread:
    """Runs a dispatcher behind the confirmed offset and tells who is waiting.

    Wake-ups are joined: after a round the thread looks away for a millisecond, and for up to five
    while every look finds more, so that a stream of appends costs a few rounds and not one GIL
    hand-over each. An append after a pause is dispatched at once.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        limit: Callable[[], int],
        publish: Callable[[int], None],
        fail: Callable[[BaseException], None],
        clock: Clock,
    ) -> None:
        self.dispatcher = dispatcher
        self.problem = ""
        self._limit = limit
        self._publish = publish
        self._fail = fail
        self._clock = clock
        self._wake = threading.Event()
        self._asleep = False
        self._stopping = False
        self._coalesce_s = COALESCE_MIN_S
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="penstock-dispatch", daemon=True)

    @property
    def position(self) -> int:
        """End of the records whose units are in the page cache, and counted."""
        return self.dispatcher.reached[0]

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Say that the limit was raised; cheap when the thread is busy."""
        if self._asleep:
            self._wake.set()

    def wait(self, commit_offset: int, timeout_s: float) -> bool:
        """Block until everything before ``commit_offset`` is dispatched; False when time is up."""
        self._wake.set()
        with self._progress:
            return (
                self._progress.wait_for(
                    lambda: self.position >= commit_offset or not self._thread.is_alive(), timeout_s
                )
                and self.position >= commit_offset
            )

    def stop(self) -> None:
        """Finish what is confirmed and end the thread."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while self._round():
                pass
        except BaseException as error:  # noqa: BLE001  whatever it is, the store must say so
            self.problem = f"dispatch failed: {error}"
            self._fail(error)
        finally:
            with self._progress:
                self._progress.notify_all()

    def _round(self) -> bool:
        began = self._clock.monotonic()
        moved = False
        try:
            while self.dispatcher.step(self._limit()):
                moved = True
                self._publish(self.position)
            self.problem = ""
        except StoreFull as error:
            # The units that fit are in place and are met as built in the next try.
            self.problem = str(error)
            if self._stopping:
                return False
            self._wake.wait(FULL_RETRY_S)
            self._wake.clear()
            return True
        if moved:
            with self._progress:
                self._progress.notify_all()
        if self._stopping:
            return self.position < self._limit()
        if moved:
            spare_s = self._coalesce_s - (self._clock.monotonic() - began)
            self._coalesce_s = min(self._coalesce_s * COALESCE_GROWTH, COALESCE_MAX_S)
            if spare_s > 0:
                time.sleep(spare_s)
            return True
        self._coalesce_s = max(self._coalesce_s / 2, COALESCE_MIN_S)
        self._asleep = True
        if self.position >= self._limit() and not self._stopping:
            self._wake.wait()
        self._asleep = False
        self._wake.clear()
        return True

"""The follower of the commit log that builds the consume queues, and its worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from storage.errors import StoreError
from storage.format.consume_entry import UNIT_SIZE
from storage.queues.consume_queue import ConsumeQueue
from storage.queues.queue_table import QueueTable
from storage.view.log.follower import ROWS_MAX, LogFollower
from storage.view.queues.units import Scanned, UnitBuilder, placeholder_units
from storage.workers import Worker

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.files.filesystem import ByteArray
    from storage.view.log.walk import LogFiles, RecordRun
    from storage.workers import Workers

COALESCE_MIN_S: Final = 0.001
COALESCE_MAX_S: Final = 0.005
COALESCE_GROWTH: Final = 1.25  # a round: nine rounds without a pause reach the longest
FULL_RETRY_S: Final = 0.2


class _UnmetQueue(Exception):
    """A unit is for a queue that was not met before."""


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
        self._makes_queues = True

    def scan(self, data: ByteArray, begin: int) -> tuple[int, int, int]:
        """Fill the row table and build the units, in one compiled call."""
        scanned = self._scanned = self._builder.scan(data, self._rows, begin)
        return scanned[:3]

    def take(self, records: RecordRun) -> None:
        """Append each queue's units in one write. Doing it again is harmless."""
        scanned = self._scanned
        if scanned is None or not scanned.is_plain:
            if not self._makes_queues:
                raise _UnmetQueue
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
            if known is None and not self._makes_queues:
                raise _UnmetQueue
            queue = met[name, queue_id] = self.queues.get(name.decode("ascii"), queue_id)
            self._append(queue, first, units_of_run)

    def _append(self, queue: ConsumeQueue, first: int, units: memoryview) -> None:
        """Append what the queue does not have yet of units from queue offset ``first`` on."""
        count_before = queue.unit_count
        try:
            if first > queue.next_offset:
                if queue.exists:
                    missing = first - queue.next_offset
                    queue.append(placeholder_units(self._damage, missing).tobytes())
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

    def step_in_met_queues(self, limit: int) -> bool:
        """Go on by one chunk if all its queues were met before, so that no file of a new one is made.

        False where ``step`` has to do it; what was appended by then is met as built.
        """
        self._makes_queues = False
        try:
            return self.step(limit)
        except _UnmetQueue:
            return False
        finally:
            self._makes_queues = True

    def forget_units(self, count: int) -> None:
        """Take the units of deleted queues out of the count, while nothing is dispatched."""
        self._unit_count -= count
        self._met.clear()
        self.reached = (self.position, self._unit_count)

    def skip_damage(self, begin: int, end: int) -> None:
        """Remember where the records of a coming gap in queue offsets were."""
        self._damage = (begin, end)


class DispatchWorker(Worker):
    """Runs a dispatcher up to the confirmed offset, and notifies those who wait for it.

    Wake-ups are joined: after a round the worker rests for a millisecond, and for up to five while
    every look finds more, so that a stream of appends costs a few rounds and not one GIL hand-over
    each. An append after a pause is dispatched at once. Who appends little may dispatch it himself.
    """

    full_retry_s = FULL_RETRY_S

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        limit: Callable[[], int],
        publish: Callable[[int], None],
        clock: Clock,
        workers: Workers | None = None,
    ) -> None:
        super().__init__("dispatch", workers=workers)
        self.dispatcher = dispatcher
        self._limit = limit
        self._publish = publish
        self._clock = clock
        self._coalesce_s = COALESCE_MIN_S
        self._published_offset = dispatcher.reached[0]

    @property
    def position(self) -> int:
        """End of the records whose units are in the page cache, and counted."""
        return self.dispatcher.reached[0]

    def wait(self, commit_offset: int, timeout_s: float | None) -> bool:
        """Block until everything before ``commit_offset`` is dispatched, and published as such.

        A reader that looks after that sees it. False when time is up.
        """
        return self.wait_for(lambda: self._published_offset >= commit_offset, timeout_s)

    def has_work(self) -> bool:
        """Return whether more is confirmed than dispatched."""
        return self.position < self._limit()

    def work(self) -> float | None:
        """Dispatch all that is confirmed; return how long to rest, None if there was nothing.

        On a full disk the units that fit are in place, and are met as built in the next try.
        """
        began = self._clock.monotonic()
        moved = False
        while self._dispatch_to(self._limit(), self.dispatcher.step):
            moved = True
        if not moved:
            self._coalesce_s = max(self._coalesce_s / 2, COALESCE_MIN_S)
            return None
        spare_s = self._coalesce_s - (self._clock.monotonic() - began)
        self._coalesce_s = min(self._coalesce_s * COALESCE_GROWTH, COALESCE_MAX_S)
        return max(spare_s, 0.0)

    def dispatch_few(self, bytes_max: int) -> bool:
        """Dispatch what is confirmed in this thread: quicker than waking the worker, where it is little.

        False if something is left to the worker: it is more than ``bytes_max``, queues are new, or the
        worker is awake.
        """
        limit = self._limit()
        if limit - self.position > bytes_max:
            return False
        done = self.try_guarded(
            lambda: self._dispatch_to(limit, self.dispatcher.step_in_met_queues)
        )
        return done and self.position >= limit

    def _dispatch_to(self, limit: int, step: Callable[[int], bool]) -> bool:
        """Dispatch up to ``limit``, publish it and notify; return whether there was anything."""
        moved = False
        while step(limit):
            moved = True
            position = self.position
            self._publish(position)
            self._published_offset = position
        if moved:
            self.notify()
        return moved

    def drop_units(self, release: Callable[[], int]) -> int:
        """Release files of queues while nothing is dispatched; return how many units they held.

        ``release()`` returns that number, which is taken out of the count.
        """
        return self.guarded(lambda: self._drop_units(release))

    def _drop_units(self, release: Callable[[], int]) -> int:
        count = release()
        self.dispatcher.forget_units(count)
        return count

    def between(self, change: Callable[[], None]) -> int:
        """Change files of queues while nothing is dispatched; return up to which commit offset all was.

        What fails of the change is raised here, and is no failure of dispatch.
        """
        failures: list[Exception] = []

        def changed() -> int:
            try:
                change()
            except (OSError, StoreError) as error:
                failures.append(error)
            return self.position

        position = self.guarded(changed)
        if failures:
            raise failures[0]
        return position

    def finish(self) -> None:
        """Dispatch what is confirmed."""
        self.work()

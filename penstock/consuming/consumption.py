"""State and decisions of an iterator over queues; no I/O.

A consumer asks `Consumption.due` what to pull, hands results to `on_result` and errors to `on_error`, and
takes records with `next_record`. A queue has one pull under way while the records of the one before are
handed out, so it buffers at most two responses.

A record is finished when the next one is asked for. The committed offset of a queue is therefore never beyond
the record that the caller still has, unless the caller asks for that.

An interrupt (Ctrl-C) raises wherever a call returns, in the midst of a change too. Every change therefore
sets ``is_torn`` before it and clears it after. A torn state is dropped; `restarted` goes on from the
positions, which an interrupt never finds half changed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from penstock.calls import offsets, records, topics
from penstock.calls.call import Call, Plan
from penstock.consuming.damaged import Item, damage_error
from penstock.consuming.options import ConsumeOptions
from penstock.errors import (
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    OffsetOutOfRange,
    PenstockError,
    ResourceExhausted,
    Unavailable,
)
from penstock.record import Record
from penstock.retry import RetryPolicy
from penstock.tables import RecordRange, ranges_between
from penstock.values import Damage, PullResult, PullStatus

_log = logging.getLogger(__name__)

_AT_THE_END: Final = frozenset(
    {
        PullStatus.OFFSET_OVERFLOW_ONE,
        PullStatus.NO_MESSAGE_IN_QUEUE,
        PullStatus.NO_MATCHED_LOGIC_QUEUE,  # the reader has not met the queue's first record yet
    }
)
_PARALLEL_PULLS_MAX: Final = 32
_STALLED_DELAY_S: Final = 0.05
_ANSWERS_BYTES: Final = 16 << 20  # of one answer of each queue
_ANSWER_BYTES_MIN: Final = 1 << 20
_ANSWER_BYTES_MAX: Final = 4 << 20


class QueueProgress:
    """The fetched, the handed out and the committed offset of one queue."""

    __slots__ = (
        "attempts",
        "committed",
        "deleted",
        "ended",
        "failing_since",
        "fetch_offset",
        "finished",
        "is_ahead",
        "launched_at",
        "not_before",
        "pull_offset",
        "pulling",
        "queue_id",
        "waiting_batches",
    )

    def __init__(self, queue_id: int, *, queue_offset: int) -> None:
        self.queue_id = queue_id
        self.fetch_offset = queue_offset
        self.finished = queue_offset
        self.committed = queue_offset
        self.deleted = 0  # messages that were gone when they were asked for
        self.pulling = False
        self.pull_offset = queue_offset  # of the pull under way
        self.is_ahead = False  # it follows an answer that is not taken yet
        self.waiting_batches = 0
        self.ended = False
        self.not_before = 0.0
        self.launched_at = 0.0
        self.attempts = 0
        self.failing_since: float | None = None

    @property
    def may_pull(self) -> bool:
        """Whether a pull may start: beside it one response at most waits to be handed out."""
        return not self.pulling and not self.ended and self.waiting_batches < 2


class Consumption:
    """Several queues of one topic as one sequence of records; order is kept within a queue."""

    def __init__(
        self, options: ConsumeOptions, queues: Sequence[QueueProgress], policy: RetryPolicy
    ) -> None:
        self.options = options
        self.queues = {queue.queue_id: queue for queue in queues}
        self._policy = policy
        self._turn = deque(queues)
        self._batches: deque[tuple[QueueProgress, Iterator[Item], int]] = deque()
        self._current: tuple[QueueProgress, Iterator[Item], int] | None = None
        self._last: Record | RecordRange | None = None
        self._failed: PenstockError | None = None
        self.is_torn = False
        many = len(queues) > _PARALLEL_PULLS_MAX
        self._max_bytes = options.max_bytes or max(
            _ANSWER_BYTES_MIN, min(_ANSWER_BYTES_MAX, _ANSWERS_BYTES // max(1, len(queues)))
        )
        self._wait_ms = (min(options.wait_ms, 250) if many else options.wait_ms) * options.follow

    @property
    def is_finished(self) -> bool:
        """Whether no record will come any more."""
        return (
            self._current is None
            and not self._batches
            and all(queue.ended for queue in self.queues.values())
        )

    def due(self, now: float) -> list[tuple[QueueProgress, Call[PullResult]]]:
        """Return the pulls to start now; each is under way from here on."""
        running = sum(queue.pulling for queue in self.queues.values())
        started = []
        for _ in range(len(self._turn)):
            if running >= _PARALLEL_PULLS_MAX:
                break
            queue = self._turn[0]
            self._turn.rotate(-1)
            if not queue.may_pull or now < queue.not_before:
                continue
            queue.pulling = True
            queue.launched_at = now
            queue.pull_offset = queue.fetch_offset
            running += 1
            started.append((queue, self._pull(queue)))
        return started

    def _pull(self, queue: QueueProgress) -> Call[PullResult]:
        return records.pull(
            self.options.topic,
            queue.queue_id,
            queue.pull_offset,
            max_messages=_ALL,
            max_bytes=self._max_bytes,
            tag=self.options.tag,
            wait_ms=self._wait_ms,
        )

    def following_pull(self, queue: QueueProgress, response: Any) -> Call[PullResult] | None:
        """Return the pull after an answer that has just come, if there is more and room for it.

        It is called in whatever thread the answer comes; of a queue one answer that is not taken is followed.
        """
        if queue.is_ahead or queue.waiting_batches:
            return None
        result = records.pull_result(response)
        after = max(result.next_offset, queue.pull_offset + 1)
        if not result.records or after >= result.max_offset:
            return None
        queue.pull_offset, queue.is_ahead = after, True
        return self._pull(queue)

    def next_due_s(self, now: float) -> float | None:
        """Return the seconds until another pull may start by itself, None if none waits for time."""
        if sum(queue.pulling for queue in self.queues.values()) >= _PARALLEL_PULLS_MAX:
            return None
        waits = [queue.not_before - now for queue in self.queues.values() if queue.may_pull]
        return max(0.0, min(waits)) if waits else None

    def on_result(
        self, queue: QueueProgress, result: PullResult, now: float, *, is_followed: bool = False
    ) -> None:
        """Take the answer to a pull; the pull of what follows may be under way."""
        queue.pulling = is_followed
        if is_followed:
            queue.is_ahead = False
            queue.launched_at = now
        queue.attempts = 0
        queue.failing_since = None
        before, after = queue.fetch_offset, result.next_offset
        if result.records or result.damaged:
            after = max(after, before + 1)
            items = self._items(queue, result, before, after)
            self._batches.append((queue, items, after))
            queue.waiting_batches += 1
        elif result.status is PullStatus.OFFSET_TOO_SMALL and result.min_offset > before:
            after = result.min_offset
            self._pass_over_deleted(queue, after - before)
        elif result.status in _AT_THE_END:
            after = before
            self._at_the_end(queue, now)
        elif result.status is PullStatus.OFFSET_OVERFLOW_BADLY:
            after = result.next_offset if result.next_offset < before else result.max_offset
            error = OffsetOutOfRange(
                topic=self.options.topic,
                queue_id=queue.queue_id,
                queue_offset=before,
                next_offset=after,
            )
            self._batches.append((queue, iter((error,)), after))
            queue.waiting_batches += 1
        elif after <= before:
            queue.not_before = now + _STALLED_DELAY_S
            if not self.options.follow:
                queue.ended = True
        queue.fetch_offset = after
        if not self.options.follow and after >= result.max_offset:
            queue.ended = True
        handing_out = self._current is not None and self._current[0] is queue
        if not queue.waiting_batches and not handing_out:
            queue.finished = max(queue.finished, after)

    def _pass_over_deleted(self, queue: QueueProgress, count: int) -> None:
        queue.deleted += count
        _log.warning(
            "%s/%d: %d messages from offset %d on were deleted before they were read",
            self.options.topic, queue.queue_id, count, queue.fetch_offset,
        )  # fmt: skip

    def _at_the_end(self, queue: QueueProgress, now: float) -> None:
        if not self.options.follow:
            queue.ended = True
        elif now - queue.launched_at < self._wait_ms / 2000:
            queue.not_before = now + _STALLED_DELAY_S

    def on_error(self, queue: QueueProgress, error: PenstockError, now: float) -> None:
        """Take the failure of a pull: go on later if that can help, else raise it in its turn.

        A consumer that follows outlasts a reader that is away, and a deadline that passed while its own
        machine slept; one that does not follow raises the error.
        """
        queue.pulling = False
        if queue.failing_since is None:
            queue.failing_since = now
        lasting = now - queue.failing_since >= self.options.timeout_s
        passing = (
            isinstance(error, Unavailable | Cancelled)  # a reader that stops gives calls up
            or (isinstance(error, ResourceExhausted) and error.retry_delay_ms > 0)
            or (isinstance(error, DeadlineExceeded) and self.options.follow)
        )
        if passing and (self.options.follow or not lasting):
            if queue.attempts == 0:
                _log.warning("pull of %s/%d: %s", self.options.topic, queue.queue_id, error)
            delay_ms = error.retry_delay_ms or self._policy.backoff_ms(queue.attempts)
            queue.attempts += 1
            queue.not_before = now + delay_ms / 1000
            return
        self._failed = error

    def _items(
        self, queue: QueueProgress, result: PullResult, before: int, after: int
    ) -> Iterator[Item]:
        found: list[Record | RecordRange]
        if self.options.by_range:
            damaged = sorted(each.queue_offset for each in result.damaged if each.queue_offset >= 0)
            found = [*ranges_between(result.records, damaged, before, after)]
        elif not result.damaged:
            return iter(result.records)
        else:
            found = [*result.records]
        items: list[Record | RecordRange | Damage] = [*found, *result.damaged]
        items.sort(key=lambda item: item.queue_offset)
        return self._judged(queue, items, after)

    def _judged(
        self, queue: QueueProgress, items: list[Record | RecordRange | Damage], after: int
    ) -> Iterator[Item]:
        for item in items:
            if isinstance(item, Record | RecordRange):
                yield item
            elif self.options.on_damaged is not None:
                self.options.on_damaged(self.options.topic, queue.queue_id, item)
            else:
                after_it = item.queue_offset + 1 if item.queue_offset >= 0 else after
                yield damage_error(
                    item, topic=self.options.topic, queue_id=queue.queue_id, next_offset=after_it
                )

    def next_record(self) -> Record | RecordRange | None:
        """Return the next record, None if more must be pulled first; the one before it is finished now.

        With ``by_range`` the records of an answer are one.

        Raises DataLoss for a damaged record and OffsetOutOfRange, both once: the next call goes on
        after it. Any other failure of a pull is raised once too; the next call pulls again.
        """
        self.is_torn = True
        while True:
            if self._current is None:
                if not self._batches:
                    if self._failed is not None:
                        failed, self._failed = self._failed, None
                        self.is_torn = False
                        raise failed
                    self.is_torn = False
                    return None
                self._current = self._batches.popleft()
                self._current[0].waiting_batches -= 1
            queue, items, after = self._current
            for item in items:
                if not isinstance(item, PenstockError):
                    self._last = item
                    self.is_torn = False
                    return item
                finished = self.positions(with_current=True)[queue.queue_id]
                if isinstance(item, DataLoss) and item.damage is not None:
                    finished = max(finished, item.damage.queue_offset)
                elif isinstance(item, OffsetOutOfRange):
                    finished = queue.committed = item.next_offset
                queue.finished = finished
                self._last = None
                self.is_torn = False
                raise item
            reached = after if queue.waiting_batches else max(after, queue.fetch_offset)
            finished = max(queue.finished, reached)
            queue.finished = finished
            self._current = self._last = None

    def restarted(self) -> Consumption:
        """Return one that goes on after the record handed out last, without pulls."""
        positions = self.positions(with_current=True)
        queues = []
        for queue in self.queues.values():
            queues.append(QueueProgress(queue.queue_id, queue_offset=positions[queue.queue_id]))
            queues[-1].committed, queues[-1].deleted = queue.committed, queue.deleted
        return Consumption(self.options, queues, self._policy)

    @property
    def deleted_counts(self) -> dict[int, int]:
        """By queue id how many messages were deleted before they were read; queues without any are left out."""
        return {each.queue_id: each.deleted for each in self.queues.values() if each.deleted}

    def positions(self, *, with_current: bool) -> dict[int, int]:
        """Return the next offset to consume by queue id.

        With ``with_current`` the record handed out last is consumed.
        """
        found = {queue.queue_id: queue.finished for queue in self.queues.values()}
        if self._last is not None and self._current is not None:
            last = self._last
            after = last.next_offset if isinstance(last, RecordRange) else last.queue_offset + 1
            found[self._current[0].queue_id] = after if with_current else last.queue_offset
        return found

    def commits(self, *, with_current: bool) -> list[tuple[QueueProgress, int, Call[None]]]:
        """Return the commits that bring the group's offsets up to date."""
        if not self.options.group:
            return []
        positions = self.positions(with_current=with_current)
        if with_current and self._last is not None and self._current is not None:
            queue_id = self._current[0].queue_id  # finished now, or a later commit would go back
            self.queues[queue_id].finished = positions[queue_id]
            self._last = None
        return [
            (
                queue,
                positions[queue.queue_id],
                offsets.commit_offset(
                    self.options.group,
                    self.options.topic,
                    queue.queue_id,
                    positions[queue.queue_id],
                ),
            )
            for queue in self.queues.values()
            if positions[queue.queue_id] > queue.committed
        ]


_ALL: Final = 1 << 14  # messages a pull: its bytes bound it, not their number


def open_consumption(options: ConsumeOptions, policy: RetryPolicy) -> Plan[Consumption]:
    """Find the queues and the start of each; the group's committed offset wins."""
    queue_ids = options.queues
    if queue_ids is None:
        queue_ids = yield topics.queues_to_read(options.topic)
    committed: dict[int, int] = {}
    if options.group:
        found = yield offsets.offsets(options.group, options.topic)
        committed = {each.queue_id: each.queue_offset for each in found if each.queue_offset >= 0}
    queues = []
    for queue_id in queue_ids:
        start: int | None = committed.get(queue_id)
        if start is None and isinstance(options.start, int):
            start = options.start
        elif start is None:
            answer = yield offsets.offset(options.topic, queue_id, options.start)
            start = answer.queue_offset
        queues.append(QueueProgress(queue_id, queue_offset=start))
    return Consumption(options, queues, policy)

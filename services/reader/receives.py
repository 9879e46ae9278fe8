"""Receives that wait for a first message, in line: by group and topic, those who came first are served first.

What wakes a line: a message stored in its topic or in a retry topic, the end of a lease or of a wait after a
nack (a timer), and whoever calls ``wake`` after a change that may make something due.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from services.arrivals import Arrivals
from services.reader.calls_in_turn import CallsInTurn
from services.reader.leases import ReaderLeases
from storage.errors import StoreBusy, StoreError
from storage.format.names import RETRY_PREFIX
from storage.leases.values import DeadMessages, ReceivedBatch, ReceiveQuestion, Refusal

WAITERS_MAX: Final = 1_024  # of a group in a topic
RETRY_DELAY_MS: Final = 1_000
_LOOK_SECONDS: Final = 60.0
_TROUBLE_SECONDS: Final = 0.1  # of rest where it cannot be read what came
_TIMER_SECONDS_MAX: Final = 3_600.0
_Receive = Callable[[str, str, ReceiveQuestion], ReceivedBatch]
_AskedFor = tuple[object, ...]


class LineKey(NamedTuple):
    """Who waits together."""

    group: str
    topic: str


class _Waiter(NamedTuple):
    question: ReceiveQuestion
    answered: asyncio.Future[ReceivedBatch | None]


class _WaitingLine:
    """Those who wait for messages of one topic on behalf of one group."""

    def __init__(self, wakes: Iterator[int]) -> None:
        self.waiters: list[_Waiter] = []
        self.woken = asyncio.Event()
        self.woken_at = 0  # number of the last wake-up
        self.nothing_for: frozenset[_AskedFor] = frozenset()  # since the last wake-up
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self._wakes = wakes

    @property
    def queue_ids(self) -> frozenset[int]:
        """The queues that are asked for; empty: all."""
        asked: set[int] = set()
        for waiter in self.waiters:
            if not waiter.question.queue_ids:
                return frozenset()
            asked.update(waiter.question.queue_ids)
        return frozenset(asked)

    def wake(self) -> None:
        """Have everybody's question asked again."""
        self.woken_at = next(self._wakes)
        self.nothing_for = frozenset()
        self.woken.set()


class Receives:
    """All methods run on the event loop. ``dead`` is given what the leases want to be made dead letters."""

    def __init__(
        self,
        leases: ReaderLeases,
        calls: CallsInTurn,
        arrivals: Arrivals,
        dead: Callable[[str, str, tuple[DeadMessages, ...]], None],
    ) -> None:
        self._leases = leases
        self._calls = calls
        self._arrivals = arrivals
        self._dead = dead
        self._loop = asyncio.get_running_loop()
        self._begun: set[LineKey] = set()
        self._lines: dict[LineKey, _WaitingLine] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._wakes = itertools.count(1)  # of all lines
        self._closed = False

    @property
    def moment(self) -> int:
        """What to pass to ``wait``, read before looking whether there is something."""
        return next(self._wakes)

    @property
    def waiting_count(self) -> int:
        """How many wait; from any thread."""
        return sum(len(line.waiters) for line in list(self._lines.values()))

    def has_nothing(self, key: LineKey, question: ReceiveQuestion) -> bool:
        """Whether there was nothing for the same question, and nothing has happened since."""
        line = self._lines.get(key)
        return line is not None and self._asked_for(key, question) in line.nothing_for

    async def at_once(self, key: LineKey, question: ReceiveQuestion) -> ReceivedBatch:
        """Lease what can be handed out now; a group that does not exist may be made."""
        batch = await self._ask(key, question, self._leases.begin_leasing)
        line = self._lines.get(key)
        if line is not None:  # which hears of leases that it has not handed out by its timer alone
            self._set_timer(key, line)
        return batch

    async def _ask(
        self, key: LineKey, question: ReceiveQuestion, receive: _Receive
    ) -> ReceivedBatch:
        # A group's first look at queues may read much of the log, and a predicate looks at much.
        is_little = key in self._begun and question.predicate is None
        if is_little and self._calls.is_free:
            batch = self._calls.make(receive, key.group, key.topic, question)
        else:
            asked = self._calls.submit(receive, key.group, key.topic, question)
            try:
                batch = await asyncio.shield(asked)
            except asyncio.CancelledError:
                asked.add_done_callback(partial(self._unwanted, key))
                raise
            self._begun.add(key)
        if batch.dead:
            self._dead(key.group, key.topic, batch.dead)
        return batch

    async def wait(
        self, key: LineKey, question: ReceiveQuestion, timeout_seconds: float, moment: int = 0
    ) -> ReceivedBatch | None:
        """Lease what can be handed out as soon as something can; None when time is up.

        There was nothing at ``moment``; 0 if that is not known. Raises StoreBusy if too many wait already,
        and what the leases raise.
        """
        if self._closed or timeout_seconds <= 0:
            return None
        line, waiter = self._join(key, question, moment)
        timer = self._loop.call_later(timeout_seconds, _answer, waiter, None)
        try:
            return await waiter.answered
        except asyncio.CancelledError:
            if not waiter.answered.cancelled() and waiter.answered.exception() is None:
                batch = waiter.answered.result()  # it came in the same moment
                if batch is not None:
                    self.give_back(key, batch)
            raise
        finally:
            timer.cancel()
            with suppress(ValueError):
                line.waiters.remove(waiter)
            if not line.waiters:
                line.wake()

    def _join(
        self, key: LineKey, question: ReceiveQuestion, moment: int
    ) -> tuple[_WaitingLine, _Waiter]:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _WaitingLine(self._wakes)
            line.wake()  # from here on it hears of what comes
            line.task = asyncio.create_task(self._serve(key, line))
            for name in (key.topic, RETRY_PREFIX):
                if name not in self._watching:
                    self._watching[name] = asyncio.create_task(self._watch(name))
        if len(line.waiters) >= WAITERS_MAX:
            raise StoreBusy(
                f"{WAITERS_MAX} receives of group {key.group!r} wait for topic {key.topic!r} already",
                retry_delay_ms=RETRY_DELAY_MS,
            )
        waiter = _Waiter(question, self._loop.create_future())
        queue_ids = line.queue_ids
        line.waiters.append(waiter)
        if line.woken_at > moment:
            line.wake()
        elif line.queue_ids != queue_ids:  # its timer is that of others
            self._set_timer(key, line)
        return line, waiter

    def wake(self, group: str, topic: str = "") -> None:
        """Look again whether there is something for a group, in one topic or in all."""
        if topic:
            line = self._lines.get(LineKey(group, topic))
            if line is not None:
                line.wake()
            return
        for key, each in self._lines.items():
            if group in ("", key.group):
                each.wake()

    def close(self) -> None:
        """Answer everybody who waits with nothing, from now on at once."""
        self._closed = True
        for line in self._lines.values():
            for waiter in line.waiters:
                _answer(waiter, None)
            line.wake()
        for watching in self._watching.values():
            watching.cancel()

    async def _serve(self, key: LineKey, line: _WaitingLine) -> None:
        """Serve a line for as long as anybody waits in it."""
        while line.waiters and not self._closed:
            line.woken.clear()
            try:
                nothing_for, looks_again = await self._round(key, line)
                if looks_again:
                    await asyncio.sleep(0)  # others have their turn between
                else:
                    self._set_timer(key, line)
                    if not line.woken.is_set():
                        line.nothing_for = nothing_for
                    await line.woken.wait()
            except Exception as error:  # noqa: BLE001  raised where it is awaited
                for waiter in line.waiters:
                    if not waiter.answered.done():
                        waiter.answered.set_exception(error)
                line.waiters.clear()
        if line.timer is not None:
            line.timer.cancel()
        del self._lines[key]

    async def _round(self, key: LineKey, line: _WaitingLine) -> tuple[frozenset[_AskedFor], bool]:
        """Offer what there is to those who wait.

        Returns for which questions nothing is left, and whether there may be more at once.
        """
        nothing_for: set[_AskedFor] = set()
        has_more = False
        for waiter in list(line.waiters):
            asked_for = self._asked_for(key, waiter.question)
            if waiter.answered.done() or asked_for in nothing_for:
                continue
            try:
                batch = await self._ask(key, waiter.question, self._leases.lease)
            except Exception as error:  # noqa: BLE001  raised where it is awaited: it is of this question alone
                if not waiter.answered.done():
                    waiter.answered.set_exception(error)
                continue
            if not batch.has_more:
                nothing_for.add(asked_for)  # it took all that there was
            if not batch.record_count and not batch.damaged:
                nothing_for.add(asked_for)
                has_more |= batch.has_more
            elif waiter.answered.done():
                self.give_back(key, batch)
                has_more = True
            else:
                waiter.answered.set_result(batch)
                line.waiters.remove(waiter)
        return frozenset(nothing_for), has_more

    def _asked_for(self, key: LineKey, question: ReceiveQuestion) -> _AskedFor:
        """Return what decides whether there is something: where there is nothing for one, there is for none.

        The id of an attempt decides in a group with order alone: it may name a batch that is handed out again.
        """
        attempt_id = question.attempt_id if self._leases.is_orderly(key.group) else ""
        return question.tag_expression, question.predicate, question.queue_ids, attempt_id

    def _set_timer(self, key: LineKey, line: _WaitingLine) -> None:
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None
        # What is due in a queue that nobody here asks for would wake the line again and again.
        seconds = self._leases.due_in_seconds(key.group, key.topic, line.queue_ids)
        if seconds is not None:
            line.timer = self._loop.call_later(min(seconds, _TIMER_SECONDS_MAX), line.wake)

    async def _watch(self, name: str) -> None:
        """Wake the lines of a topic, or all for RETRY_PREFIX, whenever something may have been stored there."""
        try:
            while lines := [
                line for key, line in self._lines.items() if name in (key.topic, RETRY_PREFIX)
            ]:
                try:
                    moment = self._arrivals.moment
                    for line in lines:
                        line.wake()
                    await self._arrivals.wait_for_key(name, moment, _LOOK_SECONDS)
                except (StoreError, OSError):  # such as no descriptor left: who asks meets it, too
                    await asyncio.sleep(_TROUBLE_SECONDS)
        finally:
            del self._watching[name]

    def _unwanted(self, key: LineKey, asked: asyncio.Future[ReceivedBatch]) -> None:
        if not asked.cancelled() and asked.exception() is None:
            batch = asked.result()
            if batch.dead:
                self._dead(key.group, key.topic, batch.dead)
            self.give_back(key, batch)

    def give_back(self, key: LineKey, batch: ReceivedBatch) -> None:
        """Hand out to others what was leased to somebody who has gone."""
        if not batch.record_count or self._closed:
            return
        given = self._calls.submit(
            self._leases.change, key.group, key.topic, batch.receipt_handles, 0
        )
        given.add_done_callback(lambda each: self._given_back(key, each))

    def _given_back(self, key: LineKey, given: asyncio.Future[list[Refusal]]) -> None:
        if not given.cancelled() and given.exception() is None:
            self.wake(key.group, key.topic)


def _answer(waiter: _Waiter, batch: ReceivedBatch | None) -> None:
    if not waiter.answered.done():
        waiter.answered.set_result(batch)

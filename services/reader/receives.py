"""Receives that wait for a first message, in line: by group and topic, those who came first are served first.

Of those with the same question the first one asks the leases, and the others wait for their turn. What wakes
a line, so that the first ones ask again: a message stored in its topic or in a retry topic, the end of a
lease or of a wait after a nack (a timer), and whoever calls ``wake`` after a change that may make something
due.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
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


class _QuestionLine:
    """Those in a line who ask the same."""

    def __init__(self) -> None:
        self.count = 0
        self.turn = asyncio.Lock()  # the first one's
        self.nothing_at = 0  # the line's ``woken_at`` when there was nothing left for them


class _WaitingLine:
    """Those who wait for messages of one topic on behalf of one group."""

    def __init__(self, woken_at: int) -> None:
        self.count = 0
        self.questions: dict[_AskedFor, _QuestionLine] = {}
        self.woken_at = woken_at  # number of the last wake-up
        self.stirred = asyncio.Event()  # of those who are first until now

    def stir(self) -> None:
        """Have the first ones look up: something has happened, or what is due next has changed."""
        self.stirred.set()
        self.stirred = asyncio.Event()


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
        return sum(line.count for line in list(self._lines.values()))

    def has_nothing(self, key: LineKey, question: ReceiveQuestion) -> bool:
        """Whether there was nothing for the same question, and nothing has happened since."""
        line = self._lines.get(key)
        same = line.questions.get(self._asked_for(key, question)) if line is not None else None
        return line is not None and same is not None and same.nothing_at == line.woken_at

    async def at_once(self, key: LineKey, question: ReceiveQuestion) -> ReceivedBatch:
        """Lease what can be handed out now; a group that does not exist may be made."""
        return await self._ask(key, question, self._leases.begin_leasing)

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
        line = self._lines.get(key)
        if line is not None and batch.record_count:
            line.stir()  # those who wait hear of the end of its leases by their timers alone
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
        asked_for, line = self._asked_for(key, question), self._join(key)
        same = line.questions.setdefault(asked_for, _QuestionLine())
        same.count += 1
        try:
            async with asyncio.timeout(timeout_seconds), same.turn:
                return await self._first_in(line, same, key, question, moment)
        except TimeoutError:
            return None
        finally:
            same.count -= 1
            if not same.count:
                del line.questions[asked_for]
            line.count -= 1
            if not line.count:
                del self._lines[key]

    def _join(self, key: LineKey) -> _WaitingLine:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _WaitingLine(next(self._wakes))
            for name in (key.topic, RETRY_PREFIX):
                if name not in self._watching:
                    self._watching[name] = asyncio.create_task(self._watch(name))
        if line.count >= WAITERS_MAX:
            raise StoreBusy(
                f"{WAITERS_MAX} receives of group {key.group!r} wait for topic {key.topic!r} already",
                retry_delay_ms=RETRY_DELAY_MS,
            )
        line.count += 1
        return line

    async def _first_in(
        self,
        line: _WaitingLine,
        same: _QuestionLine,
        key: LineKey,
        question: ReceiveQuestion,
        moment: int,
    ) -> ReceivedBatch | None:
        """Return what there is for the first one with a question, as soon as there is something."""
        while not self._closed:
            woken_at, stirred = line.woken_at, line.stirred
            if woken_at <= moment:
                same.nothing_at = woken_at
            if woken_at > same.nothing_at:
                batch = await self._ask(key, question, self._leases.lease)
                if not batch.has_more:
                    same.nothing_at = woken_at  # it took all that there was
                if batch.record_count or batch.damaged:
                    return batch
                if batch.has_more:
                    await asyncio.sleep(0)  # others have their turn between
                    continue
            # What is due in a queue that is not asked for would wake it again and again.
            seconds = self._leases.due_in_seconds(key.group, key.topic, question.queue_ids)
            try:
                async with asyncio.timeout(_TIMER_SECONDS_MAX if seconds is None else seconds):
                    await stirred.wait()
            except TimeoutError:
                self._wake(line)
        return None

    def wake(self, group: str, topic: str = "") -> None:
        """Look again whether there is something for a group, in one topic or in all."""
        if topic:
            line = self._lines.get(LineKey(group, topic))
            if line is not None:
                self._wake(line)
            return
        for key, line in self._lines.items():
            if group in ("", key.group):
                self._wake(line)

    def _wake(self, line: _WaitingLine) -> None:
        line.woken_at = next(self._wakes)
        line.stir()

    def close(self) -> None:
        """Answer everybody who waits with nothing, from now on at once."""
        self._closed = True
        self.wake("")
        for watching in self._watching.values():
            watching.cancel()

    def _asked_for(self, key: LineKey, question: ReceiveQuestion) -> _AskedFor:
        """Return what decides whether there is something: where there is nothing for one, there is for none.

        The id of an attempt decides in a group with order alone: it may name a batch that is handed out again.
        """
        attempt_id = question.attempt_id if self._leases.is_orderly(key.group) else ""
        return question.tag_expression, question.predicate, question.queue_ids, attempt_id

    async def _watch(self, name: str) -> None:
        """Wake the lines of a topic, or all for RETRY_PREFIX, whenever something may have been stored there."""
        try:
            while lines := [
                line for key, line in self._lines.items() if name in (key.topic, RETRY_PREFIX)
            ]:
                try:
                    moment = self._arrivals.moment
                    for line in lines:
                        self._wake(line)
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

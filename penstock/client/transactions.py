"""Transactions: messages that consumers see after a commit only, and checks of those that nobody ended."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Self

from penstock.batch import NO_PROPERTIES, Keys, RecordBatch
from penstock.calls import transactions
from penstock.calls.transactions import EndedTransaction, TransactionCheck
from penstock.client.connection import ConnectionCore
from penstock.consuming.read_ahead import ReadAhead
from penstock.errors import (
    Cancelled,
    ClientClosed,
    PenstockError,
    QueueNotFound,
    TransactionExists,
    TransactionRefused,
    Unavailable,
)
from penstock.forms import AsyncClosing, Closing, OfLoop, OfThreads, both, check_kind, finished
from penstock.requests import key_tuple

_log = logging.getLogger(__name__)
_WATCH_AGAIN_S: Final = 1.0


class TransactionCore:
    """One transaction of messages of a topic, in both forms.

    Sent messages are stored at once and seen by nobody. Leaving its block commits them in one batch; an
    exception rolls them back. The writer asks checkers about a transaction whose producer died.
    `Client.transaction` makes one.
    """

    def __init__(
        self, client: ConnectionCore, topic: str, transaction_id: str, immunity_s: int
    ) -> None:
        self.topic = topic
        self.transaction_id = transaction_id
        self._client = client
        self._immunity_s = immunity_s
        self._count = 0
        self._unanswered: tuple[Any, ...] | None = (
            None  # what the last send was given, if it failed
        )
        self._may_have_sent = False
        self._is_answered = False  # some send was
        self._turn = secrets.randbelow(1 << 16)
        self._key_prefix = f"{transaction_id}-{secrets.token_hex(4).upper()}-"
        self._has_ended = False

    @both
    async def send(
        self,
        body: bytes,
        *,
        topic: str = "",
        keys: Keys = (),
        tag: str = "",
        properties: Mapping[str, str] = NO_PROPERTIES,
        queue_id: int | None = None,
        flag: int = 0,
        timeout_s: float | None = None,
    ) -> str:
        """Store one message, of another topic if one is given; return its unique key.

        On return it is as durable as the writer's flush mode promises. If the answer is lost, the message is
        sent again and stored once. After an error send the same message again, or roll back: a commit
        includes messages that were stored without an answer.

        Raises TransactionExists, with nothing stored, if messages of another run are pending under the
        transaction id.
        """
        name = topic or self.topic
        given = (name, body, key_tuple(keys), tag, dict(properties), queue_id, flag)
        if self._unanswered not in (None, given):
            self._count += 1  # another message needs a key of its own
        self._unanswered = given
        if queue_id is None:
            queue_id = (self._turn + self._count) % max(1, await self._client._queue_count(name))
        unique_key = f"{self._key_prefix}{self._count}"
        batch = RecordBatch(name, size_max=self._client.request_bytes_max, clock=self._client.clock)
        batch.add(
            body,
            keys=given[2],
            tag=tag,
            properties=properties,
            unique_key=unique_key,
            queue_id=queue_id,
            flag=flag,
        )
        call = transactions.prepare(
            batch.records(),
            transaction_id=self.transaction_id,
            key_prefix=self._key_prefix,
            immunity_s=self._immunity_s,
            bytes_max=self._client.request_bytes_max,
            timeout_s=timeout_s,
        )
        self._may_have_sent = True
        try:
            await self._client._send(call)
        except QueueNotFound:
            self._client.queue_counts.forget(name)
            raise
        except TransactionExists:
            self._may_have_sent = self._is_answered  # the end of another's is not for this one
            raise
        self._count += 1
        self._unanswered = None
        self._is_answered = True
        return unique_key

    @both
    async def commit(self, *, timeout_s: float | None = None) -> EndedTransaction | None:
        """Show the sent messages to consumers; None if there are none. Safe to call again after an error.

        Raises TransactionRefused if it was rolled back or given up meanwhile, or its topic was deleted.
        """
        return await self._end(commit=True, timeout_s=timeout_s)

    @both
    async def rollback(self, *, timeout_s: float | None = None) -> EndedTransaction | None:
        """Discard the sent messages; None if there are none. Safe to call again after an error."""
        return await self._end(commit=False, timeout_s=timeout_s)

    async def _end(self, *, commit: bool, timeout_s: float | None) -> EndedTransaction | None:
        ended = None
        if self._may_have_sent:
            call = transactions.end_one(self.transaction_id, commit=commit, timeout_s=timeout_s)
            try:
                ended = await self._client._send(call)
            except TransactionRefused as refused:
                if self._is_answered or refused.state != "not found":
                    raise
        self._has_ended = True
        return ended

    async def _leave(self, kind: object) -> None:
        """Commit at the end of the block, or roll back after an exception."""
        if self._has_ended:
            return
        if kind is None:
            await self._end(commit=True, timeout_s=None)
            return
        try:
            await self._end(commit=False, timeout_s=None)
        except PenstockError as error:  # the exception of the block is what counts
            _log.warning("transaction %s is not rolled back: %s", self.transaction_id, error)


class Transaction(TransactionCore, OfThreads):
    """A transaction of messages of a topic; use it as a context manager."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        finished(self._leave, kind)


class AsyncTransaction(TransactionCore, OfLoop):
    """As `Transaction`; use it as an async context manager."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self._leave(kind)


class CheckerCore:
    """Answers checks about topics beside the caller's work, in both forms."""

    def __init__(
        self,
        client: ConnectionCore,
        topics: Sequence[str],
        checker: Callable[[TransactionCheck], Any],
    ) -> None:
        check_kind(self, checker)
        self._client = client
        self._topics = tuple(topics)
        self._checker = checker
        self._background = client.form.background("penstock-checker")
        self._checks: ReadAhead[TransactionCheck] | None = None

    @both
    async def close(self) -> None:
        """Answer no more. Closing twice does nothing."""
        self._background.stop()
        if self._checks is not None:
            self._checks.stop()
        await self._background.join()

    async def _run(self) -> None:
        while not self._background.is_stopping:
            try:
                await self._follow()
            except ClientClosed:
                return
            except (Unavailable, Cancelled, StopAsyncIteration) as error:
                if not self._background.is_stopping:
                    _log.info("checks of transactions: the stream ended: %s", error)
            except PenstockError as error:
                _log.warning("checks of transactions: %s", error)
            await self._background.pause(_WATCH_AGAIN_S)

    async def _follow(self) -> None:
        checks = self._checks = self._client._read_ahead(transactions.watch(self._topics))
        try:
            while not self._background.is_stopping:
                await self._answer(await checks.next_answer())
                await self._client.channels.pause(0)  # a turn of the loop
        finally:
            checks.stop()

    async def _answer(self, check: TransactionCheck) -> None:
        try:
            commit = self._checker(check)
            if isinstance(self, OfLoop):
                commit = await commit
        except Exception:  # noqa: BLE001  of a checker, which may raise anything
            _log.exception("checker failed for transaction %s", check.transaction_id)
            return
        if commit is not None:
            ids = [check.transaction_id]
            await self._client._send(transactions.end_transactions(ids, commit=bool(commit)))


class TransactionChecker(CheckerCore, Closing):
    """Answers checks about topics beside the caller's work, until it is closed; a context manager."""

    def __enter__(self) -> Self:
        self._background.start(self._run)
        return self


class AsyncTransactionChecker(CheckerCore, AsyncClosing):
    """As `TransactionChecker`; an async context manager."""

    async def __aenter__(self) -> Self:
        self._background.start(self._run)
        return self

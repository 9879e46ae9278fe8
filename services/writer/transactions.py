"""The methods of penstock.v1.Transactions. All of them may read or sync files, so all of them run in threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Final

from penstock.v1 import transactions_pb2 as pb
from services import wire
from services.rpc.servicer import Context, Draining, raw
from services.rpc.status import InvalidArgument
from services.writer.acks import Acks
from storage.errors import InvalidBatch
from storage.transactions.checks import TransactionChecks
from storage.transactions.transactions import Transactions
from storage.transactions.values import (
    EndedTransaction,
    PendingTransaction,
    TransactionCheck,
    TransactionState,
)

IDS_MAX: Final = 65_536  # of a request
FIELDS_MAX: Final = 16  # of a request to store: one with more takes long to parse
TOPICS_MAX: Final = 10_000  # that one stream watches
CHECKS_WAITING_MAX: Final = 1_024  # of one stream; what comes on top does not count as asked
CHECKS_BYTES_MAX: Final = 16 << 20  # of these, beyond the first
_STATES: Final = {
    each: pb.TransactionState.Value(f"TRANSACTION_{each.name}") for each in TransactionState
}
_RESOLUTIONS: Final = {pb.RESOLUTION_COMMIT: True, pb.RESOLUTION_ROLLBACK: False}


class TransactionServicer:
    """Answers when what was asked for is as durable as the flush mode says."""

    def __init__(
        self, store: Transactions, checks: TransactionChecks, acks: Acks, draining: asyncio.Event
    ) -> None:
        self._store = store
        self._checks = checks
        self._acks = acks
        self._draining = draining

    @raw
    async def prepare(self, data: bytes, _context: Context) -> pb.PrepareResponse:
        """Store half messages."""
        if wire.count_fields(data, FIELDS_MAX + 1) > FIELDS_MAX:
            raise InvalidArgument("request", "has fields again and again")
        request = pb.PrepareRequest.FromString(data)
        if not request.records:
            raise InvalidBatch(0, "the batch is empty; send at least one record")
        if request.immunity_s < 0:
            raise InvalidArgument("immunity_s", "must not be negative")
        stored = await asyncio.to_thread(
            self._store.prepare,
            request.records,
            transaction_id=request.transaction_id,
            key_prefix=request.key_prefix,
            immunity_s=request.immunity_s,
        )
        await self._acknowledged(stored.end_commit_offset)
        return pb.PrepareResponse(
            transaction_ids=stored.transaction_ids, half_offsets=stored.queue_offsets
        )

    async def end_transactions(
        self, request: pb.EndTransactionsRequest, _context: Context
    ) -> bytes:
        """Commit or roll back."""
        if len(request.transaction_ids) > IDS_MAX:
            raise InvalidArgument("transaction_ids", f"are too many; send at most {IDS_MAX}")
        commit = _RESOLUTIONS.get(request.resolution)
        if commit is None:
            raise InvalidArgument("resolution", "must be COMMIT or ROLLBACK")
        ended, end = await asyncio.to_thread(
            self._store.end, list(request.transaction_ids), commit=commit, topic=request.topic
        )
        await self._acknowledged(end)
        if len(ended) <= wire.SLICE_ITEMS:
            return _ended_message(ended).SerializeToString()
        return await asyncio.to_thread(
            wire.sliced, pb.EndTransactionsResponse(), ended, _ended_message
        )

    async def list_transactions(
        self, _request: pb.ListTransactionsRequest, _context: Context
    ) -> bytes:
        """Return what is pending, as much as is listed, and how much there is."""
        return await asyncio.to_thread(self._pending)

    def _pending(self) -> bytes:
        pending = self._store.pending()
        head = pb.ListTransactionsResponse(pending_count=pending.pending_count)
        return wire.sliced(head, pending, _pending_message)

    async def watch_checks(self, request: pb.WatchChecksRequest, context: Context) -> None:
        """Pass on the questions to a producer of the topics, until it ends the stream."""
        if len(request.topics) > TOPICS_MAX:
            raise InvalidArgument("topics", f"are too many; watch at most {TOPICS_MAX}")
        waiting = _WaitingChecks()
        await context.send_initial_metadata(())
        watching = asyncio.ensure_future(
            asyncio.to_thread(self._checks.watch, list(request.topics), waiting.ask)
        )
        draining = asyncio.ensure_future(self._draining.wait())
        writing = asyncio.ensure_future(waiting.write_on(context))
        try:
            await asyncio.shield(watching)
            await asyncio.wait({draining, writing}, return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                raise Draining
            writing.result()
        finally:
            draining.cancel()
            writing.cancel()
            watching.add_done_callback(
                self._unwatch
            )  # a call that is cancelled while it begins, too

    async def return_checks(
        self, request: pb.ReturnChecksRequest, _context: Context
    ) -> pb.ReturnChecksResponse:
        """Take back questions that reached nobody."""
        await asyncio.to_thread(self._uncount, request.checks)
        return pb.ReturnChecksResponse()

    def _uncount(self, checks: Sequence[pb.ReturnedCheck]) -> None:
        for check in checks:
            self._checks.uncount(check.transaction_id, check.check_count)

    def _unwatch(self, watching: asyncio.Future[int]) -> None:
        if not watching.cancelled() and watching.exception() is None:
            loop = asyncio.get_running_loop()
            loop.run_in_executor(None, self._checks.unwatch, watching.result())

    async def _acknowledged(self, end_commit_offset: int) -> None:
        if not self._acks.has(end_commit_offset):
            await self._acks.wait(end_commit_offset)


class _WaitingChecks:
    """Checks on their way to one stream, as many as there is room for."""

    def __init__(self) -> None:
        self._checks: asyncio.Queue[TransactionCheck] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._guard = threading.Lock()
        self._count = self._size = 0

    def ask(self, check: TransactionCheck) -> bool:
        """Have a check written; False if there is no room. For the thread that checks."""
        size = _size_of(check)
        with self._guard:
            is_too_much = self._count and self._size + size > CHECKS_BYTES_MAX
            if self._count >= CHECKS_WAITING_MAX or is_too_much:
                return False
            self._count += 1
            self._size += size
        try:
            self._loop.call_soon_threadsafe(self._checks.put_nowait, check)
        except RuntimeError:  # the loop has ended
            return False
        return True

    async def write_on(self, context: Context) -> None:
        """Write checks as they come, without end."""
        while True:
            check = await self._checks.get()
            with self._guard:
                self._count -= 1
                self._size -= _size_of(check)
            answer = pb.TransactionCheck(
                transaction_id=check.transaction_id,
                topics=check.topics,
                check_count=check.check_count,
                message_count=len(check.halves),
                records=b"".join(check.halves),
            )
            await context.write(answer.SerializeToString())


def _size_of(check: TransactionCheck) -> int:
    return sum(map(len, check.halves))


def _ended_message(ended: Sequence[EndedTransaction]) -> pb.EndTransactionsResponse:
    return pb.EndTransactionsResponse(
        transactions=[
            wire.message_from(pb.EndedTransaction, each, state=_STATES[each.state])
            for each in ended
        ]
    )


def _pending_message(pending: Sequence[PendingTransaction]) -> pb.ListTransactionsResponse:
    return pb.ListTransactionsResponse(
        transactions=[wire.message_from(pb.PendingTransaction, each) for each in pending]
    )

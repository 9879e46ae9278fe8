"""Transactions of RocketMQ's clients: their ends go to the writer, its checks to producers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Final

import grpc

from penstock.v1 import transactions_pb2
from services import logs
from services.gateway.messages import names
from services.gateway.messages.delivered_messages import fill_message
from services.gateway.messages.statuses import CallRefused
from services.gateway.retries import answered_until
from services.gateway.telemetry import TelemetryStreams
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.loops import Gathering
from services.upstream import CalledService, CheckingWriter, is_cancelled
from storage.format.properties import REAL_TOPIC
from storage.format.record import decode_record

TRANSACTIONS: Final = "/penstock.v1.Transactions/"
END_TRANSACTIONS: Final = f"{TRANSACTIONS}EndTransactions"
ENDS_MAX: Final = 64  # of one call: their messages may be large
EndKey = tuple[str, transactions_pb2.Resolution]  # of what topic, how
_RESOLUTIONS: Final = {
    v2.COMMIT: (transactions_pb2.RESOLUTION_COMMIT, transactions_pb2.TRANSACTION_COMMITTED),
    v2.ROLLBACK: (transactions_pb2.RESOLUTION_ROLLBACK, transactions_pb2.TRANSACTION_ROLLED_BACK),
}
_REFUSALS: Final = {
    transactions_pb2.TRANSACTION_COMMITTED: "was committed",
    transactions_pb2.TRANSACTION_ROLLED_BACK: "was rolled back",
    transactions_pb2.TRANSACTION_GIVEN_UP: "was given up",
    transactions_pb2.TRANSACTION_NOT_FOUND: "is not known, or ended too long ago",
    transactions_pb2.TRANSACTION_OTHER_TOPIC: "is of another topic",
}
_WATCH_AGAIN_SECONDS: Final = 1.0
_WATCHED_TOPICS_MAX: Final = 10_000  # by one call
_RETURN_SECONDS: Final = 5.0


class TransactionEnds:
    """Ends transactions; what comes while the writer answers goes together in the next call.

    One call at a time for each topic and resolution.
    """

    def __init__(self, writer: CalledService) -> None:
        self._writer = writer
        self._gathering = Gathering(self._end_all, most=ENDS_MAX)
        self._loop = asyncio.get_running_loop()

    async def end(
        self, key: EndKey, transaction_id: str, timeout_s: float
    ) -> transactions_pb2.EndedTransaction:
        """End one transaction; return what became of it. Raises CallRefused."""
        until = self._loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(until):
                return await self._gathering.outcome((transaction_id, until), key)
        except TimeoutError:
            raise CallRefused(v2.PROXY_TIMEOUT, "the writer did not answer in time") from None
        except CallRefused:
            raise
        except Exception as error:  # noqa: BLE001  whatever ended it, the client has to know
            logs.get_logger().error("ends of transactions failed", exc_info=error)
            raise CallRefused(
                v2.INTERNAL_SERVER_ERROR, "the call was not made, or its answer not understood"
            ) from None

    async def close(self) -> None:
        """Make no more calls."""
        await self._gathering.close()

    async def _end_all(
        self, key: EndKey, ends: Sequence[tuple[str, float]]
    ) -> Sequence[transactions_pb2.EndedTransaction]:
        topic, resolution = key
        request = transactions_pb2.EndTransactionsRequest(
            transaction_ids=[transaction_id for transaction_id, _ in ends],
            resolution=resolution,
            topic=topic,
        )
        # While somebody waits: the writer knows how a transaction ended.
        answer, _ = await answered_until(
            max(until for _, until in ends),
            lambda left: self._writer.call(END_TRANSACTIONS, request, timeout_s=max(0.0, left)),
        )
        return transactions_pb2.EndTransactionsResponse.FromString(answer).transactions


class OrphanedTransactions:
    """Ends transactions; passes the writer's checks on to connected producers."""

    def __init__(self, writer: CheckingWriter, telemetry: TelemetryStreams) -> None:
        self._writer = writer
        self._ends = TransactionEnds(writer)
        self._telemetry = telemetry
        self._topics: frozenset[str] = frozenset()
        self._watching: list[asyncio.Task[None]] = []
        self._turn = itertools.count()
        self._untold: dict[str, int] = {}  # counts of checks by transaction id
        self._returning: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    async def end(self, request: service_pb2.EndTransactionRequest, timeout_s: float) -> None:
        """Commit or roll back; without a resolution nothing happens. Raises CallRefused."""
        if not request.transaction_id.strip():
            raise CallRefused(v2.INVALID_TRANSACTION_ID, "the transaction id is blank")
        if request.resolution not in _RESOLUTIONS:
            return
        resolution, wanted = _RESOLUTIONS[request.resolution]
        key = names.topic_of(request.topic), resolution
        ended = await self._ends.end(key, request.transaction_id, timeout_s)
        if ended.state == wanted:
            return
        if ended.state == transactions_pb2.TRANSACTION_TOPIC_GONE:
            raise CallRefused(v2.TOPIC_NOT_FOUND, ended.problem)
        if ended.state in _REFUSALS:
            problem = f"transaction {request.transaction_id} {_REFUSALS[ended.state]}"
            raise CallRefused(v2.INVALID_TRANSACTION_ID, problem)
        raise CallRefused(v2.INTERNAL_SERVER_ERROR, ended.problem)

    def tick(self) -> None:
        """Watch the topics of the producers that are connected now."""
        topics = self._telemetry.published_topics()
        is_watched = topics is self._topics or topics == self._topics
        if is_watched and not any(task.done() for task in self._watching):
            return
        self._topics = topics
        before = self._watching
        names_in_order = sorted(topics)
        self._watching = [
            self._loop.create_task(self._watch(names_in_order[at : at + _WATCHED_TOPICS_MAX]))
            for at in range(0, len(names_in_order), _WATCHED_TOPICS_MAX)
        ]
        for task in before:
            task.cancel()

    async def close(self) -> None:
        """Watch nothing more."""
        await self._ends.close()
        tasks = [*self._watching]
        if self._returning is not None:
            tasks.append(self._returning)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, topics: Sequence[str]) -> None:
        request = transactions_pb2.WatchChecksRequest(topics=topics)
        logged = ""
        while True:
            try:
                async for answer in self._writer.answers(TRANSACTIONS + "WatchChecks", request):
                    logged = ""
                    self._take(answer)
            except grpc.aio.AioRpcError as error:  # it is checked again
                problem = f"{error.code().name}: {error.details()}"
                is_away = error.code() is grpc.StatusCode.UNAVAILABLE
                if not is_away and problem != logged:
                    logs.get_logger().error("the writer refuses checks", problem=problem)
                    logged = problem
            except asyncio.CancelledError:
                if is_cancelled():
                    raise
            except Exception as error:  # noqa: BLE001  this task lives as long as producers do
                logs.get_logger().error("checks of transactions ended", exc_info=error)
            await asyncio.sleep(_WATCH_AGAIN_SECONDS)

    def _take(self, answer: bytes) -> None:
        """Pass one check on; one that cannot be is logged, and the next ones go on."""
        try:
            self._pass_on(transactions_pb2.TransactionCheck.FromString(answer))
        except Exception as error:  # noqa: BLE001  it is checked again later
            logs.get_logger().error("a check of a transaction failed", exc_info=error)

    def _pass_on(self, check: transactions_pb2.TransactionCheck) -> None:
        """Ask one producer about each message; a client's transaction has one message."""
        position = 0
        for _ in range(check.message_count):
            record = decode_record(check.records, position)
            position += record.total_size
            topic = record.properties.get(REAL_TOPIC, "")
            command = service_pb2.TelemetryCommand()
            orphaned = command.recover_orphaned_transaction_command
            orphaned.transaction_id = check.transaction_id
            fill_message(
                orphaned.message, record, v2.Resource(name=topic), receipt_handle="", attempt=1
            )
            self._ask(topic, command.SerializeToString(), check)

    def _ask(self, topic: str, command: bytes, check: transactions_pb2.TransactionCheck) -> None:
        """Tell one producer of a topic; where none takes it, the writer learns that it does not count."""
        about = check.transaction_id, check.check_count  # keeps no records

        def untold() -> None:
            self._give_back(*about)

        producers = self._telemetry.producers_of(topic)
        turn = next(self._turn)
        for place in range(len(producers)):
            producer = producers[(turn + place) % len(producers)]
            if producer.may_send_to(topic) and producer.tell(command, untold):
                return
        untold()

    def _give_back(self, transaction_id: str, check_count: int) -> None:
        self._untold[transaction_id] = check_count
        if self._returning is None:
            self._returning = self._loop.create_task(self._return())

    async def _return(self) -> None:
        """Tell the writer which checks reached nobody; where it is away, they count."""
        try:
            while self._untold:
                untold, self._untold = self._untold, {}
                checks = [
                    transactions_pb2.ReturnedCheck(transaction_id=each, check_count=count)
                    for each, count in untold.items()
                ]
                request = transactions_pb2.ReturnChecksRequest(checks=checks)
                try:
                    await self._writer.call(
                        TRANSACTIONS + "ReturnChecks", request, timeout_s=_RETURN_SECONDS
                    )
                except grpc.aio.AioRpcError as error:
                    logs.get_logger().warning(
                        "checks that reached nobody count",
                        code=error.code().name,
                        checks=len(checks),
                    )
        finally:
            self._returning = None

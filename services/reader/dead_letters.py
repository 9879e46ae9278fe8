"""Dead letters on their way to the writer, which alone appends to the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import grpc

from penstock.v1 import dead_letters_pb2
from services import logs
from services.reader.calls_in_turn import CallsInTurn
from services.reader.leases import ReaderLeases
from services.rpc.status import NotServed
from services.upstream import ServiceAddress, Upstream
from storage.errors import StoreBusy
from storage.leases.values import DeadMessages

CALL_SECONDS: Final = 10.0
RECORDS_MAX: Final = 1_024  # of a call
RETRY_DELAY_MS: Final = 1_000
_METHOD: Final = "/penstock.v1.DeadLetters/AppendDeadLetters"
_SAID_EVERY_SECONDS: Final = 60.0


class DeadLetterCalls:
    """All methods run on the event loop."""

    def __init__(
        self,
        writer: ServiceAddress,
        leases: ReaderLeases,
        calls: CallsInTurn,
    ) -> None:
        self._leases = leases
        self._calls = calls
        self._log = logs.get_logger()
        self._loop = asyncio.get_running_loop()
        self._said_at = -_SAID_EVERY_SECONDS
        self._under_way: set[asyncio.Task[None]] = set()
        self._writer = Upstream(writer) if writer.address else None

    def send(self, group: str, topic: str, dead: Sequence[DeadMessages]) -> None:
        """Have records stored as dead letters, in the background; what fails is asked for again later."""
        task = asyncio.create_task(self._send(group, topic, dead))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _send(self, group: str, topic: str, dead: Sequence[DeadMessages]) -> None:
        try:
            await self.store(group, topic, dead)
        except Exception as error:  # noqa: BLE001  the leases ask again
            if self._loop.time() - self._said_at >= _SAID_EVERY_SECONDS:
                self._said_at = self._loop.time()
                self._log.warning("dead letters wait", group=group, topic=topic, problem=str(error))

    async def store(self, group: str, topic: str, dead: Sequence[DeadMessages]) -> None:
        """Return when records are stored as dead letters and acknowledged.

        Raises NotServed without a writer, StoreBusy if it does not answer or has no room.
        """
        if self._writer is None:
            raise NotServed("dead letters: the reader was given no writer_address")
        for letters in dead:
            for begin in range(0, len(letters.commit_offsets), RECORDS_MAX):
                part = slice(begin, begin + RECORDS_MAX)
                request = dead_letters_pb2.AppendDeadLettersRequest(
                    group=group,
                    commit_offsets=letters.commit_offsets[part].tolist(),
                    reconsume_times=letters.reconsume_times[part].tolist(),
                )
                try:
                    data = await self._writer.call(_METHOD, request, timeout_s=CALL_SECONDS)
                except grpc.aio.AioRpcError as error:
                    raise StoreBusy(
                        f"the writer has not stored dead letters: {error.details()}",
                        retry_delay_ms=RETRY_DELAY_MS,
                    ) from None
                answer = dead_letters_pb2.AppendDeadLettersResponse.FromString(data)
                for uncopied in answer.uncopied:
                    self._log.error(
                        "dead letter lost", group=group, topic=letters.topic,
                        queue_id=letters.queue_id,
                        commit_offset=request.commit_offsets[uncopied.index],
                        problem=uncopied.reason,
                    )  # fmt: skip
        await self._calls.run(self._leases.end_dead_letters, group, topic, dead)

    async def close(self) -> None:
        """Give up what is under way, and end the connection."""
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        if self._writer is not None:
            await self._writer.close()

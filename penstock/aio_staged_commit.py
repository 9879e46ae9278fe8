"""Staged commits for asyncio: what `StagedCommit` does, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

import grpc

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.staged_commits import Version, staged
from penstock.errors import from_rpc_error
from penstock.staged_commit import COMMIT_TIMEOUT_S, STAGE_TIMEOUT_S
from penstock.values import Committed, Staged

T = TypeVar("T")


class AsyncCalls(Protocol):
    """What a staged commit needs of its client."""

    async def run(self, call: Call[T], *, timeout_s: float | None = None) -> T: ...
    def request_stream(self, method: wire.Method) -> Any: ...


class AsyncStagedCommit(Version):
    """One version of one application: staged by any number of clients, committed once.

    Made by `AsyncClient.staged_commit`; see `StagedCommit`.
    """

    def __init__(
        self, client: AsyncCalls, app_id: str, version: int, *, one_off: bool = False
    ) -> None:
        super().__init__(app_id, version, one_off=one_off)
        self._client = client

    async def stage(
        self,
        attempt: str,
        batches: Iterable[bytes | bytearray | memoryview],
        *,
        timeout_s: float = STAGE_TIMEOUT_S,
    ) -> Staged:
        """Store encoded records for one attempt; durable and invisible on return.

        ``batches`` are iterated in a thread of gRPC's and do not block the loop. Cancelled, it
        leaves nothing but what had arrived as a whole. See `StagedCommit.stage`.
        """
        stub = self._client.request_stream(wire.STAGE_RECORDS)
        call = stub.future(self.stage_frames(attempt, batches), timeout=timeout_s)
        try:
            await _done(call)
            return staged(attempt, call.result())
        except grpc.RpcError as error:
            raise from_rpc_error(error) from error
        finally:
            call.cancel()

    async def commit(
        self, attempts: Sequence[str], *, timeout_s: float = COMMIT_TIMEOUT_S
    ) -> Committed:
        """Store what the attempts hold, in this order, all of it and once; durable on return.

        See `StagedCommit.commit`.
        """
        return await self._client.run(self.commit_call(attempts), timeout_s=timeout_s)

    async def abort(
        self, attempts: Sequence[str] | None = None, *, timeout_s: float | None = None
    ) -> int:
        """Remove staged attempts, all of them with None; return how many there were.

        Raises FailedPrecondition if the staged commit is decided.
        """
        return await self._client.run(self.abort_call(attempts), timeout_s=timeout_s)


async def _done(call: Any) -> None:
    """Wait until a call of gRPC's synchronous kind has ended."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def tell(_: object) -> None:
        with suppress(RuntimeError):  # nobody waits in a loop that is closed
            loop.call_soon_threadsafe(ended.set)

    call.add_done_callback(tell)
    await ended.wait()

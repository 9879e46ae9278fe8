"""Staged commits: record batches staged where nobody sees them, and stored once by one decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import grpc

from penstock import wire
from penstock._async.connection import AsyncConnection
from penstock.calls.staged_commits import Version, staged
from penstock.errors import from_rpc_error
from penstock.proxies import with_way
from penstock.values import Committed, Staged

STAGE_TIMEOUT_S: Final = 120.0
COMMIT_TIMEOUT_S: Final = 600.0


class AsyncStagedCommit(Version):
    """One version of one application: staged by any number of clients, committed once.

    Attempts are staged one by one, each under an id that no other try ever has; `commit` names
    those that count, in the order of their records. A version that is committed stays so: staging
    and committing it again store nothing. `AsyncClient.staged_commit` makes one; nothing is sent
    before the first call, and several clients may hold the same staged commit.
    """

    def __init__(
        self, client: AsyncConnection, app_id: str, version: int, *, one_off: bool = False
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

        ``batches`` are iterated in a thread of gRPC's. Each record has the property UNIQ_KEY of
        `unique_key`. Tried once: whatever it raises, stage again under another id. Raises
        StageExists, InvalidArgument, TopicNotFound, ResourceExhausted, FailedPrecondition,
        Unavailable, DeadlineExceeded.
        """
        requests = self.stage_frames(attempt, batches)
        try:
            answer = await self._client.channels.send_stream(
                wire.STAGE_RECORDS, requests, timeout_s
            )
        except grpc.RpcError as error:
            raise with_way(from_rpc_error(error), self._client.way_to("writer")) from error
        return staged(attempt, answer)

    async def commit(
        self, attempts: Sequence[str], *, timeout_s: float = COMMIT_TIMEOUT_S
    ) -> Committed:
        """Store what the attempts hold, in this order, all of it and once; durable on return.

        Repeated where the writer cannot be reached, which is safe, also from another process and
        after any failure. Raises StageNotFound, TopicNotFound, ResourceExhausted (a full disk: it
        may be decided already; commit again), DataLoss, FailedPrecondition.
        """
        return await self._client.run(self.commit_call(attempts, timeout_s))

    async def abort(
        self, attempts: Sequence[str] | None = None, *, timeout_s: float | None = None
    ) -> int:
        """Remove staged attempts, all of them with None; return how many there were.

        Raises FailedPrecondition if the staged commit is decided.
        """
        return await self._client.run(self.abort_call(attempts, timeout_s))

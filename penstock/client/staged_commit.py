"""Staged commits: record batches staged where nobody sees them, and stored once by one decision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import grpc

from penstock import wire
from penstock.calls.staged_commits import Version, staged
from penstock.client.connection import ConnectionCore
from penstock.errors import from_rpc_error
from penstock.forms import OfLoop, OfThreads, both
from penstock.proxies import with_way
from penstock.values import Committed, Staged

STAGE_TIMEOUT_S: Final = 120.0
COMMIT_TIMEOUT_S: Final = 600.0


class StagedCommitCore(Version):
    """One version of one application: staged by any number of clients, committed once.

    Attempts are staged one by one, each under an id that no other try ever has; `commit` names
    those that count, in the order of their records. A version that is committed stays so: staging
    and committing it again store nothing. `Client.staged_commit` makes one; nothing is sent
    before the first call, and several clients may hold the same staged commit.
    """

    def __init__(self, client: ConnectionCore, app_id: str, version: int, one_off: bool) -> None:
        super().__init__(app_id, version, one_off=one_off)
        self._client = client

    @both
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

    @both
    async def commit(
        self, attempts: Sequence[str], *, timeout_s: float = COMMIT_TIMEOUT_S
    ) -> Committed:
        """Store what the attempts hold, in this order, all of it and once; durable on return.

        Repeated where the writer cannot be reached, which is safe, also from another process and
        after any failure. Raises StageNotFound, TopicNotFound, ResourceExhausted (a full disk: it
        may be decided already; commit again), DataLoss, FailedPrecondition.
        """
        return await self._client._send(self.commit_call(attempts, timeout_s))

    @both
    async def abort(
        self, attempts: Sequence[str] | None = None, *, timeout_s: float | None = None
    ) -> int:
        """Remove staged attempts, all of them with None; return how many there were.

        Raises FailedPrecondition if the staged commit is decided.
        """
        return await self._client._send(self.abort_call(attempts, timeout_s))


class StagedCommit(StagedCommitCore, OfThreads):
    """A staged commit of a `Client`."""


class AsyncStagedCommit(StagedCommitCore, OfLoop):
    """A staged commit of an `AsyncClient`."""

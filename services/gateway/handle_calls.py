"""Calls about receipt handles, gathered: what comes while one is answered goes together in the next.

Handles of one group and topic are joined, as the reader takes them.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from penstock.v1 import leases_pb2
from services import logs
from services.gateway.messages.statuses import OK, CallRefused
from services.gateway.retries import answered_until
from services.gateway.v2 import definition_pb2 as v2
from services.loops import Gathering
from services.upstream import CalledService
from storage.format.receipt_handle import HANDLE_SIZE

LEASES: Final = "/penstock.v1.Leases/"
GATHERED_MAX: Final = 1_024
KEYS_MAX: Final = 100_000
_CALL_SECONDS: Final = 2.5  # a client waits for 3
_FAILED: Final = v2.Status(
    code=v2.INTERNAL_SERVER_ERROR, message="the call was not made, or its answer not understood"
)
_PROBLEMS: Final = {
    leases_pb2.EXPIRED: "the lease has ended, or the message was delivered again since",
    leases_pb2.ACKNOWLEDGED: "the message is acknowledged already",
    leases_pb2.FORGED: "the handle is not one of this group and topic",
}


class HandleCall(NamedTuple):
    """What is asked of handles: calls that are equal can go together."""

    method: str  # of penstock.v1.Leases
    group: str
    topic: str
    duration_ms: int | None = None


class HandleCalls:
    """Makes calls about handles; one at a time for each kind, group and topic."""

    def __init__(self, reader: CalledService) -> None:
        self._reader = reader
        self._gathering = Gathering(self._statuses, most=GATHERED_MAX)
        self._log = logs.get_logger()
        self._loop = asyncio.get_running_loop()

    async def status_of(self, call: HandleCall, handle: str) -> v2.Status:
        """Return what became of one handle. Raises CallRefused where too many calls wait."""
        data = handle.encode()
        if len(data) != HANDLE_SIZE:
            return _invalid("the handle is not one of ours")
        if self._gathering.key_count >= KEYS_MAX:
            raise CallRefused(v2.TOO_MANY_REQUESTS, "too many calls wait for the reader")
        try:
            return await self._gathering.outcome(data, call)
        except Exception as error:  # noqa: BLE001  whatever ended it, the client has to know
            self._log.error("call failed", method=call.method, exc_info=error)
            return _FAILED

    async def statuses_of(self, call: HandleCall, handles: list[str]) -> list[v2.Status]:
        """Return what became of each handle."""
        if len(handles) == 1:  # as all clients ask
            return [await self.status_of(call, handles[0])]
        return await asyncio.gather(*(self.status_of(call, handle) for handle in handles))

    async def _statuses(
        self, call: HandleCall, handles: list[bytes]
    ) -> list[v2.Status | Exception]:
        request = getattr(leases_pb2, f"{call.method}Request")(
            group=call.group, topic=call.topic, receipt_handles=b"".join(handles)
        )
        if call.duration_ms is not None:
            request.duration_ms = call.duration_ms
        until = self._loop.time() + _CALL_SECONDS
        try:
            data, is_repeated = await answered_until(
                until, lambda left: self._reader.call(LEASES + call.method, request, timeout_s=left)
            )
        except CallRefused as refused:
            return [refused.status] * len(handles)
        statuses: list[v2.Status | Exception] = [OK] * len(handles)
        answer = getattr(leases_pb2, f"{call.method}Response").FromString(data)
        for each in answer.refused:
            if is_repeated and each.problem == leases_pb2.ACKNOWLEDGED:
                continue  # by the call whose answer was lost
            problem = _PROBLEMS.get(each.problem, "the handle was refused")
            statuses[min(each.index, len(handles) - 1)] = _invalid(problem)
        return statuses


def _invalid(problem: str) -> v2.Status:
    return v2.Status(code=v2.INVALID_RECEIPT_HANDLE, message=problem)

"""Long polls go over channels of their own: more of them than a connection carries hold up nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from penstock.v1 import leases_pb2
from services import upstream
from services.upstream import ServiceAddress, WaitingCalls


async def test_a_channel_that_is_full_is_left_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[FakeUpstream] = []

    class FakeUpstream:
        def __init__(self, _endpoint: ServiceAddress) -> None:
            self.under_way = self.most = 0
            made.append(self)

        async def call(
            self, _path: str, _request: Any, *, timeout_s: float, unwanted: Any
        ) -> bytes:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await asyncio.sleep(timeout_s)
            self.under_way -= 1
            return b""

    monkeypatch.setattr(upstream, "Upstream", FakeUpstream)
    monkeypatch.setattr(upstream, "CALLS_A_CHANNEL", 3)
    calls = WaitingCalls(ServiceAddress("127.0.0.1:1"))
    request = leases_pb2.ReceiveRequest()
    for _ in range(2):
        await asyncio.gather(
            *(calls.call("/x", request, timeout_s=0.01, unwanted=print) for _ in range(8))
        )

    assert [each.most for each in made] == [3, 3, 2]


async def test_an_answer_that_comes_as_its_caller_goes_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class AnsweredCall:
        """Its answer is there when the task that awaits it is cancelled."""

        awaited = 0

        def done(self) -> bool:
            return True

        def cancelled(self) -> bool:
            return False

        def __await__(self) -> Generator[Any, None, bytes]:
            self.awaited += 1
            if self.awaited == 1:
                raise asyncio.CancelledError
            return b"leased"
            yield

    reader = upstream.Upstream(upstream.ServiceAddress("127.0.0.1:1"))
    monkeypatch.setattr(reader, "_unary", lambda _path: lambda *_, **__: AnsweredCall())
    unwanted: list[bytes] = []
    with pytest.raises(asyncio.CancelledError):
        await reader.call("/x", leases_pb2.ReceiveRequest(), unwanted=unwanted.append)
    await reader.close()

    assert unwanted == [b"leased"]

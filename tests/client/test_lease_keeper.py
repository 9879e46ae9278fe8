"""What a subscription's lease keeper does while outcomes come as fast as it sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock._async.lease_keeper import AsyncLeaseKeeper
from penstock.calls.call import Call
from penstock.consuming.options import SubscribeOptions
from penstock.retry import RetryPolicy
from penstock.v1 import leases_pb2
from storage.clock import SystemClock

HANDLE = b"h" * 40
LEASE_MS = 300


class Connection:
    """Answers at once; each acknowledgement is followed by another one, as of handlers that never pause."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.retry = RetryPolicy()
        self.channels = self
        self.calls: list[tuple[str, Any]] = []
        self.acknowledged: Callable[[], None] = lambda: None

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def run(self, call: Call[Any]) -> Any:
        await asyncio.sleep(0)
        method = call.method.path.rpartition("/")[2]
        self.calls.append((method, call.request))
        if method == "Acknowledge":
            self.acknowledged()
        return 1 if method in ("RenewLeases", "ReleaseLeases") else []

    def ids_of(self, method: str, kind: Any) -> list[list[str]]:
        """The client ids that were renewed or released, call by call."""
        requests = [request for name, request in self.calls if name == method]
        parsed = (kind.FromString(each) if isinstance(each, bytes) else each for each in requests)
        return [list(each.client_ids) for each in parsed]


@pytest.fixture(name="connection")
async def _connection() -> Connection:
    return Connection()


@pytest.fixture(name="keeper")
async def _keeper(connection: Connection) -> AsyncLeaseKeeper:
    options = SubscribeOptions(topic="orders", group="billing", lease_ms=LEASE_MS)
    keeper = AsyncLeaseKeeper(cast("Any", connection), options)

    def acknowledge() -> None:
        if not keeper.background.is_stopping:
            keeper.outcomes.acknowledge("another", HANDLE, 1)

    connection.acknowledged = acknowledge
    keeper.start()
    acknowledge()
    return keeper


async def test_leases_are_renewed(connection: Connection, keeper: AsyncLeaseKeeper) -> None:
    """A handler may take long beside others that are done at once."""
    await asyncio.sleep(4 * LEASE_MS / 1e3)
    renewed = connection.ids_of("RenewLeases", leases_pb2.RenewLeasesRequest)
    assert len(renewed) >= 4
    assert renewed[0] == [keeper.client_id]
    keeper.background.stop()
    await keeper.background.join()


async def test_what_did_not_arrive_is_released_once_all_that_came_is_settled_and_sent(
    connection: Connection, keeper: AsyncLeaseKeeper
) -> None:
    lost = keeper.client_id
    keeper.outcomes.received(lost, 1)
    keeper.answer_lost(lost)
    await asyncio.sleep(LEASE_MS / 1e3)
    assert connection.ids_of("ReleaseLeases", leases_pb2.ReleaseLeasesRequest) == []

    keeper.outcomes.give_back(lost, HANDLE, 1, None)
    await asyncio.sleep(LEASE_MS / 1e3)
    assert connection.ids_of("ReleaseLeases", leases_pb2.ReleaseLeasesRequest) == [[lost]]
    methods = [method for method, _ in connection.calls]
    assert methods.index("ChangeLeases") < methods.index("ReleaseLeases")
    keeper.background.stop()
    await keeper.background.join()

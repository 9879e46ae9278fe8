"""What becomes of leases while outcomes come as fast as they are sent, and of messages whatever a handler does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast
from unittest.mock import Mock

import pytest

from penstock.calls.call import Call
from penstock.client.connection import LoopForm
from penstock.client.lease_keeper import LeaseKeeper
from penstock.client.subscription import AsyncSubscription
from penstock.consuming.options import SubscribeOptions
from penstock.retry import RetryPolicy
from penstock.v1 import leases_pb2
from storage.clock import SystemClock

HANDLE = b"h" * 40
LEASE_MS = 300


class Connection:
    """Answers at once; each acknowledgement is followed by another one, as of handlers that never pause."""

    form = LoopForm
    _in_flight = _home = Mock()

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.retry = RetryPolicy()
        self.channels = self
        self.calls: list[tuple[str, Any]] = []
        self.acknowledged: Callable[[], None] = lambda: None

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _send(self, call: Call[Any]) -> Any:
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
async def _keeper(connection: Connection) -> LeaseKeeper:
    options = SubscribeOptions(topic="orders", group="billing", lease_ms=LEASE_MS)
    keeper = LeaseKeeper(cast("Any", connection), options)

    def acknowledge() -> None:
        if not keeper.background.is_stopping:
            keeper.outcomes.acknowledge("another", HANDLE, 1)

    connection.acknowledged = acknowledge
    keeper.start()
    acknowledge()
    return keeper


async def test_leases_are_renewed(connection: Connection, keeper: LeaseKeeper) -> None:
    """A handler may take long beside others that are done at once."""
    async with asyncio.timeout(30):
        while len(renewed := connection.ids_of("RenewLeases", leases_pb2.RenewLeasesRequest)) < 4:
            await asyncio.sleep(LEASE_MS / 1e3)
    assert renewed[0] == [keeper.client_id]
    keeper.background.stop()
    await keeper.background.join()


async def test_what_did_not_arrive_is_released_once_all_that_came_is_settled_and_sent(
    connection: Connection, keeper: LeaseKeeper
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


class Message:
    """One that says how it was settled."""

    topic, message_id, attempt = "orders", "1", 1

    def __init__(self) -> None:
        self.settled: list[object] = []

    def ack(self) -> None:
        self.settled.append("done")

    def nack(self, delay_ms: int | None = None) -> None:
        self.settled.append(delay_ms)


@pytest.mark.parametrize(
    ("error", "settled"),
    [
        (None, "done"),
        (ValueError(), None),
        (asyncio.CancelledError(), 1_000),
        (SystemExit(), 1_000),
    ],
)
async def test_a_message_is_settled_whatever_its_handler_ends_with(
    connection: Connection, error: BaseException | None, settled: object
) -> None:
    """Or its lease would be renewed for hours: the subscription goes on."""
    options = SubscribeOptions(topic="orders", group="billing")
    subscription = AsyncSubscription(cast("Any", connection), options)
    message = Message()

    async def handle(_message: object) -> None:
        if error is not None:
            raise error

    with suppress(asyncio.CancelledError, SystemExit):
        await subscription._handle(handle, cast("Any", message))
    assert message.settled == [settled]

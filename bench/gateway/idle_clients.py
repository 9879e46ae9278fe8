"""What clients cost that wait for messages: 2,000 push consumers, each on a connection of its own.

Each holds a Telemetry stream and a long poll of 20 s, and sends a heartbeat every 10 s.
The control is a server that answers the same calls with constants.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.duration_pb2 import Duration

from bench import drivers
from bench.figures import Figure, command
from bench.resident import cpu_seconds
from penstock.v1 import writer_pb2, writer_pb2_grpc
from services import loops
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from storage.files import open_files

CLIENTS: Final = 2_000
SECONDS: Final = 40.0
POLL_SECONDS: Final = 20
HEARTBEAT_SECONDS: Final = 10.0
TOPIC: Final = "bench"
WANTED_CORE: Final = 5.0  # percent
WANTED_MIB: Final = 300.0
_SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
_AT_ONCE: Final = 50  # clients that connect
_OPTIONS: Final = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
_SETTINGS: Final = service_pb2.TelemetryCommand(
    settings=v2.Settings(
        client_type=v2.PUSH_CONSUMER,
        subscription=v2.Subscription(
            group=v2.Resource(name="bench"),
            subscriptions=[v2.SubscriptionEntry(topic=v2.Resource(name=TOPIC))],
        ),
    )
).SerializeToString()
_HEARTBEAT: Final = service_pb2.HeartbeatRequest(
    client_type=v2.PUSH_CONSUMER, group=v2.Resource(name="bench")
).SerializeToString()
_RECEIVE: Final = service_pb2.ReceiveMessageRequest(
    group=v2.Resource(name="bench"),
    message_queue=v2.MessageQueue(topic=v2.Resource(name=TOPIC), id=-1),
    batch_size=32,
    auto_renew=True,
    long_polling_timeout=Duration(seconds=POLL_SECONDS),
    filter_expression=v2.FilterExpression(type=v2.TAG, expression="*"),
).SerializeToString()


class IdleClient:
    """A push consumer to whom nothing comes."""

    def __init__(self, address: str, number: int, calls: Counter[str]) -> None:
        self._channel: Any = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._metadata = (("x-mq-client-id", f"bench@{number}"), ("x-mq-language", "JAVA"))
        self._number = number
        self._calls = calls

    async def start(self) -> list[asyncio.Task[None]]:
        """Connect, send the settings, and go on in tasks."""
        telemetry = self._channel.stream_stream(f"{_SERVICE}Telemetry")(metadata=self._metadata)
        await telemetry.write(_SETTINGS)
        answer = service_pb2.TelemetryCommand.FromString(await telemetry.read())
        if answer.status.code != v2.OK:
            raise RuntimeError(f"settings were answered {answer.status}")
        self._telemetry = telemetry
        return [asyncio.create_task(self._poll()), asyncio.create_task(self._beat())]

    async def close(self) -> None:
        """Leave, without a word."""
        await self._channel.close(None)

    async def _beat(self) -> None:
        call = self._channel.unary_unary(f"{_SERVICE}Heartbeat")
        await asyncio.sleep(self._number * 0.618 % 1 * HEARTBEAT_SECONDS)  # clients are not in step
        while True:
            await call(_HEARTBEAT, metadata=self._metadata, timeout=10)
            self._calls["Heartbeat"] += 1
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _poll(self) -> None:
        receive = self._channel.unary_stream(f"{_SERVICE}ReceiveMessage")
        while True:
            answers = receive(_RECEIVE, metadata=self._metadata, timeout=POLL_SECONDS + 3)
            async for _ in answers:
                pass
            self._calls["ReceiveMessage"] += 1


async def idle(
    address: str, process_id: int, *, clients: int, seconds: float
) -> tuple[float, float]:
    """Return percent of a core and MiB of a server while clients wait."""
    calls: Counter[str] = Counter()
    tasks: list[asyncio.Task[None]] = []
    waiting: list[IdleClient] = []
    try:
        for begin in range(0, clients, _AT_ONCE):
            numbers = range(begin, min(begin + _AT_ONCE, clients))
            each = [IdleClient(address, number, calls) for number in numbers]
            waiting += each
            for started in await asyncio.gather(*(client.start() for client in each)):
                tasks += started
            await asyncio.sleep(POLL_SECONDS * _AT_ONCE / clients)  # nor are polls in step
        calls.clear()
        before, began = cpu_seconds([process_id]), time.perf_counter()
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        took = time.perf_counter() - began
        for task in done:
            task.result()
        share = (cpu_seconds([process_id]) - before) / took * 100
        mib = drivers.resident_mib(process_id)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in waiting:
            await client.close()
    rates = ", ".join(f"{name} {count / took:.0f}/s" for name, count in sorted(calls.items()))
    print(f"{address}: {share:.1f} % of a core; {rates}", flush=True)
    return share, mib


async def _create(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = drivers.stub(writer_pb2_grpc.WriterStub, channel)
        await stub.CreateTopic(writer_pb2.CreateTopicRequest(name=TOPIC, queue_count=4))


def run(*, clients: int = CLIENTS, seconds: float = SECONDS) -> list[Figure]:
    """Start the services and the control, and let clients wait at both."""
    open_files.raise_limit()
    with (
        drivers.process("bench.controls.push_server") as (empty, empty_id),
        drivers.scratch_store() as store,
        drivers.service("writer", store) as (writer, _),
        drivers.reader_with_gateway(store, writer) as (gateway, gateway_id),
    ):  # fmt: skip

        async def both() -> tuple[tuple[float, float], tuple[float, float]]:
            await _create(writer)
            wait = partial(idle, clients=clients, seconds=seconds)
            return await wait(empty, empty_id), await wait(gateway, gateway_id)

        (bound, bound_mib), (share, mib) = loops.run(both())
    title = f"{clients:,} idle push consumers at the gateway's port of the reader"
    return [
        Figure(
            name=f"{title}: processor", value=share, unit="% of a core", limit=bound,
            limit_name="a server that answers constants", ratio=share / bound,
            wanted=f"{WANTED_CORE:.0f} %", reached=share <= WANTED_CORE,
        ),
        Figure(
            name=f"{title}: resident memory", value=mib, unit="MiB", limit=bound_mib,
            limit_name="a server that answers constants", ratio=mib / bound_mib,
            wanted=f"{WANTED_MIB:.0f} MiB", reached=mib <= WANTED_MIB,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    command(run)

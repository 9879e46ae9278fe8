"""Single messages of RocketMQ's clients through the gateway: sent, pushed, acknowledged.

A raw client of gRPC, without what RocketMQ's own add: at a steady rate, until a long poll brings the
message and with the processor seconds of each service; and as fast as it goes, sends alone, then polls
that receive what was stored and acknowledge each message. The control is a server that hands messages on
and stores nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.duration_pb2 import Duration

from bench import drivers
from bench.figures import Figure, beside, command
from bench.resident import cpu_seconds, wait_until_warmed
from penstock.v1 import writer_pb2, writer_pb2_grpc
from services import loops
from services.config.settings import WriterSettings
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from storage.files.allocator import WARM_FILES

TOPIC: Final = "bench"
QUEUES: Final = 8
PER_SECOND: Final = 200
POLLS: Final = 8
IN_FLIGHT: Final = 64
SECONDS: Final = 5.0
ROUNDS: Final = 3
BODY_BYTES: Final = 1_024
BATCH: Final = 32
POLL_SECONDS: Final = 20
CPU_WANTED_MS: Final = 2.5  # half a core at that rate
P99_WANTED_MS: Final = 3.8  # half of what RocketMQ's proxy took on this machine's like
SENDS_WANTED: Final = 5_900
PUSHES_WANTED: Final = 4_470
_SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
_METADATA: Final = (("x-mq-client-id", "bench"), ("x-mq-language", "PYTHON"))
_OPTIONS: Final = [("grpc.use_local_subchannel_pool", 1)]
_WARM_SECONDS: Final = 1.0


class Pushes(NamedTuple):
    """What one side did in a round."""

    p50_ms: float
    p99_ms: float
    cpu_ms: Mapping[str, float]  # of each process, for a message at the steady rate
    sends: float  # a second
    pushes: float  # a second, received and acknowledged


class PolledClient:
    """Producer and push consumer over a connection each; used on the event loop."""

    def __init__(self, address: str, group: str) -> None:
        producer: Any = grpc.aio.insecure_channel(address, options=_OPTIONS)
        consumer: Any = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._channels = producer, consumer
        self._send = producer.unary_unary(f"{_SERVICE}SendMessage")
        self._receive = consumer.unary_stream(f"{_SERVICE}ReceiveMessage")
        self._acknowledge = consumer.unary_unary(f"{_SERVICE}AckMessage")
        self._named = {"group": v2.Resource(name=group), "topic": v2.Resource(name=TOPIC)}
        self._acknowledging: set[asyncio.Task[None]] = set()
        self._poll = service_pb2.ReceiveMessageRequest(
            group=self._named["group"],
            message_queue=v2.MessageQueue(topic=self._named["topic"], id=-1, permission=v2.READ),
            batch_size=BATCH,
            auto_renew=True,
            long_polling_timeout=Duration(seconds=POLL_SECONDS),
            filter_expression=v2.FilterExpression(type=v2.TAG, expression="*"),
        )
        self.taken_ms: list[float] = []
        self.acknowledged_count = 0

    async def send(self) -> None:
        """Send one message that says when. Raises RuntimeError if it was not stored."""
        sent_at = b"%d " % time.perf_counter_ns()
        message = v2.Message(topic=self._named["topic"], body=sent_at.ljust(BODY_BYTES, b"x"))
        properties = message.system_properties
        properties.message_id = f"01{secrets.token_hex(16).upper()}"[:34]
        properties.message_type = v2.NORMAL
        properties.born_timestamp.GetCurrentTime()
        properties.born_host = "bench"
        request = service_pb2.SendMessageRequest(messages=[message])
        answer = await self._send(request.SerializeToString(), metadata=_METADATA, timeout=5)
        status = service_pb2.SendMessageResponse.FromString(answer).status
        if status.code != v2.OK:
            raise RuntimeError(f"a send was answered {status}")

    async def poll_on(self) -> None:
        """Receive again and again, and acknowledge each message by itself."""
        while True:
            self._poll.attempt_id = secrets.token_hex(16)  # as push consumers do
            request = self._poll.SerializeToString()
            answers = self._receive(request, metadata=_METADATA, timeout=POLL_SECONDS + 5)
            async for data in answers:
                answer = service_pb2.ReceiveMessageResponse.FromString(data)
                if answer.HasField("message"):
                    self._take(answer.message)

    def _take(self, message: v2.Message) -> None:
        sent_at = int(message.body.partition(b" ")[0])
        self.taken_ms.append((time.perf_counter_ns() - sent_at) / 1e6)
        task = asyncio.create_task(self._end(message))
        self._acknowledging.add(task)
        task.add_done_callback(self._acknowledging.discard)

    async def _end(self, message: v2.Message) -> None:
        entry = service_pb2.AckMessageEntry(
            receipt_handle=message.system_properties.receipt_handle,
            message_id=message.system_properties.message_id,
        )
        request = service_pb2.AckMessageRequest(entries=[entry], **self._named)
        answer = await self._acknowledge(request.SerializeToString(), metadata=_METADATA, timeout=3)
        if service_pb2.AckMessageResponse.FromString(answer).status.code == v2.OK:
            self.acknowledged_count += 1

    async def close(self) -> None:
        """End all calls."""
        for channel in self._channels:
            await channel.close(None)


async def _steadily(
    client: PolledClient, processes: Mapping[str, int], *, per_second: int, seconds: float
) -> tuple[float, float, dict[str, float]]:
    """Send at a rate while polls wait; return p50 and p99 until they have it, and CPU ms a message."""
    polls = [asyncio.create_task(client.poll_on()) for _ in range(POLLS)]
    try:
        await _paced(client, per_second, _WARM_SECONDS)
        client.taken_ms.clear()
        before = {name: cpu_seconds([each]) for name, each in processes.items()}
        count = await _paced(client, per_second, seconds)
        async with asyncio.timeout(10):
            while len(client.taken_ms) < count:
                await asyncio.sleep(0.01)
        used = {
            name: (cpu_seconds([each]) - before[name]) / count * 1e3
            for name, each in processes.items()
        }
    finally:
        await _end_all(polls)
    parts = statistics.quantiles(client.taken_ms, n=100)
    return parts[49], parts[98], used


async def _paced(client: PolledClient, per_second: int, seconds: float) -> int:
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(count := round(per_second * seconds)):
            await asyncio.sleep(max(0.0, begin + number / per_second - time.perf_counter()))
            group.create_task(client.send())
    return count


async def _full_rate(client: PolledClient, seconds: float) -> tuple[int, float]:
    """Send as fast as it goes; return how many, and how many a second."""
    begin = time.perf_counter()
    count = 0

    async def send_on() -> None:
        nonlocal count
        while time.perf_counter() - begin < seconds:
            await client.send()
            count += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(send_on())
    return count, count / (time.perf_counter() - begin)


async def _drained(client: PolledClient, count: int) -> float:
    """Receive and acknowledge what was sent; return how many a second."""
    begin = time.perf_counter()
    polls = [asyncio.create_task(client.poll_on()) for _ in range(POLLS)]
    try:
        async with asyncio.timeout(120):
            while client.acknowledged_count < count:
                await asyncio.sleep(0.005)
    finally:
        await _end_all(polls)
    return count / (time.perf_counter() - begin)


async def _end_all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextmanager
def services() -> Iterator[tuple[str, dict[str, int]]]:
    """Run writer and reader on a new store with the topic; give the address of the gateway's port and process ids."""
    with ExitStack() as running:
        directory = running.enter_context(drivers.scratch_store())
        writer, writer_id = running.enter_context(drivers.service("writer", directory))
        gateway, reader_id = running.enter_context(drivers.reader_with_gateway(directory, writer))
        loops.run(_begin(writer, gateway))
        config = WriterSettings(store=directory).store_config()
        if config.warm_cache_bytes_max >= WARM_FILES * config.commit_log_file_size:
            wait_until_warmed(directory / "commitlog", config.commit_log_file_size)
        yield gateway, {"writer": writer_id, "reader": reader_id}


async def _begin(writer: str, gateway: str) -> None:
    """Create the topic, and send a message that has the log's second file made."""
    async with grpc.aio.insecure_channel(writer) as channel:
        stub = drivers.stub(writer_pb2_grpc.WriterStub, channel)
        await stub.CreateTopic(writer_pb2.CreateTopicRequest(name=TOPIC, queue_count=QUEUES))
    client = PolledClient(gateway, "begin")
    try:
        await client.send()
    finally:
        await client.close()


async def _measure(
    address: str, processes: Mapping[str, int], *, per_second: int, seconds: float
) -> Pushes:
    client = PolledClient(address, "steady")
    try:
        p50_ms, p99_ms, used = await _steadily(
            client, processes, per_second=per_second, seconds=seconds
        )
        while client.acknowledged_count < len(client.taken_ms):
            await asyncio.sleep(0.01)
        count, sends = await _full_rate(client, seconds)
    finally:
        await client.close()
    consumer = PolledClient(address, "fast")
    try:
        if "reader" in processes:  # what the steady rate left is for this group, too
            count += round(per_second * (_WARM_SECONDS + seconds))
        pushes = await _drained(consumer, count)
    finally:
        await consumer.close()
    return Pushes(p50_ms, p99_ms, used, sends, pushes)


def _ours(*, per_second: int, seconds: float) -> Pushes:
    with services() as (gateway, processes):
        return loops.run(_measure(gateway, processes, per_second=per_second, seconds=seconds))


def _control(*, per_second: int, seconds: float) -> Pushes:
    with drivers.process("bench.controls.push_server") as (address, process_id):
        processes = {"control": process_id}
        return loops.run(_measure(address, processes, per_second=per_second, seconds=seconds))


def run(
    *, rounds: int = ROUNDS, seconds: float = SECONDS, per_second: int = PER_SECOND
) -> list[Figure]:
    """Measure both sides in turn."""
    pairs = [
        (
            _ours(per_second=per_second, seconds=seconds),
            _control(per_second=per_second, seconds=seconds),
        )
        for _ in range(rounds)
    ]
    parts = ", ".join(
        f"{each} {statistics.median(ours.cpu_ms[each] for ours, _ in pairs):.2f}"
        for each in ("writer", "reader")
    )
    steady = f"{per_second} single messages a second through the gateway, until a poll has them"
    return [
        _figure(
            f"{steady}: CPU of a message ({parts})", "ms", CPU_WANTED_MS,
            [(sum(ours.cpu_ms.values()), sum(limit.cpu_ms.values())) for ours, limit in pairs],
        ),
        _figure(
            f"{steady}: p50", "ms", P99_WANTED_MS,
            [(ours.p50_ms, limit.p50_ms) for ours, limit in pairs],
        ),
        _figure(
            f"{steady}: p99", "ms", P99_WANTED_MS,
            [(ours.p99_ms, limit.p99_ms) for ours, limit in pairs],
        ),
        _figure(
            f"sends through the gateway, {IN_FLIGHT} in flight", "msg/s", SENDS_WANTED,
            [(ours.sends, limit.sends) for ours, limit in pairs], most_is_best=True,
        ),
        _figure(
            f"{POLLS} polls through the gateway, each message acknowledged", "msg/s", PUSHES_WANTED,
            [(ours.pushes, limit.pushes) for ours, limit in pairs], most_is_best=True,
        ),
    ]  # fmt: skip


def _figure(
    name: str, unit: str, wanted: float, pairs: list[tuple[float, float]], *, most_is_best: bool = False,
) -> Figure:  # fmt: skip
    return beside(
        name,
        unit,
        pairs,
        limit_name="hands on, stores nothing",
        wanted=f"{wanted:g} {unit}",
        is_reached=lambda value, _: value >= wanted if most_is_best else value <= wanted,
    )


if __name__ == "__main__":
    command(run)

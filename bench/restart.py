"""Starting again after kill -9 under load: ``python -m bench.restart [--gib 4] [--rounds 3]``.

``penstock serve`` takes record batches until its log is long enough, and it and its services are killed
while more come. Then it is started again: the clock runs from the start of the command to the first
acknowledgement. The same for the writer service alone, and for a writer with thousands of queues whose files
were not synced since their last messages.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import grpc

from bench import drivers, produce
from bench.figures import Figure, command
from bench.resident import descendants
from penstock.v1 import common_pb2, writer_pb2, writer_pb2_grpc
from services import loops
from storage.config import StoreConfig
from storage.errors import TopicExists
from storage.format.properties import encode_properties
from storage.format.record import encode_for_batch
from storage.writer import StoreWriter

SECONDS_WANTED: Final = 2.0
SECONDS_WANTED_OF_QUEUES: Final = 5.0
IN_FLIGHT: Final = 32
RETRY_SECONDS: Final = 0.02
MORE_BYTES: Final = 256 << 20  # between two kills
DEADLINE_SECONDS: Final = 60
QUEUES: Final = 10_000
QUEUES_OF_A_BATCH: Final = 1_000
WIDE: Final = "wide"
NO_SYNC_MS: Final = 3_600_000

Starting = AbstractContextManager[tuple[str, int]]


async def _feed(channel: Any) -> None:
    """Send batches until the server is gone, which ends in an AioRpcError."""
    frames = cycle(produce.batches())
    call = channel.stream_stream("/penstock.v1.Writer/ProduceStream")()
    room = asyncio.Semaphore(IN_FLIGHT)

    async def send() -> None:
        while True:
            await room.acquire()
            await call.write(next(frames))

    sending = asyncio.ensure_future(send())
    try:
        while isinstance(answer := await call.read(), bytes):
            for outcome in writer_pb2.ProduceStreamResponse.FromString(answer).outcomes:
                if outcome.HasField("failure"):  # the disk is behind: the bound on what it owes
                    await asyncio.sleep(RETRY_SECONDS)
                room.release()
    finally:
        sending.cancel()


async def _fill_and_kill(address: str, process_id: int, log_bytes: int) -> int:
    """Feed a writer until its log is so long, kill all its processes meanwhile, and return where it was."""
    async with grpc.aio.insecure_channel(address, drivers.CLIENT_OPTIONS) as channel:
        stub = drivers.stub(writer_pb2_grpc.WriterStub, channel)
        with suppress(grpc.aio.AioRpcError):  # it is there from the second time on
            await stub.CreateTopic(
                writer_pb2.CreateTopicRequest(name=produce.TOPIC, queue_count=produce.QUEUES)
            )
        feeding = asyncio.ensure_future(_feed(channel))
        appended_offset = 0
        while appended_offset < log_bytes and not feeding.done():
            await asyncio.sleep(0.05)
            status = await stub.GetWriterStatus(writer_pb2.GetWriterStatusRequest())
            appended_offset = status.appended_offset
        if feeding.done():
            await feeding
        # The supervisor goes first, or it would start those again that are killed before it.
        process_ids = [process_id, *descendants(process_id)]
        for each in process_ids:
            os.kill(each, signal.SIGKILL)
        with suppress(grpc.aio.AioRpcError):
            await asyncio.wait_for(feeding, DEADLINE_SECONDS)
    await asyncio.to_thread(_wait_until_gone, process_ids)
    return appended_offset


def _wait_until_gone(process_ids: Sequence[int]) -> None:
    until = time.monotonic() + DEADLINE_SECONDS
    while any(_is_running(each) for each in process_ids):
        if time.monotonic() > until:
            raise RuntimeError(f"a killed process is there after {DEADLINE_SECONDS} s")
        time.sleep(0.01)


def _is_running(process_id: int) -> bool:
    try:
        text = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"  # a zombie has let go of files and locks


async def _first_ack(address: str, topic: str = produce.TOPIC) -> None:
    async with grpc.aio.insecure_channel(address, drivers.CLIENT_OPTIONS) as channel:
        stub = drivers.stub(writer_pb2_grpc.WriterStub, channel)
        message = common_pb2.Message(topic=topic, body=b"first", queue_id=0)
        request = writer_pb2.ProduceRequest(messages=[message])
        await stub.Produce(request, wait_for_ready=True, timeout=DEADLINE_SECONDS)


def _writer(store: Path) -> Starting:
    return drivers.service("writer", store)


def _serve(store: Path) -> Starting:
    listen = [f"--{name}-listen=127.0.0.1:0" for name in ("writer", "reader", "indexer", "metrics")]
    listen.append("--gateway-listen=none")
    penstock = str(Path(sys.executable).with_name("penstock"))
    return drivers.command(
        [penstock, "serve", f"--store={store}", *listen], says="writer serves on"
    )


def _fill(running: Starting, log_bytes: int) -> int:
    """Start, fill and kill; return where the log was."""
    with running as (address, process_id):
        return loops.run(_fill_and_kill(address, process_id, log_bytes))


def _restart(running: Starting, log_bytes: int) -> tuple[float, int]:
    """Return the seconds from start to first acknowledgement; all is killed under load then."""
    begin = time.perf_counter()
    with running as (address, process_id):
        loops.run(_first_ack(address))
        seconds = time.perf_counter() - begin
        return seconds, loops.run(_fill_and_kill(address, process_id, log_bytes))


def fill_queues(store: Path, queues: int) -> None:
    """Put a message into each of very many queues, and die."""
    properties = encode_properties({})
    writer = StoreWriter.open(store, StoreConfig(queue_flush_interval_ms=NO_SYNC_MS))
    with suppress(TopicExists):
        writer.create_topic(WIDE, queues)
    for begin in range(0, queues, QUEUES_OF_A_BATCH):
        ids = range(begin, min(begin + QUEUES_OF_A_BATCH, queues))
        writer.append_batch(
            b"".join(
                encode_for_batch(WIDE, each, bytes(100), properties, 0, 0, 1_000, "10.0.0.1:5")
                for each in ids
            )
        )
    writer.wait_dispatched(writer.appended_offset, DEADLINE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _restart_with_queues(store: Path, queues: int) -> float:
    """Return the seconds from the start of a writer whose queues are dirty to its first acknowledgement."""
    if _in_a_process(f"fill_queues(Path({str(store)!r}), {queues})").returncode != -signal.SIGKILL:
        raise RuntimeError("the queues were not filled")
    begin = time.perf_counter()
    with drivers.service("writer", store, f"--queue-flush-interval-ms={NO_SYNC_MS}") as (
        address,
        _,
    ):
        loops.run(_first_ack(address, WIDE))
        return time.perf_counter() - begin


def run_with_queues(*, queues: int, rounds: int, directory: Path) -> Figure:
    """Measure starts of a writer with so many queues."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=directory) as temporary:
        store = Path(temporary) / "store"
        seconds = [_restart_with_queues(store, queues) for _ in range(rounds)]
    return _figure(
        f"writer start after kill -9, {queues:,} dirty queues, to first ack", seconds,
        wanted=SECONDS_WANTED_OF_QUEUES,
    )  # fmt: skip


def _in_a_process(call: str) -> subprocess.CompletedProcess[str]:
    """Run a function of this module in a process that has only imported it."""
    program = f"from bench.restart import *; {call}"
    return subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)  # noqa: PLW1510


def run(
    *, gib: float = 4.0, rounds: int = 3, queues: int = QUEUES, directory: Path = Path()
) -> list[Figure]:
    """Time starts after kill -9, of all services and the writer in turn; ``gib`` 0: of many queues alone."""
    serves, starts = [], []
    of_queues = run_with_queues(queues=queues, rounds=rounds, directory=directory)
    if not gib:
        return [of_queues]
    end = 0
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=directory) as temporary:
        store = Path(temporary) / "store"
        for _ in range(rounds):
            end = _fill(_serve(store), max(end + MORE_BYTES, int(gib * (1 << 30))))
            seconds, end = _restart(_serve(store), end + MORE_BYTES)
            serves.append(seconds)
            seconds, end = _restart(_writer(store), end + MORE_BYTES)
            starts.append(seconds)
    log = f"after kill -9, {gib:g} GiB of log"
    return [
        _figure(f"penstock serve {log}, to first ack", serves),
        _figure(f"writer start {log}, to first ack", starts),
        of_queues,
    ]


def _figure(name: str, seconds: list[float], wanted: float = SECONDS_WANTED) -> Figure:
    value = statistics.median(seconds)
    return Figure(
        name=name,
        value=value,
        unit="s",
        wanted=f"{wanted:g} s",
        reached=value <= wanted,
        rounds=[(each, None) for each in seconds],
    )


if __name__ == "__main__":
    command(run)

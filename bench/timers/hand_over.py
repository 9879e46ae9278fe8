"""A broker's directory is taken over: ``python -m bench.timers.hand_over [--gib 4] [--pending 100000]``.

The log is long, and messages are pending, half of them delayed, half of them halves of
transactions. What is ours alone is removed, as if a broker had written the directory, so the start
reads the whole log. The clock runs from the start of ``penstock serve`` to the first message that
its reader serves, which waits for no recovery: a broker's directory is read as it is; and to the
first that its writer acknowledges, after all of it.
"""

from __future__ import annotations

import argparse
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from bench import produce
from bench.figures import Figure, show
from bench.timers import pending as timers
from penstock import Client, PenstockError
from penstock.v1 import writer_pb2
from services.rpc.ports import keep_port
from storage.clock import SystemClock
from storage.errors import StoreBusy
from storage.writer import StoreWriter

SECONDS_WANTED: Final = 5.0
PATIENCE_S: Final = 120.0
OURS: Final = (
    "checkpoint", "timers", "config/penstock.json", "journal",
)  # fmt: skip


def make_directory(store: Path, log_bytes: int, pending: int) -> None:
    """Write a store with a log of so many bytes and so many pending messages, and take away what a broker has not."""
    now_ms = SystemClock().now_ms()
    batches = [
        writer_pb2.ProduceBatchRequest.FromString(each).records for each in produce.batches()
    ]
    with StoreWriter.open(store) as writer:
        writer.create_topic(produce.TOPIC, produce.QUEUES)
        writer.create_topic("later", 4)
        number = 0
        while writer.appended_offset < log_bytes:
            try:
                writer.append_batch(batches[number % len(batches)])
            except StoreBusy as busy:
                time.sleep(busy.retry_delay_ms / 1000)
            number += 1
        timers.append_all(writer, pending // 2, now_ms, delayed=True)
        for halves in timers.batches(pending - pending // 2, now_ms, delayed=False):
            writer.transactions.prepare(halves)
    for name in OURS:
        path = store / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def first_s(store: Path) -> tuple[float, float]:
    """Return the seconds from the start of all services to the first message read, and to the first acknowledged."""
    with ExitStack() as parts:
        listens = {}
        for name in ("writer", "reader", "indexer"):
            listens[name], port = keep_port("127.0.0.1:0")
            parts.enter_context(port)
        penstock = str(Path(sys.executable).with_name("penstock"))
        command = [
            penstock, "serve", f"--store={store}", "--gateway-listen=none",
            *(f"--{name}-listen={listen}" for name, listen in listens.items()),
        ]  # fmt: skip
        began = time.perf_counter()
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        parts.callback(running.wait, PATIENCE_S)
        parts.callback(running.terminate)
        threads = parts.enter_context(ThreadPoolExecutor(2))
        read = threads.submit(_until, began, listens["reader"], _reads)
        acknowledged = threads.submit(_until, began, listens["writer"], _acknowledges)
        return read.result(), acknowledged.result()


def _until(began: float, address: str, done: Callable[[str], bool]) -> float:
    """Return the seconds from ``began`` until a service is there and it is done."""
    host, _, port = address.rpartition(":")
    while time.perf_counter() - began < PATIENCE_S:
        with suppress(PenstockError, OSError):
            socket.create_connection((host, int(port)), 1).close()
            if done(address):
                return time.perf_counter() - began
        time.sleep(0.01)
    raise RuntimeError(f"{address} did not serve in {PATIENCE_S:g} s")


def _reads(address: str) -> bool:
    with Client(reader=address) as client:
        return bool(client.pull(produce.TOPIC, 0, 0, max_messages=1).records)


def _acknowledges(address: str) -> bool:
    with Client(writer=address) as client:
        return client.produce(produce.TOPIC, b"first").queue_offset >= 0


def run(*, gib: float, pending: int, rounds: int, directory: Path | None = None) -> list[Figure]:
    """Measure so many starts, each on a directory that was made anew."""
    reads, acknowledgements = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=directory) as temporary:
            store = Path(temporary) / "store"
            make_directory(store, int(gib * (1 << 30)), pending)
            read_s, acknowledged_s = first_s(store)
            reads.append(read_s)
            acknowledgements.append(acknowledged_s)
            with StoreWriter.open(store) as writer:
                timers.wait_pending(writer, pending // 2)
                found = writer.transactions.status().pending_count
            if found != pending - pending // 2:
                raise RuntimeError(f"{found} halves are pending")
    name = f"hand-over of a broker's {gib:g} GiB with {pending:,} pending"
    return [
        _figure(f"{name}, to first message", reads),
        _figure(f"{name}, to first ack", acknowledgements),
    ]


def _figure(name: str, seconds: list[float]) -> Figure:
    value = statistics.median(seconds)
    return Figure(
        name=name, value=value, unit="s", wanted=f"{SECONDS_WANTED:g} s",
        reached=value <= SECONDS_WANTED, rounds=[(each, None) for each in seconds],
    )  # fmt: skip


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.timers.hand_over")
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--store", type=Path, help="where the files go meanwhile")
    arguments = parser.parse_args()
    show(
        run(
            gib=arguments.gib, pending=arguments.pending, rounds=arguments.rounds,
            directory=arguments.store,
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()

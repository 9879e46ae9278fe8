"""What one large call costs everybody else: ``python -m bench.latency.stalls``.

A writer and a reader serve a topic of very many queues. While a caller makes one large call, such as the
first batch to all of the queues, a process of its own makes small calls one after the other: the longest
of them is how long an event loop, or the lock under which records are appended, was held. The same small
calls beside nothing are the control.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc

from bench import drivers
from bench.figures import Figure, command
from penstock.v1 import common_pb2, reader_pb2, staged_commits_pb2, writer_pb2
from storage.format.properties import encode_properties
from storage.format.record import encode_for_batch

QUEUES: Final = 65_536
STALL_WANTED_MS: Final = 50.0
CALL_S: Final = 100.0  # then a call has failed
EVERY_S: Final = 0.002  # between two small calls
HONEST: Final = "honest"
WIDE: Final = ("wide-1", "wide-2")
WRITER: Final = "/penstock.v1.Writer/"
READER: Final = "/penstock.v1.Reader/"
TINY_BYTES: Final = 15 << 20  # of a request that is made of empty elements
SMALL_CALLS: Final = {
    "writer": (
        WRITER + "Produce",
        writer_pb2.ProduceRequest(
            messages=[common_pb2.Message(topic=HONEST, body=b"x", queue_id=0)]
        ).SerializeToString(),
    ),
    "reader": (READER + "GetReaderStatus", b""),
}


class Large(NamedTuple):
    """One large call of a service; ``is_stream`` sends it as the one frame of a stream."""

    name: str
    service: str
    method: str
    request: bytes
    is_stream: bool = False


def batch(topic: str) -> bytes:
    """Return one record for each queue of a topic."""
    properties = encode_properties({})
    return b"".join(
        encode_for_batch(topic, queue_id, b"x", properties, 0, 0, 1_000, "10.0.0.1:5")
        for queue_id in range(QUEUES)
    )


def _tiny(message: Any, field: str) -> bytes:
    """Return a request whose repeated field has as many empty elements as fit."""
    number = message.DESCRIPTOR.fields_by_name[field].number
    return bytes([number << 3 | 2, 0]) * (TINY_BYTES // 2)


def large_calls() -> Iterator[Large]:
    """Give the calls in the order in which they are made."""
    frame = writer_pb2.ProduceBatchRequest
    yield Large("nothing", "writer", WRITER + "GetWriterStatus", b"")
    yield Large(
        "first batch to all queues", "writer", WRITER + "ProduceBatch",
        frame(records=batch(WIDE[0])).SerializeToString(),
    )  # fmt: skip
    yield Large(
        "the same again", "writer", WRITER + "ProduceBatch",
        frame(records=batch(WIDE[0])).SerializeToString(),
    )  # fmt: skip
    yield Large(
        "first batch to all queues, a stream", "writer", WRITER + "ProduceStream",
        frame(records=batch(WIDE[1])).SerializeToString(), is_stream=True,
    )  # fmt: skip
    yield Large(
        "DescribeTopic", "writer", WRITER + "DescribeTopic",
        writer_pb2.DescribeTopicRequest(name=WIDE[0]).SerializeToString(),
    )  # fmt: skip
    for method, message, field in (
        ("Produce", writer_pb2.ProduceRequest, "messages"),
        ("CreateTopics", writer_pb2.CreateTopicsRequest, "topics"),
        ("CommitStaged", staged_commits_pb2.CommitStagedRequest, "attempts"),
        ("AbortStaged", staged_commits_pb2.AbortStagedRequest, "attempts"),
    ):
        yield Large(
            f"{method} of {TINY_BYTES // 2} {field}",
            "writer",
            WRITER + method,
            _tiny(message, field),
        )
    yield Large("nothing", "reader", READER + "GetReaderStatus", b"")
    for name in ("ListQueues, first", "ListQueues"):
        yield Large(
            name, "reader", READER + "ListQueues",
            reader_pb2.ListQueuesRequest(topics=[WIDE[0]]).SerializeToString(),
        )  # fmt: skip
    yield Large(
        f"ListQueues of {TINY_BYTES // 2} topics", "reader", READER + "ListQueues",
        _tiny(reader_pb2.ListQueuesRequest, "topics"),
    )  # fmt: skip


@contextmanager
def probe(address: str, service: str) -> Iterator[Callable[[], float]]:
    """Make small calls in a process of its own; give what returns the longest one's milliseconds."""
    small = [sys.executable, "-m", "bench.latency.stalls", "--probe", service, address]
    with subprocess.Popen(
        small, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdout.readline()  # it has begun
        yield lambda: float(running.communicate("\n")[0])


def _make_small_calls(service: str, address: str) -> None:
    method, request = SMALL_CALLS[service]
    with grpc.insecure_channel(address) as channel:
        calls: Any = channel  # bytes in, bytes out
        call = calls.unary_unary(method)
        for _ in range(50):
            call(request)
        print("begun", flush=True)
        is_over = subprocess.Popen(["head", "-n1"], stdin=sys.stdin, stdout=subprocess.DEVNULL)
        longest_s = 0.0
        while is_over.poll() is None:
            began = time.perf_counter()
            call(request, timeout=CALL_S)
            longest_s = max(longest_s, time.perf_counter() - began)
            time.sleep(EVERY_S)
        print(longest_s * 1e3)


def measure(large: Large, address: str) -> Figure:
    """Make a large call beside small ones; the figure is the longest of these."""
    with grpc.insecure_channel(address, drivers.CLIENT_OPTIONS) as channel:
        call: Any = channel.stream_stream if large.is_stream else channel.unary_unary
        grpc.channel_ready_future(channel).result(30)
        with probe(address, large.service) as longest_ms:
            time.sleep(0.2)
            status = "OK"
            began = time.perf_counter()
            try:
                if large.is_stream:
                    list(call(large.method)(iter([large.request]), timeout=CALL_S))
                else:
                    call(large.method)(large.request, timeout=CALL_S)
            except grpc.RpcError as error:
                status = error.code().name
            large_ms = (time.perf_counter() - began) * 1e3
            time.sleep(0.2)
            longest = longest_ms()
    return Figure(
        name=f"longest small call beside {large.service}: {large.name}, {large_ms:.0f} ms, {status}",
        value=longest, unit="ms", wanted=f"{STALL_WANTED_MS:g} ms",
        reached=longest <= STALL_WANTED_MS,
    )  # fmt: skip


def run() -> list[Figure]:
    """Make each large call in turn, beside small ones."""
    with drivers.scratch_store() as store, _services(store) as addresses:
        return [measure(large, addresses[large.service]) for large in large_calls()]


@contextmanager
def _services(store: Path) -> Iterator[dict[str, str]]:
    flags = ("--store", str(store), "--listen", "127.0.0.1:0")
    with drivers.process("services.writer", *flags) as (writer, _):
        with grpc.insecure_channel(writer) as channel:
            calls: Any = channel  # bytes in, bytes out
            create = calls.unary_unary(WRITER + "CreateTopic")
            for name, count in ((HONEST, 1), *((name, QUEUES) for name in WIDE)):
                topic = writer_pb2.CreateTopicRequest(name=name, queue_count=count)
                create(topic.SerializeToString())
        with drivers.process("services.reader", *flags) as (reader, _):
            yield {"writer": writer, "reader": reader}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--probe"]:
        _make_small_calls(*sys.argv[2:])
    else:
        command(run)

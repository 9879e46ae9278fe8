"""A plain message's short cut stores and answers what the long way does, and refuses nothing itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hand_clock import HandClock
from hypothesis import example, given, settings
from hypothesis import strategies as st
from steps_to_try import examples_to_try

from penstock.v1 import common_pb2, writer_pb2
from services import wire
from services.writer import plain_requests as kernels
from services.writer.plain_requests import PlainRequests
from services.writer.servicer import WriterServicer
from storage import errors
from storage.config import StoreConfig
from storage.message import ProducerSequence
from storage.writer import StoreWriter

NOW_MS = 1_700_000_000_123
PEERS = ("ipv4:10.0.0.7:51234", "ipv6:%5B2001:db8::7%5D:9", "unix:/tmp/s", "ipv4:9.8.7.6:5")


class LongWay:
    """A store without the short cut."""

    def __init__(self, writer: StoreWriter) -> None:
        self._writer = writer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def put_slices(self, message: Any, *, born_host: str) -> None:
        return None


class Two:
    """The same store twice: ``short`` takes the short cut where it can, ``long`` never does."""

    def __init__(self, directory: Path, *, property_crc: bool) -> None:
        config = StoreConfig(
            commit_log_file_size=64 << 20,
            warm_ahead_bytes=1 << 20,
            body_size_max=3000,
            append_property_crc=property_crc,
        )
        self.directory = directory
        self.loop = asyncio.new_event_loop()
        self.short, self.long = (
            StoreWriter.open(directory / name, config, clock=HandClock(NOW_MS))
            for name in ("short", "long")
        )
        for writer in (self.short, self.long):
            writer.create_topic("t", 3)
            writer.create_topic("%RETRY%group", 1)
            writer.create_topic("shut", 2)
            writer.update_topic("shut", perm=4)
            writer.create_topic("SELF_TEST_TOPIC", 1)
            made = writer._appender.encoder.unique_keys
            made._discriminator, made._counter = 0xFFFF_FFFF, itertools.count(65_530)

    def both(self, request: bytes, peer: str = PEERS[0]) -> tuple[Any, Any]:
        """What each answers or raises, and what each has appended by it."""
        return tuple(
            outcome(self.loop, store, writer, request, peer)
            for store, writer in ((self.short, self.short), (LongWay(self.long), self.long))
        )


def outcome(
    loop: asyncio.AbstractEventLoop, store: Any, writer: StoreWriter, request: bytes, peer: str
) -> Any:
    acks: Any = SimpleNamespace(has=lambda end: True)
    draining: Any = None
    servicer = WriterServicer(store, acks, draining, stream_batches_max=1)
    begin = writer.appended_offset
    context: Any = SimpleNamespace(peer=lambda: peer)
    try:
        said: Any = loop.run_until_complete(servicer.produce(request, context))
    except (errors.StoreError, DecodeError) as error:
        said = (type(error), str(error))
    tail = writer._engine.log.tail
    stored = b"" if tail is None else bytes(tail.array[begin : writer.appended_offset])
    return said, stored


@pytest.fixture(scope="module", params=[True, False], ids=["crc", "no-crc"])
def two(request: Any, tmp_path_factory: Any) -> Iterator[Two]:
    both = Two(tmp_path_factory.mktemp("two"), property_crc=request.param)
    both.both(serialized(message()))  # so that there is something to compare, whatever runs here
    yield both
    both.loop.run_until_complete(both.loop.shutdown_default_executor())
    both.loop.close()
    for writer in (both.short, both.long):
        assert writer.wait_dispatched(writer.appended_offset, 30)
        writer.close()
    compared = 0
    for kind in ("commitlog", "consumequeue"):
        root = both.directory / "short" / kind
        for path in root.rglob("*"):
            if path.is_file():
                twin = both.directory / "long" / kind / path.relative_to(root)
                assert path.read_bytes() == twin.read_bytes(), path
                compared += 1
    assert compared >= 2


def serialized(*messages: common_pb2.Message) -> bytes:
    return writer_pb2.ProduceRequest(messages=messages).SerializeToString()


def message(**changes: Any) -> common_pb2.Message:
    return common_pb2.Message(
        **{"topic": "t", "body": b"body", "keys": ["k1", "k2"], "tag": "new", **changes}
    )


def field(number: int, value: bytes | int) -> bytes:
    """One field as protobuf writes it, a length or number in its shortest form."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def numbered(sequence: int, **fields: int) -> bytes:
    """The field that says whose request it is."""
    producer = writer_pb2.ProducerSequence(producer_id=3, sequence=sequence, **fields)
    return field(2, producer.SerializeToString())


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


words = st.text("abcXYZ019-_.#~", min_size=1, max_size=12)
texts = words | st.text(max_size=8) | st.sampled_from(["", " ", "a b", "a|b", " a", "\x01", "\x7f"])
plain_messages = st.builds(
    common_pb2.Message,
    topic=st.just("t"),
    body=st.binary(max_size=300),
    keys=st.lists(words, max_size=4),
    tag=words | st.just(""),
    queue_id=st.none() | st.integers(0, 2),
    unique_key=words | st.just(""),
    flag=st.integers(0, 2**31 - 1),
    born_timestamp_ms=st.sampled_from([0, 1, 2**40, 2**63 - 1]),
)
messages = plain_messages | st.builds(
    common_pb2.Message,
    topic=st.sampled_from(["t"] * 5 + ["%RETRY%group", "shut", "none", "", "a/b", "ü"]),
    body=st.binary(max_size=300) | st.integers(2998, 3001).map(bytes),
    keys=st.lists(texts, max_size=3) | st.just(["k" * 9000] * 2),
    tag=texts | st.just("t" * 20_000),
    properties=st.just({}) | st.dictionaries(texts, texts, max_size=2),
    queue_id=st.none() | st.integers(-1, 4),
    unique_key=texts,
    flag=st.integers(-(2**31), 2**31 - 1),
    born_timestamp_ms=st.sampled_from([0, 1, -1, -(2**63), 2**63 - 1]),
    delay_level=st.sampled_from([0, 0, 0, 1, -1]),
    sys_flag=st.sampled_from([0, 0, 0, 1, 0x301, -1]),
)
raw_fields = st.one_of(
    st.tuples(st.integers(1, 17), st.integers(0, 2**64 - 1) | st.binary(max_size=5)),
    st.tuples(st.sampled_from([1, 3, 4, 7]), st.sampled_from([b"t", b"", b"\xff", b"x y"])),
    st.tuples(st.sampled_from([6, 8, 9]), st.sampled_from([0, 1, 2**31, 2**32, 2**63])),
).map(lambda each: field(*each))
loose_messages = st.tuples(plain_messages, st.lists(raw_fields, max_size=4), st.booleans()).map(
    lambda each: field(
        1,
        b"".join(each[1]) + each[0].SerializeToString()
        if each[2]
        else each[0].SerializeToString() + b"".join(each[1]),
    )
)
producers = st.builds(
    writer_pb2.ProducerSequence,
    producer_id=st.sampled_from([1, 2, 2**63 - 1, 2**63, 0]),
    sequence=st.integers(1, 2_000) | st.sampled_from([0, 2**32 - 1]),
    age_ms=st.sampled_from([0, 0, 1, 2**63 - 1, 2**63]),
).map(lambda each: field(2, each.SerializeToString()))
requests = st.one_of(
    st.tuples(plain_messages.map(serialized), producers).map(b"".join),
    st.tuples(messages.map(serialized), producers).map(b"".join),
    plain_messages.map(serialized),
    messages.map(serialized),
    st.lists(messages, max_size=2).map(lambda each: serialized(*each)),
    loose_messages,
)


@st.composite
def damaged_requests(draw: Any) -> bytes:
    data = bytearray(draw(requests))
    for _ in range(draw(st.integers(0, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@given(requests | damaged_requests() | st.binary(max_size=40), st.sampled_from(PEERS))
@example(serialized(message(unique_key="")), PEERS[0])
@example(field(1, field(1, b"t") + field(6, 0) + field(8, 0)), PEERS[0])
@example(serialized(message(body=bytes(3000))), PEERS[0])
@example(serialized(message(body=b"a")) + numbered(5), PEERS[0])
@example(serialized(message(body=b"a")) + numbered(5), PEERS[0])
@example(serialized(message(body=b"b")) + numbered(5), PEERS[0])
@example(serialized(message(body=b"a")) + numbered(5, age_ms=7), PEERS[0])
@settings(max_examples=examples_to_try(600, 3), deadline=None)
def test_both_ways_store_and_answer_the_same(two: Two, request: bytes, peer: str) -> None:
    short, long = two.both(request, peer)
    assert short == long


def test_a_topic_that_changes_is_looked_at_again(two: Two) -> None:
    plain = serialized(message(topic="changing", queue_id=1))
    for change in (
        lambda writer: None,
        lambda writer: writer.create_topic("changing", 2),
        lambda writer: writer.update_topic("changing", perm=4),
        lambda writer: writer.update_topic("changing", perm=6),
        lambda writer: writer.update_topic("changing", queue_count=1),
        lambda writer: writer.update_topic("changing", queue_count=4),
        lambda writer: writer.delete_topic("changing"),
        lambda writer: writer.create_topic("changing", 2),
    ):
        for writer in (two.short, two.long):
            change(writer)
        short, long = two.both(plain)
        assert short == long


PLAIN = [
    message(),
    message(keys=[], tag="", body=b""),
    message(queue_id=0, unique_key="U-1", flag=2**31 - 1, born_timestamp_ms=2**63 - 1),
    message(keys=["k" * 10_000], unique_key="u" * 6000),
    message(topic="%RETRY%group"),
]
NOT_PLAIN = [
    serialized(),
    serialized(message(), message()),
    *(
        serialized(message(**changes))
        for changes in (
            {"properties": {"a": "b"}}, {"delay_level": 1}, {"sys_flag": 1}, {"flag": -1}, {"queue_id": -1},
            {"queue_id": 3}, {"born_timestamp_ms": -1}, {"keys": [""]}, {"keys": ["a b"]},
            {"keys": ["\x02"]}, {"keys": ["ü"]}, {"keys": ["k" * 9000] * 2}, {"tag": "a|b"},
            {"tag": " a"}, {"unique_key": "u v"}, {"unique_key": "\x7f"}, {"body": bytes(3001)},
            {"topic": ""}, {"topic": "none"}, {"topic": "shut"},
        )
    ),
    field(1, message().SerializeToString() + field(1, b"t")),
    field(1, message().SerializeToString() + field(11, 1)),
    field(1, message().SerializeToString() + field(1, 1)),
    field(1, message().SerializeToString() + b"\x40\x81\x00"),
    serialized(message()) + b"\x00",
    serialized(message()) + numbered(2_000, age_ms=1),
    serialized(message()) + numbered(2_001)[:-1],
    serialized(message()) + numbered(2_002) + numbered(2_002),
    numbered(2_003) + serialized(message()),
    serialized(message()) + numbered(0),
    serialized(message())[:-1],
]  # fmt: skip


def put_plain(
    writer: StoreWriter, request: bytes, born_host: str = "1.2.3.4:5"
) -> tuple[bytes, int] | None:
    plain = PlainRequests(writer.message_slices(kernels.BUFFER_SIZE))
    end = writer.put_slices(plain.message, born_host=born_host) if plain.read(request) else None
    return None if end is None else (plain.answer(), end)


@pytest.mark.parametrize("sequence", [0, 1])
@pytest.mark.parametrize("plain", PLAIN)
def test_plain_messages_take_the_short_cut(
    two: Two, plain: common_pb2.Message, sequence: int
) -> None:
    sequence = sequence and 1_000 + PLAIN.index(plain)
    request = serialized(plain) + (numbered(sequence) if sequence else b"")
    stored = put_plain(two.short, request)
    producer = ProducerSequence(3, sequence) if sequence else None
    (long,) = two.long.put([one_of(plain)], born_host="1.2.3.4:5", producer=producer)
    assert stored is not None
    answer, end = stored
    assert end == two.short.appended_offset
    (result,) = writer_pb2.ProduceResponse.FromString(answer).results
    assert (result.message_id, result.unique_key) == (long.message_id, long.unique_key)
    assert (result.queue_id, result.queue_offset) == (long.queue_id, long.queue_offset)


def one_of(plain: common_pb2.Message) -> Any:
    return wire.message_of(plain)


@pytest.mark.parametrize("request_", NOT_PLAIN, ids=range(len(NOT_PLAIN)))
def test_everything_else_is_left_alone(two: Two, request_: bytes) -> None:
    begin = two.short.appended_offset
    assert put_plain(two.short, request_) is None
    assert put_plain(two.short, serialized(message()), "[2001:db8::7]:5") is None
    assert two.short.appended_offset == begin

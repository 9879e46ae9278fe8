"""Hypothesis strategies of records and of what can become of them, and records encoded again."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from plain_records import encode_record

from storage.format.record import Record, encode_for_batch

TOPICS = st.sampled_from(("a", "flights", "Orders-1", "%RETRY%g_1", "%RETRY%" + "x" * 125))
HOSTS = st.sampled_from(("127.0.0.1:10911", "10.0.0.5:1", "[::1]:10911", "[2001:db8::7]:65535"))
NAMES = st.sampled_from(
    ("KEYS", "TAGS", "UNIQ_KEY", "DELAY", "INNER_MULTI_DISPATCH", "WAIT", "k", "TAGSX", "")
)
VALUES = st.one_of(
    st.text(max_size=12), st.sampled_from(("", "0", "3", "a b  c", "x|y", "日本 😀"))
)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=5)
BODIES = st.binary(max_size=60)
INT64S = st.integers(-(1 << 63), (1 << 63) - 1)


@st.composite
def property_blocks(draw: st.DrawFn) -> bytes:
    """Property blocks as stores have them, and some that no store would write."""
    block = b"".join(
        name.encode() + b"\x01" + value.encode() + b"\x02" for name, value in draw(PAIRS)
    )
    match draw(st.integers(0, 4)):
        case 0:
            return block[:-1]
        case 1:
            return block + draw(st.binary(max_size=20))
        case 2:
            return draw(st.lists(st.sampled_from(b"\x01\x02TAGSK\xe3\x81\xff "))).__str__().encode()
        case _:
            return block


@st.composite
def stored_records(draw: st.DrawFn, commit_offset: int = 0) -> bytes:
    """A record as a store has it at ``commit_offset``, valid by every check."""
    return encode_record(
        topic=draw(TOPICS),
        queue_id=draw(st.integers(0, 3)),
        body=draw(BODIES),
        properties_block=draw(property_blocks()).rstrip(b"\0"),  # a torn tail, so not valid
        flag=draw(st.integers(-(1 << 31), (1 << 31) - 1)),
        sys_flag=draw(st.sampled_from((0, 0x1, 0x4, 0x8, 0xC, 0x301))),
        queue_offset=draw(INT64S),
        commit_offset=commit_offset,
        born_timestamp_ms=draw(INT64S),
        born_host=draw(HOSTS),
        store_timestamp_ms=draw(st.integers(0, 1 << 42)),
        store_host=draw(HOSTS),
        append_property_crc=draw(st.booleans()),
    )


@st.composite
def logs(draw: st.DrawFn, commit_offset: int = 0, records_max: int = 4) -> bytes:
    """Records back to back, the first at ``commit_offset``, maybe with something after them."""
    log = b""
    for _ in range(draw(st.integers(0, records_max))):
        log += draw(stored_records(commit_offset + len(log)))
    tails = st.one_of(
        st.just(b""), st.just(bytes(40)), st.binary(max_size=30),
        st.just(b"\x00\x00\x01\x00\xcb\xd4\x31\x94"),
    )  # fmt: skip
    return log + draw(tails)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of ``whole`` with a few of them changed, removed or inserted."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                data[at] = draw(st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)))
            case 2:
                del data[at : at + draw(st.integers(1, 9))]
            case _:
                data[at:at] = draw(st.binary(min_size=1, max_size=9))
    return bytes(data)


@st.composite
def client_batches(draw: st.DrawFn) -> bytes:
    """Record batches as clients send them; most of them good."""
    batch = b""
    for _ in range(draw(st.integers(1, 4))):
        pairs = draw(
            st.lists(st.tuples(st.sampled_from(("KEYS", "TAGS", "k")), VALUES), max_size=3)
        )
        block = b"".join(
            n.encode() + b"\x01" + v.encode() + b"\x02" for n, v in pairs if v and "\x02" not in v
        )
        if draw(st.integers(0, 9)) == 0:
            block = draw(property_blocks())
        if block and draw(st.booleans()):
            block = block[:-1]
        batch += encode_for_batch(
            draw(TOPICS), draw(st.integers(0, 3)), draw(BODIES), block, 0, 0, draw(INT64S),
            draw(HOSTS), draw(st.booleans()),
        )  # fmt: skip
    return batch


def as_array(data: bytes) -> npt.NDArray[np.uint8]:
    """A read-only array over exactly these bytes."""
    return np.frombuffer(data, np.uint8)


def encode_again(record: Record, *, append_property_crc: bool = False) -> bytes:
    """The bytes of a record that was decoded."""
    return encode_record(
        topic=record.topic,
        queue_id=record.queue_id,
        body=record.body,
        properties_block=record.properties_block,
        flag=record.flag,
        sys_flag=record.sys_flag,
        queue_offset=record.queue_offset,
        commit_offset=record.commit_offset,
        born_timestamp_ms=record.born_timestamp_ms,
        born_host=record.born_host,
        store_timestamp_ms=record.store_timestamp_ms,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_transaction_offset=record.prepared_transaction_offset,
        append_property_crc=append_property_crc,
    )

"""Hashes, hosts, ids, names and configuration files: text on one side, bytes on the other."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.format.config_json import decode_config, encode_config, integer_keyed
from storage.format.hosts import decode_host, encode_host
from storage.format.message_id import (
    OffsetMessageId,
    decode_message_id,
    encode_message_id,
)
from storage.format.names import (
    file_name,
    group_name_problem,
    index_file_name,
    parse_file_name,
    topic_name_problem,
)
from storage.format.properties import java_hash


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0), ("TagA", 2598919), ("TopicTest#order-1", -1829193424),
        ("polygenelubricants", -(2**31)), ("Tag😀", 82337373), ("Aa", 2112), ("BB", 2112),
    ],
)  # fmt: skip
def test_java_hash_vectors(text: str, hashed: int) -> None:
    """Hashes computed by Java come out, of characters outside the BMP, too."""
    assert java_hash(text) == hashed


@given(st.text())
def test_java_hash_is_the_definition(text: str) -> None:
    """The hash is the sum of UTF-16 units times powers of 31, in signed 32 bits."""
    units = memoryview(text.encode("utf-16-le")).cast("H").tolist()
    total = sum(unit * 31 ** (len(units) - 1 - at) for at, unit in enumerate(units))
    assert (java_hash(text) - total) % 2**32 == 0
    assert -(2**31) <= java_hash(text) < 2**31


HOSTS = [
    ("127.0.0.1:54321", "7f0000010000d431", "127.0.0.1:54321"),
    ("10.0.0.5:10911", "0a00000500002a9f", "10.0.0.5:10911"),
    ("[2001:db8::7]:1", "20010db800000000000000000000000700000001", "[2001:db8:0:0:0:0:0:7]:1"),
    ("[::]:0", "00" * 20, "[0:0:0:0:0:0:0:0]:0"),
    ("[fe80::1%eth0]:2", "fe800000000000000000000000000001" + "00000002", "[fe80:0:0:0:0:0:0:1]:2"),
]


@pytest.mark.parametrize(("text", "encoded", "canonical"), HOSTS)
def test_hosts_both_ways(text: str, encoded: str, canonical: str) -> None:
    """Hosts encode as address and 32-bit port, and decode to Java's text of them."""
    assert encode_host(text).hex() == encoded
    assert decode_host(bytes.fromhex(encoded)) == canonical


@pytest.mark.parametrize("text", ["", "1.2.3.4", "1.2.3:4", "::1:5", "[::1]", "h:1", "1.2.3.4:-1", "1.2.3.4:²", "1.2.3.4:9999999999"])  # fmt: skip
def test_no_host(text: str) -> None:
    """What is not an address and a port is refused."""
    with pytest.raises(ValueError):
        encode_host(text)


@pytest.mark.parametrize("size", [0, 7, 9, 16, 21])
def test_no_host_of_that_length(size: int) -> None:
    """Hosts have 8 or 20 bytes."""
    with pytest.raises(ValueError, match="8 or 20"):
        decode_host(bytes(size))


def test_message_id_vector() -> None:
    """The specification's id comes out and decodes; IPv6 ids have 56 digits."""
    assert encode_message_id("10.0.0.5:10911", 4096) == "0A00000500002A9F0000000000001000"
    assert decode_message_id("0a00000500002a9f0000000000001000") == OffsetMessageId(
        "10.0.0.5:10911", 4096
    )
    long_id = encode_message_id("[::1]:7", 5)
    assert len(long_id) == 56
    assert decode_message_id(long_id) == OffsetMessageId("[0:0:0:0:0:0:0:1]:7", 5)


@pytest.mark.parametrize(
    "text", ["", "0A", "G" * 32, "0" * 31, "0" * 34, "0" * 16 + "F" * 16, " " * 32, "0 " * 16]
)
def test_no_message_id(text: str) -> None:
    """Wrong length, wrong digits and negative offsets are refused."""
    with pytest.raises(ValueError):
        decode_message_id(text)


def test_file_names() -> None:
    """Files are named by 20 digits of offset or 17 of time in UTC; nothing else is a file name."""
    assert file_name(1073741824) == "00000000001073741824"
    assert index_file_name(1700000000123) == "20231114221320123"
    assert index_file_name(0) == "19700101000000000"
    assert parse_file_name(file_name(42)) == 42
    for other in ("", "x", "-1", "1.bak", "١", "+1", "1_0"):
        assert parse_file_name(other) is None


NAMES = {
    "orders": None,
    "a": None,
    "%|-_09AZaz": None,
    "t" * 127: None,
    "%RETRY%" + "t" * 248: None,
    "%DLQ%" + "t" * 250: None,
    "": "empty",
    "t" * 128: "128 characters",
    "%RETRY%" + "t" * 249: "256 characters",
    "a b": "' '",
    "a.b": "'.'",
    "a/b": "'/'",
    "..": "'.'",
    "täg": "'ä'",
    "a+b": r"'\+'",
    "a\n": r"'\\n'",
}


@pytest.mark.parametrize(("name", "problem"), NAMES.items(), ids=[repr(n[:20]) for n in NAMES])
def test_topic_names(name: str, problem: str | None) -> None:
    """Names that RocketMQ forbids are refused with the offending character or length."""
    found = topic_name_problem(name)
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(problem, found)


def test_group_names() -> None:
    """Groups follow the same rule with 120 characters."""
    assert group_name_problem("g" * 120) is None
    assert "121 characters" in (group_name_problem("g" * 121) or "")
    assert "'@'" in (group_name_problem("a@b") or "")


OFFSETS = b"""{
\t"dataVersion":{
\t\t"counter":0,
\t\t"stateVersion":0,
\t\t"timestamp":1795255125650
\t},
\t"groupTopicMap":{
\t\t"billing":["orders"]
\t},
\t"offsetTable":{
\t\t"orders@billing":{0:212,1:81
\t\t},
\t\t"x@billing":{}
\t}
}"""


def test_offsets_file_both_ways() -> None:
    """Integer keys are bare, on one line, and their map closes on the next."""
    document = decode_config(OFFSETS)
    assert document["offsetTable"]["orders@billing"] == {0: 212, 1: 81}
    assert encode_config(document) == OFFSETS


@pytest.mark.parametrize(
    "text",
    ['{"0":1,"12":5}', "{0:1,12:5}", "{'0':1,'12':5}", " { 0 : 1 ,\n\t12 :\r5 , } "],
)
def test_integer_keys_bare_or_quoted(text: str) -> None:
    """Bare and quoted integer keys load alike, as do single quotes, spaces and a last comma."""
    assert integer_keyed(decode_config(text)) == {0: 1, 12: 5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{a:true,'b c':null,%RETRY%x@g:{}}", {"a": True, "b c": None, "%RETRY%x@g": {}}),
        ("{'it\\'s \"x\"':'\\u0041\\n'}", {'it\'s "x"': "A\n"}),
        ('["ä😀",-1.5e3,[]]', ["ä😀", -1500.0, []]),
        ('{1a:"0"}', {"1a": "0"}),
    ],
)
def test_lenient_reading(text: str, value: object) -> None:
    """What fastjson tolerates is read."""
    assert decode_config(text) == value


@pytest.mark.parametrize(
    "data",
    [b"", b" ", b"{", b'{"a"', b'{"a":', b'{"a":1', b"{a b}", b"[1 2]", b"{}{}", b"\xff", b"{1.5:1}",
     b'{"a":nope}', b"[" * 500, OFFSETS[:100], b'"\\q"', b"{:1}", b"[,]"],
    ids=repr,
)  # fmt: skip
def test_unreadable(data: bytes) -> None:
    """What cannot be read is a ValueError and nothing else."""
    with pytest.raises(ValueError):
        decode_config(data)


@given(st.binary(max_size=60) | st.text("{}[]:,\"'\\01a \n", max_size=30))
def test_any_text_reads_or_raises_value_error(data: bytes | str) -> None:
    """No input fails in another way."""
    with contextlib.suppress(ValueError):
        decode_config(data)


values = st.recursive(
    st.booleans() | st.integers() | st.text(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(), inner, max_size=3),
        st.dictionaries(st.integers(), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), values, max_size=4))
def test_configuration_round_trip(document: dict[str, object]) -> None:
    """Any document comes back, integer keys as integers."""
    assert decode_config(encode_config(document)) == document

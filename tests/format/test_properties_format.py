"""Property blocks and the limits of a message's fields."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.errors import InvalidMessage
from storage.format.limits import (
    check_body,
    check_keys,
    check_properties,
    check_tag,
    check_topic,
    check_unique_key,
    checked_properties,
)
from storage.format.properties import (
    RESERVED,
    STORE_ONLY,
    decode_properties,
    encode_properties,
    split_keys,
)

BLOCKS = {
    b"": {},
    b"a\x01b\x02": {"a": "b"},
    b"a\x01b": {"a": "b"},
    b"a\x01b\x02c\x01d\x02": {"a": "b", "c": "d"},
    b"a\x01b\x02a\x01c\x02": {"a": "c"},
    b"a\x01\x02b\x01c\x02": {"b": "c"},
    b"\x01b\x02": {},
    b"\x02\x02a\x01b\x02\x02": {"a": "b"},
    b"no separator\x02a\x01b\x02": {"a": "b"},
    b"a\x01b\x01c\x02": {"a": "b\x01c"},
    "ключ\x01😀\x02".encode(): {"ключ": "😀"},
    b"a\x01\xff\x02": {"a": "\ufffd"},
}


@pytest.mark.parametrize(("block", "properties"), BLOCKS.items(), ids=repr)
def test_blocks_decode_as_a_broker_decodes(block: bytes, properties: dict[str, str]) -> None:
    """Segments without name, separator or value do not count; of equal names the last does."""
    assert decode_properties(block) == properties


names = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1)
texts = st.text(st.characters(exclude_characters="\x02", codec="utf-8"), min_size=1)


@given(st.dictionaries(names, texts))
def test_properties_round_trip(properties: dict[str, str]) -> None:
    """What is encoded decodes to itself, every pair terminated."""
    block = encode_properties(properties)
    assert decode_properties(block) == properties
    assert block.count(2) == len(properties)
    assert not block or block[-1] == 2


@given(st.binary(max_size=80))
def test_any_block_decodes(block: bytes) -> None:
    """No block raises, and none gives an empty name or value."""
    assert all(name and value for name, value in decode_properties(block).items())


@pytest.mark.parametrize("properties", [{"": "v"}, {"a\x01": "v"}, {"a\x02": "v"}, {"a": "\x02"}], ids=repr)  # fmt: skip
def test_text_that_would_end_a_pair_is_refused(properties: dict[str, str]) -> None:
    """A separator inside a name or a value would come back as something else."""
    with pytest.raises(ValueError):
        encode_properties(properties)


def test_empty_values_are_left_out() -> None:
    """A value that no reader would see is not written."""
    assert encode_properties({"a": "", "b": "c"}) == b"b\x01c\x02"


def test_keys_split_at_single_spaces() -> None:
    """Every non-empty token counts, repeated ones too; other white space is part of a key."""
    assert split_keys(" a  b a\tc ") == ("a", "b", "a\tc")


REFUSED = {
    "empty key": (lambda: check_keys(["a", ""]), "keys", "empty"),
    "key with a space": (lambda: check_keys(["a b"]), "keys", "space"),
    "key with a separator": (lambda: check_keys(["a\x01"]), "keys", r"U\+0001"),
    "key that is no text": (lambda: check_keys(["\ud800"]), "keys", "Unicode"),
    "keys too long": (lambda: check_keys(["k" * 16_000] * 2), "keys", "32001 bytes"),
    "tag with a bar": (lambda: check_tag("a|b"), "tag", r"'\|'"),
    "tag with outer white space": (lambda: check_tag(" a"), "tag", "white space"),
    "tag with a separator": (lambda: check_tag("a\x02b"), "tag", r"U\+0001"),
    "unique key with a space": (lambda: check_unique_key("a b"), "unique_key", "space"),
    "empty property name": (lambda: check_properties({"": "v"}), "properties", "empty"),
    "empty property value": (lambda: check_properties({"n": ""}), "properties", "'n'"),
    "property with a separator": (lambda: check_properties({"n": "\x02"}), "properties", "U"),
    "property that ends like the CRC": (lambda: check_properties({"my__CRC32#": "0123456789"}), "properties", "reserved"),
    "transient property": (lambda: check_properties({"__RMQ.TRANSIENT.x": "v"}), "properties", "reserved"),
    "body too large": (lambda: check_body(11, 10), "body", "11 bytes; the most is 10"),
    "forbidden topic": (lambda: check_topic("a b"), "topic", "' '"),
    "block too large": (
        lambda: checked_properties((), "", {"n": "v" * 32_766}, ""), "properties", "the most is 32747",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("refused", "field", "problem"), REFUSED.values(), ids=REFUSED)
def test_limits_name_the_field(refused: object, field: str, problem: str) -> None:
    """Each limit is refused under the name of its field, saying what is wrong."""
    with pytest.raises(InvalidMessage, match=problem) as raised:
        refused()  # type: ignore[operator]
    assert raised.value.field == field


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_reserved_names_are_refused(name: str) -> None:
    """No user property may take a name with a meaning."""
    with pytest.raises(InvalidMessage, match="reserved"):
        check_properties({name: "v"})


def test_names_the_store_acts_on_are_reserved() -> None:
    """What a batch must not carry, a message given as a value must not carry either."""
    assert STORE_ONLY < RESERVED
    assert {"KEYS", "TAGS", "UNIQ_KEY", "WAIT"} & STORE_ONLY == set()


def test_at_the_limits() -> None:
    """The largest of everything passes, and an empty message has WAIT alone."""
    check_keys(["k" * 15_999, "k" * 16_000])
    check_body(10, 10)
    check_tag("")
    assert decode_properties(checked_properties((), "", {}, "")) == {"WAIT": "true"}
    room = 32_767 - 20 - len(b"WAIT\x01true\x02n\x01\x02")
    assert len(checked_properties((), "", {"n": "v" * room}, "")) == 32_747
    with pytest.raises(InvalidMessage):
        checked_properties((), "", {"n": "v" * (room + 1)}, "")
    assert (
        len(checked_properties((), "", {"n": "v" * (room + 20)}, "", property_crc=False)) == 32_767
    )


def test_a_message_s_block_reads_back() -> None:
    """Keys, tag, unique key and user properties stand under their names."""
    block = checked_properties(
        keys=("a", "b"), tag="t", properties={"colour": "grün"}, unique_key="u"
    )
    assert decode_properties(block) == {
        "KEYS": "a b", "TAGS": "t", "UNIQ_KEY": "u", "WAIT": "true", "colour": "grün",
    }  # fmt: skip


_TEXTS = st.text(st.sampled_from("ab |\x01\x02 é\ud800"), max_size=3)


@given(st.lists(_TEXTS, max_size=3), _TEXTS, _TEXTS)
@example(["a b"], "", "c")
@example(["a", "b"], "t u", "k")
@example(["a"], "t\x02KEYS\x01b", "")
def test_the_short_way_to_a_block_accepts_and_writes_what_the_rules_do(
    keys: list[str], tag: str, unique_key: str
) -> None:
    def outcome(properties: dict[str, str]) -> str:
        try:
            block = checked_properties(
                keys=keys, tag=tag, unique_key=unique_key, properties=properties
            )
        except InvalidMessage as error:
            return str(error)
        return block.removesuffix(b"n\x01v\x02").decode()

    assert outcome({}) == outcome({"n": "v"})  # a property of its own goes by the rules

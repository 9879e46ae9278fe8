"""Record batches: every field encoded, every rule kept, and as fast as it must be."""

from __future__ import annotations

import pytest
from hand_clock import HandClock
from hypothesis import given
from hypothesis import strategies as st
from plain_records import check_record, set_property_crc

from penstock import BatchFull, InvalidArgument, RecordBatch
from storage.format.record import decode_record
from storage.format.stops import Stop

TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\x01\x02 |", exclude_categories=["Zs", "Cc"]),
    min_size=1,
    max_size=20,
)


@given(
    body=st.binary(max_size=200),
    keys=st.lists(TEXT, max_size=4),
    tag=st.one_of(st.just(""), TEXT.filter(lambda t: t == t.strip())),
    properties=st.dictionaries(TEXT.map(lambda t: "user-" + t), TEXT, max_size=3),
    queue_id=st.integers(0, 100),
    flag=st.integers(-100, 100),
)
def test_a_record_has_what_was_added(
    body: bytes,
    keys: list[str],
    tag: str,
    properties: dict[str, str],
    queue_id: int,
    flag: int,
) -> None:
    """What decodes is what was given, and what the writer fills in is zero."""
    batch = RecordBatch("orders", clock=HandClock(1_700_000_000_123))
    batch.add(body, keys=keys, tag=tag, properties=properties, queue_id=queue_id, flag=flag)

    record = decode_record(batch.records())

    assert (record.topic, record.queue_id, record.flag) == ("orders", queue_id, flag)
    assert record.body == body
    found = record.properties
    assert found.pop("__CRC32#") == "0" * 10
    assert found.pop("KEYS", "") == " ".join(keys)
    assert found.pop("TAGS", "") == tag
    assert found == properties
    assert (record.queue_offset, record.commit_offset, record.store_timestamp_ms) == (0, 0, 0)
    assert record.born_timestamp_ms == 1_700_000_000_123
    finished = bytearray(batch.records())
    set_property_crc(finished)
    assert check_record(finished) is Stop.END


def test_many_added_at_once_are_the_same_bytes_as_one_by_one() -> None:
    """With and without keys, tags and queues."""
    bodies = [b"%d" % n for n in range(10)]
    keys = [[f"k{n}"] if n % 2 else [] for n in range(10)]
    tags = ["t" if n % 3 else "" for n in range(10)]
    queues = [n % 4 for n in range(10)]
    one_by_one = RecordBatch("orders", clock=HandClock(1_700_000_000_123))
    for body, key, tag, queue in zip(bodies, keys, tags, queues, strict=True):
        one_by_one.add(body, keys=key, tag=tag, queue_id=queue)
    together = RecordBatch("orders", clock=HandClock(1_700_000_000_123))

    assert together.add_many(bodies, keys=keys, tags=tags, queue_ids=queues) == 10

    assert together.records() == one_by_one.records()
    assert (len(together), together.size) == (10, len(one_by_one.records()))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"keys": [""]}, "keys"),
        ({"keys": ["a", ""]}, "keys"),
        ({"keys": ["a b"]}, "keys"),
        ({"keys": ["a\x01"]}, "keys"),
        ({"keys": ["a\x02"]}, "keys"),
        ({"keys": ["x" * 32_001]}, "keys"),
        ({"keys": "text"}, "keys"),
        ({"keys": ["\ud800"]}, "keys"),
        ({"tag": "a|b"}, "tag"),
        ({"tag": " a"}, "tag"),
        ({"tag": "a\x02b"}, "tag"),
        ({"properties": {"KEYS": "x"}}, "properties"),
        ({"properties": {"a": "x\x02y"}}, "properties"),
        ({"properties": {"": "x"}}, "properties"),
        ({"properties": {"a": ""}}, "properties"),
        ({"properties": {"a": "x" * 32_768}}, "properties"),
        ({"unique_key": "a b"}, "unique_key"),
    ],
)
def test_a_message_that_breaks_a_rule_is_refused_naming_the_field(
    arguments: dict[str, object], field: str
) -> None:
    """And the batch is as it was."""
    batch = RecordBatch("orders")

    with pytest.raises(InvalidArgument) as caught:
        batch.add(b"x", **arguments)  # type: ignore[arg-type]

    assert caught.value.field == field
    assert len(batch) == 0


def test_a_full_batch_takes_no_more_and_can_be_filled_again() -> None:
    """``add`` raises, ``add_many`` returns how many it took."""
    batch = RecordBatch("orders", size_max=1000)
    taken = batch.add_many([b"x" * 100] * 20)
    assert 0 < taken < 20
    assert batch.size <= 1000

    with pytest.raises(BatchFull):
        batch.add(b"x" * 100)
    assert len(batch) == taken
    batch.clear()
    assert (len(batch), batch.size, batch.records()) == (0, 0, b"")
    batch.add(b"x")
    assert len(batch) == 1

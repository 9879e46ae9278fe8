"""Dead letters are copies with the fields that a broker gives them, and nothing of the rest changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_store import append, record, records_on_disk, small_config
from flips import flip

from storage import MessageStore
from storage.errors import InvalidMessage
from storage.format.message_id import encode_message_id
from storage.format.record import Record, decode_record
from storage.writer import StoreWriter


def stored(directory: Path, *records: bytes, **config: Any) -> list[Record]:
    """Store records and make dead letters of them all; return what the log holds then."""
    with StoreWriter.open(directory, small_config(**config)) as writer:
        writer.create_topic("t", 2)
        append(writer, b"".join(records))
        offsets = [each.commit_offset for each in records_on_disk(directory)]
        result = writer.append_dead_letters("billing", offsets, [2] * len(offsets))
        assert (result.record_count, result.uncopied) == (len(records), ())
        assert result.end_commit_offset == writer.appended_offset
        assert writer.describe_topic("%DLQ%billing")[0].queue_count == 1
    return records_on_disk(directory)


def test_a_copy_has_what_a_broker_gives_it(tmp_path: Path) -> None:
    properties = {"UNIQ_KEY": "AB12", "WAIT": "true", "DELAY": "0", "colour": "red"}
    first, _, copy, other = stored(
        tmp_path,
        record(queue_id=1, body=b"one", tag="A", keys="k1 k2", properties=properties),
        record(body=b"two"),
    )
    assert (copy.topic, copy.queue_id, copy.queue_offset) == ("%DLQ%billing", 0, 0)
    assert (other.topic, other.queue_id, other.queue_offset) == ("%DLQ%billing", 0, 1)
    assert (copy.body, other.body) == (b"one", b"two")
    assert copy.reconsume_times == 2
    assert (copy.flag, copy.born_timestamp_ms, copy.born_host) == (
        first.flag, first.born_timestamp_ms, first.born_host,
    )  # fmt: skip
    assert copy.store_host == first.store_host
    assert copy.store_timestamp_ms >= first.store_timestamp_ms
    expected = dict(first.properties) | {
        "DELAY": "0",
        "WAIT": "false",
        "RETRY_TOPIC": "t",
        "ORIGIN_MESSAGE_ID": encode_message_id(first.store_host, first.commit_offset),
    }
    assert {**copy.properties, "__CRC32#": ""} == {**expected, "__CRC32#": ""}
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.append_dead_letters("others", [copy.commit_offset], [2])
    again = records_on_disk(tmp_path)[-1]
    kept = ("RETRY_TOPIC", "ORIGIN_MESSAGE_ID")  # of a copy of a copy too
    assert [again.properties[name] for name in kept] == [expected[name] for name in kept]


def test_dead_letters_are_served_like_any_message(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, small_config()) as store:
        store.create_topic("t", 1)
        append(store.writer, record(body=b"lost", tag="A", keys="k"))
        for _ in range(2):  # the second time after a lost answer, say
            store.writer.append_dead_letters("g", [0], [0])
        assert store.writer.wait_dispatched(store.writer.appended_offset, 10)
        assert store.max_offset("%DLQ%g", 0) == 2
        pulled = store.reader.pull("%DLQ%g", 0, queue_offset=0, tag_expression="A")
        assert pulled.record_count == 2
        assert decode_record(b"".join(pulled.slices)).body == b"lost"


@pytest.mark.parametrize("store_host", ["[2001:db8::1]:10911", "10.1.2.3:10911"])
@pytest.mark.parametrize("group", ["g", "g" * 120])
def test_long_groups_and_both_kinds_of_hosts(tmp_path: Path, group: str, store_host: str) -> None:
    with StoreWriter.open(tmp_path, small_config(store_host=store_host)) as writer:
        writer.create_topic("t", 1)
        append(writer, record())
        writer.append_dead_letters(group, [0], [0])
    first, copy = records_on_disk(tmp_path)
    assert copy.topic == f"%DLQ%{group}"
    assert copy.properties["ORIGIN_MESSAGE_ID"] == encode_message_id(first.store_host, 0)


def test_what_cannot_be_copied_is_said_and_the_others_are(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        writer.create_topic("t", 1)
        append(writer, record(body=b"a") + record(body=b"bbbb") + record(body=b"c"))
        first, second, third = records_on_disk(tmp_path)
    [path] = (tmp_path / "commitlog").glob("0*0")
    flip(path, path.read_bytes().index(b"bbbb"))
    with StoreWriter.open(tmp_path, small_config()) as writer:
        asked = [second.commit_offset, third.commit_offset, first.commit_offset + 1, 1 << 40, -1]
        result = writer.append_dead_letters("g", asked, [0] * 5)
        assert result.record_count == 1
        assert [each.record_index for each in result.uncopied] == [0, 2, 3, 4]
        assert "CRC" in result.uncopied[0].reason
        for group, times in (("a/b", [0]), ("", [0]), ("g", [])):
            with pytest.raises(InvalidMessage):
                writer.append_dead_letters(group, [0], times)

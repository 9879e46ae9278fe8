"""Replays: marked copies of the right messages, and nothing more however often they are run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_store import records_on_disk
from new_stores import PIECE, assert_in_order, by_queue, messages_of
from service_process import WriterProcess

from pipeline.errors import PipelineError, WriteFailed
from pipeline.jobs.replay import replay
from storage import Message, MessageStore, StoreConfig
from storage.format.properties import decode_properties

TAGS = ("paid", "open", "")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 messages in 4 queues of a topic, some with keys, tags, properties; and another topic."""
    directory = tmp_path_factory.mktemp("replay") / "store"
    config = StoreConfig(commit_log_file_size=1 << 16, index_slot_count=50, index_entry_count=200)
    with MessageStore.open(directory, config) as opened:
        opened.create_topic("orders", 4)
        opened.create_topic("other", 1)
        for begin in range(0, 600, 50):
            opened.put_all(
                [
                    Message(
                        topic="orders", queue_id=number % 4, body=f"body {number}".encode(),
                        keys=(f"k{number % 9}", "all") if number % 2 else (),
                        tag=TAGS[number % 3], properties={"n": str(number)},
                        unique_key=f"{number:032X}" if number % 5 else "",
                    )
                    for number in range(begin, begin + 50)
                ]
            )  # fmt: skip
        opened.put(Message(topic="other", body=b"other"))
    return directory


def of_topic(writer: WriterProcess, topic: str) -> list[Any]:
    return [record for record in records_on_disk(writer.store) if record.topic == topic]


def originals(store: Path) -> list[dict[str, Any]]:
    return [line for line in messages_of(store) if line["topic"] == "orders"]


def message_id(line: dict[str, Any]) -> str:
    return line["properties"].get("UNIQ_KEY", line["offsetMsgId"])


def test_a_replay_into_a_live_store_adds_its_messages_once(
    spark: Any, store: Path, writer: WriterProcess
) -> None:
    """Marked with their originals' ids, in their queues, in order; the second run adds nothing."""
    first = replay(spark, store, "orders", endpoint=writer.address, to_topic="again")
    again = replay(spark, store, "orders", endpoint=writer.address, to_topic="again")
    found = of_topic(writer, "again")

    assert (first.messages, first.already) == (600, False)
    assert (again.messages, again.already) == (0, True)
    assert first.replay_id == again.replay_id
    for queue_id in range(4):
        wanted = [line for line in originals(store) if line["queueId"] == queue_id]
        mine = [record for record in found if record.queue_id == queue_id]
        marks = [decode_properties(record.properties_block)["REPLAY_OF"] for record in mine]
        assert marks == [message_id(line) for line in wanted]
        for record, line in zip(mine, wanted, strict=True):
            properties = decode_properties(record.properties_block)
            theirs = line["properties"]
            assert properties.get("KEYS") == theirs.get("KEYS")
            assert properties.get("TAGS") == theirs.get("TAGS")
            assert properties["n"] == theirs["n"]
            assert record.body == f"body {theirs['n']}".encode()


def test_other_arguments_are_another_replay(spark: Any, store: Path, writer: WriterProcess) -> None:
    """By tag, key and time; a topic with fewer queues takes queue ids by their remainder."""
    lines = originals(store)
    begin, end = lines[150]["storeTimestamp"], lines[450]["storeTimestamp"]
    given = {"endpoint": writer.address, "to_topic": "narrow"}
    reports = [
        replay(spark, store, "orders", tags="paid || open", key="k3", **given),
        replay(spark, store, "orders", begin_ms=begin, end_ms=end, **given),
        replay(spark, store, "orders", key=message_id(lines[7]), **given),
        replay(spark, store, ["orders", "other"], **given),
        replay(spark, store, "orders", key="k3", replay_id="by-hand", **given),
        replay(spark, store, "orders", key="k5", replay_id="by-hand", **given),
    ]
    k3 = [line for line in lines if "k3" in line["properties"].get("KEYS", "").split()]
    assert [report.messages for report in reports] == [
        sum("TAGS" in line["properties"] for line in k3),
        sum(begin <= line["storeTimestamp"] < end for line in lines),
        1, 601, len(k3), 0,
    ]  # fmt: skip
    assert len({report.replay_id for report in reports}) == 5
    found = of_topic(writer, "narrow")
    assert len(found) == sum(report.messages for report in reports)
    assert {record.queue_id for record in found} == {0}


def test_a_replay_into_a_new_store(spark: Any, tmp_path: Path, store: Path) -> None:
    """Chosen messages alone, all of them as they were but for topic, mark and place."""
    lines = originals(store)
    begin, end = lines[100]["storeTimestamp"], lines[500]["storeTimestamp"]
    report = replay(
        spark, store, "orders", target=tmp_path / "new", to_topic="a-much-longer-name-of-a-topic",
        begin_ms=begin, end_ms=end, tags="paid", piece_bytes=PIECE,
    )  # fmt: skip
    wanted = [
        line
        for line in lines
        if begin <= line["storeTimestamp"] < end and line["properties"].get("TAGS") == "paid"
    ]
    new = messages_of(tmp_path / "new")

    assert report.messages == len(new) == len(wanted) > 20
    for line, original in zip(new, wanted, strict=True):
        kept = dict(line["properties"])
        assert kept.pop("REPLAY_OF") == message_id(original)
        kept.pop("__CRC32#", None)
        theirs = {k: v for k, v in original["properties"].items() if k != "__CRC32#"}
        assert kept == theirs
        same = ("queueId", "bodySha256", "storeTimestamp", "bornTimestamp", "bornHost", "flag")
        assert [line[name] for name in same] == [original[name] for name in same]
    for (topic, _), group in by_queue(new).items():
        assert topic == "a-much-longer-name-of-a-topic"
        assert [line["queueOffset"] for line in group] == list(range(len(group)))
    assert_in_order(tmp_path / "new")
    with pytest.raises(PipelineError, match="exists"):
        replay(spark, store, "orders", target=tmp_path / "new")


def test_every_kind_of_record_can_be_replayed(spark: Any, tmp_path: Path) -> None:
    """IPv6 hosts, long topics, compressed bodies, keys in every script, with and without trailers."""
    from store_workload import LONG_TOPIC, SMALL, run_workload

    run_workload(tmp_path / "store", config=SMALL, rounds=30)
    lines = [line for line in messages_of(tmp_path / "store") if line["topic"] == LONG_TOPIC]
    replay(spark, tmp_path / "store", LONG_TOPIC, target=tmp_path / "short", to_topic="short")
    replay(spark, tmp_path / "short", "short", target=tmp_path / "long", to_topic=LONG_TOPIC)

    for name in ("short", "long"):
        new = messages_of(tmp_path / name)
        assert [line["bodySha256"] for line in new] == [line["bodySha256"] for line in lines]
        assert [line["properties"].get("KEYS") for line in new] == [
            line["properties"].get("KEYS") for line in lines
        ]
        assert_in_order(tmp_path / name)
    assert {line["magic"] for line in messages_of(tmp_path / "short")} == {"daa320a7"}
    assert {line["magic"] for line in messages_of(tmp_path / "long")} == {"daa320ab"}


def test_a_writer_that_is_not_there_and_a_topic_that_is_not(
    spark: Any, store: Path, writer: WriterProcess
) -> None:
    with pytest.raises(WriteFailed, match="'nope' does not exist"):
        replay(spark, store, "orders", endpoint=writer.address, to_topic="nope")

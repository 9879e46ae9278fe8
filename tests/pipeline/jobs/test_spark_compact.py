"""Compaction: what is left is the latest of each topic and key, found by plain Python from a dump."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from golden import golden_store
from new_stores import (
    PIECE,
    assert_in_order,
    by_queue,
    content,
    messages_of,
    offsets_of,
    set_offsets,
)

from pipeline.errors import PipelineError
from pipeline.jobs.compact.job import compact
from pipeline.jobs.new_store.new_queues import SourceQueue, refuse_moved_light_queues
from storage import Message, MessageStore, StoreConfig

Line = dict[str, Any]


def left_of(lines: list[Line], *, tombstones: bool = False, keyless: bool = True) -> list[Line]:
    """What a compaction must leave, in the order of the log."""
    latest = {
        (line["topic"], line["properties"]["KEYS"]): line
        for line in lines
        if "KEYS" in line["properties"]
    }
    winners = [line for line in latest.values() if tombstones or line["bodyLength"]]
    if keyless:
        winners += [line for line in lines if "KEYS" not in line["properties"]]
    return sorted(winners, key=lambda line: line["commitLogOffset"])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 messages of two topics over 60 keys, some bodies empty, over several small files."""
    directory = tmp_path_factory.mktemp("compact") / "store"
    config = StoreConfig(
        commit_log_file_size=1 << 16, consume_queue_file_size=2000, index_slot_count=50,
        index_entry_count=200,
    )  # fmt: skip
    with MessageStore.open(directory, config) as opened:
        opened.create_topic("state", 3)
        opened.create_topic("other", 1)
        for begin in range(0, 2000, 100):
            opened.put_all(
                [
                    Message(
                        topic="other" if number % 5 == 0 else "state",
                        queue_id=0 if number % 5 == 0 else number % 3,
                        body=b"" if number % 11 == 0 else f"value {number}".encode(),
                        keys=() if number % 13 == 0 else (f"k{number * 7919 % 60}",),
                        properties={"n": str(number)},
                    )
                    for number in range(begin, begin + 100)
                ]
            )
    return directory


@pytest.mark.parametrize(("tombstones", "keyless"), [(False, "keep"), (True, "drop")])
def test_the_latest_of_each_key_is_left(
    spark: Any, tmp_path: Path, store: Path, tombstones: bool, keyless: str
) -> None:
    report = compact(
        spark, store, tmp_path / "new", keep_tombstones=tombstones, keyless=keyless,
        piece_bytes=PIECE,
    )  # fmt: skip
    wanted = left_of(messages_of(store), tombstones=tombstones, keyless=keyless == "keep")

    assert list(map(content, messages_of(tmp_path / "new"))) == list(map(content, wanted))
    assert report.keys == len({(m["topic"], m["properties"].get("KEYS")) for m in messages_of(store)
                               if "KEYS" in m["properties"]})  # fmt: skip
    assert report.records == len(wanted) > 50
    for group in by_queue(messages_of(tmp_path / "new")).values():
        assert [line["queueOffset"] for line in group] == list(range(len(group)))
    assert_in_order(tmp_path / "new")


def test_consumers_go_on_at_the_first_message_left_that_they_had_not(
    spark: Any, tmp_path: Path, store: Path
) -> None:
    copy = Path(shutil.copytree(store, tmp_path / "store"))
    old = by_queue(messages_of(copy))["state", 1]
    set_offsets(copy, {"state@g": {1: len(old) - 40}, "state@end": {1: len(old)}})
    compact(spark, copy, tmp_path / "new", piece_bytes=PIECE)

    new = by_queue(messages_of(tmp_path / "new"))["state", 1]
    unseen = {content(line) for line in old[len(old) - 40 :]}
    first = next(line for line in new if content(line) in unseen)
    assert offsets_of(tmp_path / "new") == {
        "state@g": {1: first["queueOffset"]},
        "state@end": {1: len(new)},
    }
    assert 0 < first["queueOffset"] < len(new)


def test_one_topic_compacted_and_the_others_kept(spark: Any, tmp_path: Path, store: Path) -> None:
    """With keep_others all of them stay; without, only the named topics are in the new store."""
    lines = messages_of(store)
    state = left_of([line for line in lines if line["topic"] == "state"])
    others = [line for line in lines if line["topic"] == "other"]
    compact(spark, store, tmp_path / "a", topics=["state"], keep_others=True, piece_bytes=PIECE)
    compact(spark, store, tmp_path / "b", topics=["state"], piece_bytes=PIECE)

    both = sorted(map(content, state + others))
    assert sorted(map(content, messages_of(tmp_path / "a"))) == both
    assert list(map(content, messages_of(tmp_path / "b"))) == list(map(content, state))


def test_a_parquet_table_has_the_same_messages(spark: Any, tmp_path: Path, store: Path) -> None:
    report = compact(spark, store, tmp_path / "table", format="parquet", piece_bytes=PIECE)
    wanted = left_of(messages_of(store))
    rows = spark.read.parquet(str(tmp_path / "table")).collect()

    assert report.store is None and report.records == len(rows) == len(wanted)
    assert {(row.topic, row.queueId, row.queueOffset, row.properties["n"]) for row in rows} == {
        (line["topic"], line["queueId"], line["queueOffset"], line["properties"]["n"])
        for line in wanted
    }
    assert {len(row.body) for row in rows} == {line["bodyLength"] for line in wanted}
    assert not [path for path in (tmp_path / "table").iterdir() if path.suffix != ".parquet"]


def test_a_brokers_store_is_compacted(spark: Any, tmp_path: Path) -> None:
    """Its internal topics are left out: what they hold refers to places that change."""
    compact(spark, golden_store("features"), tmp_path / "new")
    topics = {line["topic"] for line in messages_of(tmp_path / "new")}
    assert "tx" in topics and not any(topic.startswith("RMQ_SYS_TRANS") for topic in topics)
    assert_in_order(tmp_path / "new")


def test_light_queues_must_stay_whole(spark: Any, tmp_path: Path) -> None:
    """Kept with all their messages; a hole, or a second store with the same queue, is refused."""
    report = compact(spark, golden_store("lmq"), tmp_path / "new", keyless="keep")
    assert report.records and any(
        line.get("servedAs", "").startswith("%LMQ%") for line in messages_of(tmp_path / "new")
    )
    here, there = SourceQueue(0, "%LMQ%a", 0), SourceQueue(1, "%LMQ%a", 0)
    refuse_moved_light_queues([{here: [3, 4]}, {here: [5]}])
    with pytest.raises(PipelineError, match="light queue %LMQ%a would lose messages"):
        refuse_moved_light_queues([{here: [3, 4]}, {here: [6]}])
    with pytest.raises(PipelineError, match="light queue %LMQ%a is in several stores"):
        refuse_moved_light_queues([{here: [3]}, {there: [4]}])

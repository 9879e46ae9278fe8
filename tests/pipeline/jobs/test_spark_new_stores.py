"""Stores that jobs write: what they hold is what their sources held, and everything of it is in order."""

from __future__ import annotations

import fcntl
import os
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from engine_store import small_config
from flips import flip
from golden import golden_copy, golden_dump, golden_store
from local_spark import LocalSpark
from new_stores import (
    PIECE,
    assert_in_order,
    by_queue,
    content,
    files_of,
    messages_of,
    offsets_of,
    set_offsets,
)
from store_workload import SMALL, TOPICS, run_workload

from pipeline.errors import PipelineError
from pipeline.jobs.merge import merge
from pipeline.jobs.split import split
from storage import Message, MessageStore
from storage.format.config_json import decode_config
from storage.message import PullStatus
from storage.offline import dump

SPARK: Any = LocalSpark()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two stores of the same topics that took turns: IPv6, long topics, rolls, every property."""
    root = tmp_path_factory.mktemp("pair")
    stores = root / "first", root / "second"
    for turn in range(2):
        for number, store in enumerate(stores):
            config = SMALL | {"store_host": "[2001:db8::5]:10911"} if number else SMALL
            run_workload(store, config=config, rounds=25, seed=10 * turn + number)
    return stores


@pytest.mark.parametrize(
    "name",
    [
        "basic", pytest.param("defaults", marks=pytest.mark.slow), "propcrc", "lmq", "syncflushkilled",
    ],
)  # fmt: skip
def test_a_merge_of_one_store_is_that_store(tmp_path: Path, name: str) -> None:
    """With nothing to leave out, log and queues are the same bytes, rolls and blanks included."""
    store = golden_store(name)
    report = merge(SPARK, [store], tmp_path / "new", piece_bytes=1 << 16)

    served = [line for line in golden_dump(name) if line["type"] == "message"]
    assert report.damage == () and report.store.renumbered == ()
    assert report.store.records == len({line["commitLogOffset"] for line in served})
    if not any(line["type"] == "unqueued" for line in golden_dump(name)):
        ours, theirs = files_of(tmp_path / "new" / "commitlog"), files_of(store / "commitlog")
        assert ours == {file: theirs[file] for file in ours}
        assert all(not any(data) for file, data in theirs.items() if file not in ours)
    if name != "syncflushkilled":
        assert files_of(tmp_path / "new" / "consumequeue") == files_of(store / "consumequeue")
    assert_in_order(tmp_path / "new")


def test_a_merge_has_every_message_in_order_of_time(
    tmp_path: Path, pair: tuple[Path, Path]
) -> None:
    """All there once, only places changed; each store's order kept, times never going back."""
    report = merge(SPARK, pair, tmp_path / "new", piece_bytes=PIECE, log_file_size=1 << 16)
    new = messages_of(tmp_path / "new")

    assert sorted(map(content, new)) == sorted(
        content(line) for store in pair for line in messages_of(store)
    )
    assert report.store.records == len(new)
    assert all(a["storeTimestamp"] <= b["storeTimestamp"] for a, b in pairwise(new))
    for store in pair:
        mine = set(map(content, messages_of(store)))
        assert [content(line) for line in new if content(line) in mine] == [
            content(line) for line in messages_of(store)
        ]
    for group in by_queue(new).values():
        assert [line["queueOffset"] for line in group] == list(range(len(group)))
    assert len(files_of(tmp_path / "new" / "commitlog")) > 2
    assert_in_order(tmp_path / "new")


def test_consumers_of_merged_queues_miss_nothing(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    """A group goes on at the first message that it has not had from any of the stores."""
    stores = []
    for number, store in enumerate(pair):
        stores.append(Path(shutil.copytree(store, tmp_path / f"store{number}")))
    counts = [{key: len(group) for key, group in by_queue(messages_of(s)).items()} for s in stores]
    half = counts[0]["orders", 0] // 2
    set_offsets(stores[0], {"orders@g": {0: half}, "orders@end": {0: counts[0]["orders", 0]}})
    set_offsets(stores[1], {"orders@g": {0: half + 3}, "orders@end": {0: counts[1]["orders", 0]}})
    merge(SPARK, stores, tmp_path / "new", piece_bytes=PIECE)

    merged = by_queue(messages_of(tmp_path / "new"))["orders", 0]
    at = {content(line): line["queueOffset"] for line in merged}
    firsts = [
        at[content(by_queue(messages_of(store))["orders", 0][offset])]
        for store, offset in zip(stores, (half, half + 3), strict=True)
    ]
    found = offsets_of(tmp_path / "new")
    assert found["orders@g"] == {0: min(firsts)}
    assert found["orders@end"] == {0: len(merged)}


def test_queues_of_one_store_keep_their_offsets(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    """A store whose log begins late, merged with another: its queues begin where they began."""
    report = merge(SPARK, [golden_store("cleaned"), pair[0]], tmp_path / "new")
    lines = [line for line in golden_dump("cleaned") if line["type"] == "message"]
    begun = {
        (line["topic"], line["queueId"], line["queueOffset"], line["bodySha256"]) for line in lines
    }
    ours = {
        (line["topic"], line["queueId"], line["queueOffset"], line["bodySha256"])
        for line in messages_of(tmp_path / "new")
    }
    shared = {key[:2] for key in report.store.renumbered}
    assert {line for line in begun if line[:2] not in shared} <= ours
    assert any(line[2] > 0 for line in begun)
    assert_in_order(tmp_path / "new")


def test_what_is_damaged_is_left_out_and_named(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    """The rest stays; the queue closes up, and its consumers go on after the gap."""
    store = Path(shutil.copytree(pair[0], tmp_path / "store"))
    group = by_queue(messages_of(store))["orders", 1]
    hit = group[3]
    assert hit["bodyLength"] or group[4]["bodyLength"]
    hit = hit if hit["bodyLength"] else group[4]
    set_offsets(store, {"orders@g": {1: hit["queueOffset"] + 2}})
    log = store / "commitlog" / f"{hit['commitLogOffset'] // 65536 * 65536:020d}"
    flip(log, hit["commitLogOffset"] % 65536 + 10)  # the body's CRC
    report = merge(SPARK, [store], tmp_path / "new", piece_bytes=PIECE)

    assert [
        (damage.begin_offset, damage.end_offset - damage.begin_offset)
        for _, damage in report.damage
    ] == [(hit["commitLogOffset"], hit["size"])]
    assert report.store.renumbered == (("orders", 1),)
    assert [content(line) for line in by_queue(messages_of(tmp_path / "new"))["orders", 1]] == [
        content(line) for line in group if line is not hit
    ]
    assert offsets_of(tmp_path / "new")["orders@g"] == {1: hit["queueOffset"] + 1}
    assert_in_order(tmp_path / "new")


def test_a_split_makes_one_store_of_each_topic(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    """Messages, queue offsets and consumers' places are as they were, and each store serves its own."""
    store = Path(shutil.copytree(pair[1], tmp_path / "store"))
    set_offsets(store, {"orders@g": {0: 2, 3: 1}, "payments-2_|%@g": {1: 4}})
    report = split(SPARK, store, tmp_path / "parts", piece_bytes=PIECE)

    assert {Path(made.path).name for made in report.stores} == set(TOPICS)
    for made in report.stores:
        topic = Path(made.path).name
        ours, theirs = messages_of(Path(made.path)), messages_of(store)
        wanted = [line for line in theirs if line["topic"] == topic]
        assert list(map(content, ours)) == list(map(content, wanted))
        assert [line["queueOffset"] for line in ours] == [line["queueOffset"] for line in wanted]
        with MessageStore.open(made.path) as opened:
            assert [each.name for each in opened.list_topics()] == [topic]
            result = opened.pull(topic, 0, queue_offset=0, max_messages=10_000)
            assert result.status is PullStatus.FOUND
            assert result.record_count == sum(line["queueId"] == 0 for line in wanted)
        assert_in_order(Path(made.path))
    assert offsets_of(tmp_path / "parts" / "orders") == {"orders@g": {0: 2, 3: 1}}
    assert offsets_of(tmp_path / "parts" / "payments-2_|%") == {"payments-2_|%@g": {1: 4}}


def test_a_split_by_groups_with_a_rest(tmp_path: Path) -> None:
    """Named groups and the rest together have what the store has, delayed messages' places too."""
    store = golden_store("features")
    topics = sorted(
        {line["topic"] for line in golden_dump("features") if line["type"] == "message"}
    )
    report = split(
        SPARK, store, tmp_path / "parts", topics=[f"two={topics[0]},{topics[1]}"], rest=True
    )

    assert [Path(made.path).name for made in report.stores] == ["two", "rest"]
    assert {line["topic"] for line in messages_of(tmp_path / "parts" / "two")} == set(topics[:2])
    both = [*messages_of(tmp_path / "parts" / "two"), *messages_of(tmp_path / "parts" / "rest")]
    assert sorted(map(content, both)) == sorted(map(content, messages_of(store)))
    delays = decode_config((tmp_path / "parts/rest/config/delayOffset.json").read_bytes())
    theirs = decode_config((store / "config/delayOffset.json").read_bytes())
    assert delays["offsetTable"] == theirs["offsetTable"]
    assert not (tmp_path / "parts/two/config/delayOffset.json").exists()


def test_light_queues_go_with_the_messages_that_are_in_them(tmp_path: Path) -> None:
    """Their offsets stand in records: they stay as they are, and what would change them is refused."""
    store = golden_store("lmq")
    report = split(SPARK, store, tmp_path / "parts")
    found = {
        (line["topic"], line["queueId"], line["queueOffset"], line["bodySha256"])
        for made in report.stores
        for line in dump(Path(made.path))
        if line["type"] == "message"
    }
    wanted = {
        (line["topic"], line["queueId"], line["queueOffset"], line["bodySha256"])
        for line in dump(store)
        if line["type"] == "message"
    }
    assert found == wanted
    twin = golden_copy("lmq", tmp_path)
    with pytest.raises(PipelineError, match=r"light queue .* is in several stores"):
        merge(SPARK, [store, twin], tmp_path / "twice")


def test_records_of_a_deleted_topic_are_left_out(tmp_path: Path) -> None:
    """Of one that was made again, what came before its deletion too: no queue serves it."""
    with MessageStore.open(tmp_path / "store", small_config()) as store:
        for name in ("gone", "again"):
            store.create_topic(name, 1)
            store.put_all([Message(topic=name, body=f"old {n}".encode()) for n in range(5)])
            store.delete_topic(name)
        store.create_topic("again", 1)
        store.put_all([Message(topic="again", body=f"new {n}".encode()) for n in range(3)])
    report = merge(SPARK, [tmp_path / "store"], tmp_path / "new")

    assert (report.store.records, report.store.topics) == (3, 1)
    with MessageStore.open(tmp_path / "new") as opened:
        assert [topic.name for topic in opened.list_topics()] == ["again"]
        assert (opened.min_offset("again", 0), opened.max_offset("again", 0)) == (0, 3)
    assert_in_order(tmp_path / "new")


def test_a_new_store_has_its_name_when_it_is_whole(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    """A job that fails leaves nothing; what a killed one left is replaced; a running one is respected."""
    with pytest.raises(PipelineError, match="does not fit into a commit log file of 4096"):
        merge(SPARK, [golden_store("basic")], tmp_path / "new", log_file_size=4096)
    assert list(tmp_path.iterdir()) == []

    left = tmp_path / "new.partial" / "commitlog"
    left.mkdir(parents=True)
    (left / "00000000000000000000").write_bytes(b"left")
    handle = os.open(left.parent, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(PipelineError, match="another job is writing"):
        merge(SPARK, pair, tmp_path / "new")
    os.close(handle)
    merge(SPARK, pair, tmp_path / "new")
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    assert_in_order(tmp_path / "new")
    with pytest.raises(PipelineError, match="exists"):
        merge(SPARK, pair, tmp_path / "new")

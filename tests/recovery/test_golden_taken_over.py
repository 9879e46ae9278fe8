"""A real broker's directory opened as ours: everything is read, written on, and read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import records_in
from golden import golden_acked, golden_copy, golden_dump, golden_spec
from steps_to_try import steps_to_try

from storage import Message, MessageStore, PullStatus, StoreConfig
from storage.clock import SystemClock
from storage.format.record import Record, decode_record
from storage.offline import dump

NAMES = ["basic", "features", "slow", "propcrc", "lmq", "cleaned", "killed", "syncflushkilled"]


class ClockOfThen(SystemClock):
    """Stands at the time of a store: nothing of its delayed messages falls due."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


def config_of(name: str) -> StoreConfig:
    sizes = golden_spec(name)["store"]
    return StoreConfig(
        commit_log_file_size=sizes.get("mappedFileSizeCommitLog", 1 << 30),
        consume_queue_file_size=sizes.get("mappedFileSizeConsumeQueue", 6_000_000),
        index_slot_count=sizes.get("maxHashSlotNum", 5_000_000),
        index_entry_count=sizes.get("maxIndexNum", 20_000_000),
    )


def pull_all(store: MessageStore, topic: str, queue_id: int) -> list[Record]:
    records: list[Record] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        result = store.pull(topic, queue_id, queue_offset=offset, max_messages=1000)
        assert result.status is PullStatus.FOUND
        assert result.damaged == ()
        records += records_in(result.slices)
        offset = result.next_offset
    return records


@pytest.mark.parametrize("name", NAMES)
def test_a_brokers_store_is_taken_over(name: str, tmp_path: Path) -> None:
    """All messages are pulled as the broker serves them; new ones follow; all survive a restart."""
    directory = golden_copy(name, tmp_path)
    lines = [line for line in golden_dump(name) if line["type"] == "message"]
    queues = [(q["topic"], q["queueId"]) for q in golden_dump(name) if q["type"] == "queue" and q["maxOffset"]]  # fmt: skip
    clock = ClockOfThen(max(line["storeTimestamp"] for line in lines))
    with MessageStore.open(directory, config_of(name), clock=clock) as store:
        known = {topic.name for topic in store.list_topics()}
        served = {
            queue: [(r.commit_offset, r.queue_offset) for r in pull_all(store, *queue)]
            for queue in queues
            if queue[0] in known
        }
        assert sum(map(len, served.values())) >= 24
        for (topic, queue_id), places in served.items():
            assert places == [
                (line["commitLogOffset"], line["queueOffset"])
                for line in lines
                if (line["topic"], line["queueId"]) == (topic, queue_id) and "servedAs" not in line
            ]
        topic, queue_id = max(served, key=lambda queue: len(served[queue]))
        put = store.put(
            Message(topic=topic, body=b"new", keys=("new-key",), tag="new", queue_id=queue_id)
        )
        assert put.queue_offset == served[topic, queue_id][-1][1] + 1
        assert decode_record(store.message_by_id(put.message_id)).body == b"new"
        assert store.query_by_key(topic, "new-key").record_count == 1
    with MessageStore.open(directory, config_of(name), clock=clock) as store:
        again = pull_all(store, topic, queue_id)
        assert [(r.commit_offset, r.queue_offset) for r in again[:-1]] == served[topic, queue_id]
        assert again[-1].body == b"new"
        assert store.query_by_key(topic, "new-key").record_count == 1
        for line in lines[:: len(lines) // 20 or 1]:
            key = line["properties"].get("UNIQ_KEY")
            if key and line["topic"] in known and "servedAs" not in line:
                found = store.query_by_key(line["topic"], key, unique=True)
                assert found.record_count >= 1, line


@pytest.mark.parametrize(
    "name", steps_to_try(sorted({*NAMES, "defaults", "pool", "syncflush", "ext"}), 3)
)
def test_every_acknowledged_message_is_there(name: str, tmp_path: Path) -> None:
    """What was acknowledged to the broker's producer is served, unless cleaned since."""
    lines = [line for line in dump(golden_copy(name, tmp_path), golden_spec(name)) if "offsetMsgId" in line]  # fmt: skip
    places = {line["offsetMsgId"] for line in lines}
    begin = min(line["commitLogOffset"] for line in lines)
    acked = [line for line in golden_acked(name) if "offsetMsgId" in line]
    assert acked
    for line in acked:
        for message_id in line["offsetMsgId"].split(","):
            assert message_id in places or int(message_id[-16:], 16) < begin

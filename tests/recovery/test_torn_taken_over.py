"""The damaged stores opened for writing, sizes found on the disk: all intact is served, then more."""

import pytest
from engine_store import pull_rebuilt
from golden import TORN, golden_copy
from steps_to_try import steps_to_try

from storage import Message, MessageStore, StoreConfig

INTACT = 3636
LOST_WITH_THE_DAMAGE = {
    "torn-last-record": 1, "cut-length": 1, "zeroed-tail": 5, "flip-last-body": 1,
    "flip-last-magic": 1, "flip-near-end-body": 1, "flip-early-body": 1, "flip-early-magic": 1,
    "no-abort-torn": 1, "lost-middle-commitlog-file": 537,
}  # fmt: skip
TOPICS = ("audit_log-1", "few", "orders", "payments")


def pulled(store, topic, queue_id):
    """Return how many records and how many damaged ones pulls of one queue give."""
    offset = store.min_offset(topic, queue_id)
    good = damaged = 0
    while offset < store.max_offset(topic, queue_id):
        result = pull_rebuilt(store, topic, queue_id, queue_offset=offset, max_messages=2_000)
        assert result.next_offset > offset
        good += result.record_count
        damaged += len(result.damaged)
        offset = result.next_offset
    return good, damaged


@pytest.mark.parametrize("variant", steps_to_try(list(TORN), 4))
def test_a_damaged_store_is_opened_served_and_written_on(variant, tmp_path):
    directory = golden_copy(f"torn/{variant}", tmp_path)
    config = StoreConfig(index_slot_count=500, index_entry_count=2_000)
    with MessageStore.open(directory, config) as store:
        assert store.writer.config.commit_log_file_size == 262_144
        assert store.writer.config.consume_queue_file_size == (
            6_000_000 if variant.startswith("only-commitlog") or "no-consumequeue" in variant
            else 6_000
        )  # fmt: skip
        good = 0
        for topic in TOPICS:
            queue_count = store.writer.describe_topic(topic)[0].queue_count
            good += sum(pulled(store, topic, queue)[0] for queue in range(queue_count))
        assert good == INTACT - LOST_WITH_THE_DAMAGE.get(variant, 0)
        result = store.put(Message(topic="orders", queue_id=0, body=b"after"))
        assert store.max_offset("orders", 0) == result.queue_offset + 1
    with MessageStore.open(directory, config) as store:
        assert not store.writer.stopped_unclean
        last = store.pull("orders", 0, queue_offset=result.queue_offset)
        assert last.record_count == 1

"""The checkpoint is replaced by an old copy of an orderly stop: the log behind it is not taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import check_queues_match_log, small_config

from storage import Message, MessageStore
from storage.view.log.recovery_cases import Start


def put(directory: Path, count: int, size: int) -> None:
    with MessageStore.open(directory, small_config()) as store:
        if not store.list_topics():
            store.create_topic("t", 1)
        for number in range(count):
            store.put(Message(topic="t", body=b"%d" % number + bytes(size), keys=("k",)))


@pytest.mark.parametrize("size", [10, 20_000], ids=["in the same file", "in later files"])
def test_records_after_an_old_checkpoint_are_kept(tmp_path: Path, size: int) -> None:
    directory = tmp_path / "store"
    put(directory, 5, size)
    old = (directory / "checkpoint").read_bytes()
    put(directory, 7, size)
    (directory / "checkpoint").write_bytes(old)
    with MessageStore.open(directory, small_config()) as store:
        assert store.writer.recovered.start is Start.BOUNDED
        assert store.put(Message(topic="t", body=b"next", keys=("k",))).queue_offset == 12
        assert store.pull("t", 0, queue_offset=0).record_count == 13
        assert store.query_by_key("t", "k", max_messages=20).record_count == 13
    assert check_queues_match_log(directory) == 13

"""A reader that looked at a queue before retention deleted all that it knew of it."""

from __future__ import annotations

import os
from pathlib import Path

from engine_store import small_config

from storage import Message, MessageStore, StoreReader
from storage.message import PullStatus
from storage.testing import SteppedWorkers

EVERY_HOUR = ";".join(f"{hour:02d}" for hour in range(24))


def test_it_goes_on_where_the_queue_begins_now(tmp_path: Path) -> None:
    config = small_config(
        consume_queue_file_size=400, retention_ms=60_000, retention_delete_hours=EVERY_HOUR
    )
    workers = SteppedWorkers()
    with MessageStore.open(tmp_path / "s", config, workers=workers) as store:
        store.create_topic("t", 1)

        def put(count: int) -> None:
            store.put_all([Message(topic="t", body=b"%d" % n * 100) for n in range(count)])
            workers.settle()

        put(65)
        with StoreReader.open(tmp_path / "s") as reader:
            assert reader.max_offset("t", 0) == 65
            for _ in range(8):
                put(100)
            for path in sorted((tmp_path / "s/commitlog").iterdir())[:-1]:
                os.utime(path, (1, 1))
            while len(list((tmp_path / "s/commitlog").iterdir())) > 3:
                workers.step("index")
                workers.step("retention")
                workers.settle()
            result = reader.pull("t", 0, queue_offset=65)
            first = result.next_offset

            assert result.status is PullStatus.OFFSET_TOO_SMALL
            assert 65 < first < 865 == reader.max_offset("t", 0)
            assert (
                reader.pull("t", 0, queue_offset=first, max_messages=900).queue_offsets[0] == first
            )
            put(1)
            assert reader.max_offset("t", 0) == 866

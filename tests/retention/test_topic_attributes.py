"""Attributes by which a broker keeps a topic otherwise: they are kept themselves, and nobody heeds them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cleaned_store import CleanedStore
from engine_store import record

from storage.message import PullStatus
from storage.reader import StoreReader


@pytest.mark.parametrize(
    "attributes",
    [{"reserve.time": str(1_000 * 3_600_000)}, {"cleanup.policy": "COMPACTION"}],
    ids=["reserve.time", "compaction"],
)
def test_a_topic_is_served_whole_and_goes_with_the_files_of_the_log(
    tmp_path: Path, attributes: dict[str, str]
) -> None:
    """All records of a key are served, also those without one; none outlives the files, whatever the attribute says."""
    store = CleanedStore(tmp_path)
    store.open().create_topic("kept", 1, attributes=attributes)
    for number in range(3):
        keyed = {"KEYS": "same"} if number else {}
        store.writer.append_batch(record("kept", 0, b"%d" % number, properties=keyed))
    store.fill(600)

    def found() -> tuple[PullStatus, int, int]:
        with StoreReader.open(
            store.machine.directory, store.writer.config,
            filesystem=store.machine.disk, clock=store.machine.clock,
        ) as reader:  # fmt: skip
            result = reader.pull("kept", 0, queue_offset=0)
            return result.status, result.record_count, reader.min_offset("kept", 0)

    assert found() == (PullStatus.FOUND, 3, 0)
    store.age()
    store.clean()
    assert found() == (PullStatus.OFFSET_TOO_SMALL, 0, 3)
    store.writer.close()
    writer = store.open()
    assert {each.name: each.attributes for each in writer.list_topics()}["kept"] == attributes
    writer.close()

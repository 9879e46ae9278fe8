"""A real broker opens a store with leases, leaves them as they are, and goes on at the group's offset."""

from __future__ import annotations

from pathlib import Path

import pytest
from lease_store import GROUP, TOPIC, LeaseStore, bodies, put
from oracle import SMALL_FILES, oracle_open

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
HANDLE = 40


def test_a_broker_leaves_leases_alone_and_we_go_on(tmp_path: Path) -> None:
    put(tmp_path / "store", 20)
    store = LeaseStore(tmp_path / "store")
    batch = store.receive(10)
    store.acknowledge(batch.receipt_handles[: 4 * HANDLE] + batch.receipt_handles[-HANDLE:])
    store.leases.close()
    store.reader.close()
    (journal,) = (store.directory / "leases").iterdir()
    content, kept = journal.read_bytes(), tmp_path / "kept"

    opened = oracle_open(store.directory, settings=SMALL_FILES, keep=kept)

    assert opened.good, (opened.report, opened.stderr[-500:])
    assert (kept / "leases" / journal.name).read_bytes() == content
    after = LeaseStore(kept)
    (queue,) = after.leases.progress(GROUP, TOPIC)
    assert (queue.group_offset, queue.next_offset, queue.leased_count) == (4, 10, 5)
    assert bodies(after.receive(32)) == list(range(10, 20))
    assert after.acknowledge(batch.receipt_handles[4 * HANDLE : 5 * HANDLE]) == []

"""What a broker had handed out to an orderly group: under a lease until its end, and what was acknowledged is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hand_clock import HandClock
from lease_store import FIRST_MS, GROUP, ORDERLY, TOPIC, LeaseStore, bodies
from lease_store import put as put_by_clock

from storage.clock import SystemClock
from storage.files.filesystem import FileSystem
from storage.tables.consumer_offsets import ConsumerOffsets

LEASE_MS = 10_000
ORDER = (
    '{"table":{"orders@billing":{0:{"a":"attempt","cm":%d,"i":10000,"l":1,"o":[2,1,2,3],'
    '"popTime":%d%s},"1":{}},"other@billing":{}}}'
)


class StoredClock(SystemClock):
    """When a broker stored the messages: before it handed them out."""

    def now_ms(self) -> int:
        return FIRST_MS - 60_000


def put(directory: Path, count: int, **fields: Any) -> None:
    put_by_clock(directory, count, clock=StoredClock(), **fields)


def leave(directory: Path, *, done_bits: int = 0, offset: int = 2, more: str = "") -> LeaseStore:
    """Return a store of ten messages whose queue offsets 2 to 5 a broker has handed out."""
    put(directory, 10)
    put_back(directory, offset)
    order = ORDER % (done_bits, FIRST_MS - 1_000, more)
    (directory / "config" / "consumerOrderInfo.json").write_text(order)
    return LeaseStore(directory)


def put_back(directory: Path, offset: int) -> None:
    offsets = ConsumerOffsets(FileSystem(), directory / "config", HandClock())
    offsets.commit(GROUP.name, TOPIC, 0, offset)
    offsets.close()


def end_of(store: LeaseStore) -> None:
    store.leases.close()
    store.reader.close()


def test_a_brokers_lease_is_kept_until_its_end(tmp_path: Path) -> None:
    store = leave(tmp_path / "store", done_bits=0b0110)
    assert bodies(store.receive(group=ORDERLY)) == []  # all are of one message group
    store.clock.pass_ms(LEASE_MS - 1_001)
    store.reopen()
    assert bodies(store.receive(group=ORDERLY)) == []
    store.clock.pass_ms(1)
    received = []
    while batch := store.receive(group=ORDERLY, lease_ms=60_000):
        if not batch.record_count:
            break
        received += bodies(batch)
        assert batch.attempts == ([2] if received[-1] in (2, 5) else [1])
        store.acknowledge(batch.receipt_handles)
    assert received == [2, 5, 6, 7, 8, 9]
    end_of(store)


def test_what_was_acknowledged_is_done_when_the_lease_is_over_by_then(tmp_path: Path) -> None:
    store = leave(tmp_path / "store", done_bits=0b0110)
    store.clock.pass_ms(60_000)
    received = []
    while (batch := store.receive(1, group=ORDERLY)).record_count:
        received += bodies(batch)
        assert batch.attempts == ([2] if received[-1] in (2, 5) else [1])
        store.acknowledge(batch.receipt_handles)
    assert received == [2, 5, 6, 7, 8, 9]
    end_of(store)


def test_what_was_stored_after_it_was_handed_out_is_another_message(tmp_path: Path) -> None:
    """The topic was created again, or the log has lost its end: the file tells of other messages at those queue offsets."""
    store = leave(tmp_path / "store", done_bits=0b0110)
    order = ORDER % (0b0110, FIRST_MS - 60_001, "")
    (store.directory / "config" / "consumerOrderInfo.json").write_text(order)
    received = []
    while (batch := store.receive(1, group=ORDERLY)).record_count:
        received += bodies(batch)
        store.acknowledge(batch.receipt_handles)
    assert received == [2, 3, 4, 5, 6, 7, 8, 9]
    end_of(store)


@pytest.mark.parametrize(
    ("offset", "content"),
    [
        (6, ORDER % (0b1111, FIRST_MS, "")),
        (2, ORDER % (0, FIRST_MS - LEASE_MS, "")),
        (7, ORDER % (0, FIRST_MS, "")),
        (2, "{}"),
        (2, "not JSON"),
        (2, '{"table":{"orders@billing":{0:{"o":[],"popTime":1,"i":1}}}}'),
        (2, '{"table":{"orders@billing":{0:{"o":[2,999],"popTime":1,"i":1}}}}'),
        (2, '{"table":{"orders@billing":[]}}'),
    ],
    ids=["done", "over", "elsewhere", "empty", "damaged", "nothing", "too much", "no map"],
)
def test_without_a_lease_the_group_goes_on_at_its_offset(
    tmp_path: Path, offset: int, content: str
) -> None:
    store = leave(tmp_path / "store", offset=offset)
    (store.directory / "config" / "consumerOrderInfo.json").write_text(content)
    assert bodies(store.receive(group=ORDERLY)) == [offset]
    end_of(store)

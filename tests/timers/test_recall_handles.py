"""A recall handle counts as it was given out, and not a beginning of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from timer_store import NOW_MS, TimerStore

from storage.errors import InvalidMessage
from storage.format.timers.recall_handle import RecallHandle, decode_recall_handle

DUE_MS = NOW_MS + 5_000
BROKERS = "djEgVCBCIDE3OTUzNTU0MjYwMDEgS0VZ"  # v1 T B 1795355426001 KEY


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> TimerStore:
    return TimerStore(tmp_path)


@pytest.mark.parametrize("key", ["KEY", "KEY1", "KEY12", "schlüssel", f"01{7:032X}"])
def test_a_handle_reads_back_and_is_a_brokers(key: str) -> None:
    handle = RecallHandle("later", "penstock", DUE_MS, key)
    assert decode_recall_handle(handle.encode()) == handle
    assert decode_recall_handle(BROKERS) == RecallHandle("T", "B", 1795355426001, "KEY")


@pytest.mark.parametrize("store_host", ["127.0.0.1:10911", "[::1]:10911"])
def test_a_handle_that_was_cut_takes_back_nothing(tmp_path: Path, store_host: str) -> None:
    """Wherever it was cut: of a key that the store made more than the address must be left."""
    store = TimerStore(tmp_path, store_host=store_host)
    result = store.put(b"kept", deliver_at_ms=DUE_MS)
    text = RecallHandle("later", "penstock", result.recall_ms, result.unique_key).encode()
    for length in range(len(text) - 1, len(text) - 32, -1):
        with pytest.raises(InvalidMessage, match="recall_handle"):
            cut = decode_recall_handle(text[:length])
            store.writer.timers.recall(cut.topic, cut.unique_key, cut.recall_ms)
    store.settle()
    store.pass_to(DUE_MS)
    assert store.bodies() == [b"kept"]
    store.close()


@pytest.mark.parametrize("broken", ["{}\n", " {}", "{}====", "{}!"])
def test_a_handle_with_other_characters_is_none(broken: str) -> None:
    with pytest.raises(InvalidMessage, match="not a whole recall handle"):
        decode_recall_handle(broken.format(BROKERS))


@pytest.mark.parametrize("key", ["1", "7F", "7F000001-order", "ABCDEF0123", "order-7"])
def test_a_short_key_of_a_callers_own_is_whole(store: TimerStore, key: str) -> None:
    result = store.put(b"recalled", deliver_at_ms=DUE_MS, unique_key=key)
    store.writer.timers.recall("later", key, result.recall_ms)
    store.settle()
    store.pass_to(DUE_MS)
    assert store.bodies() == []
    store.close()

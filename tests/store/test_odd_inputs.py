"""Numbers of any size and names of any length get an answer or a refusal, never another error."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from engine_store import small_config
from open_files import descriptors_below

from storage import Message, MessageStore
from storage.errors import InvalidMessage, StoreError, TopicNotFound
from storage.message import PullStatus

INTEGERS = (
    -(1 << 80), -(1 << 63) - 1, -(1 << 63), -(1 << 31) - 1, -1, 0, 1, 1 << 31, 1 << 62,
    (1 << 63) - 1, 1 << 63, 1 << 80,
)  # fmt: skip
NO_TOPICS = ("", ".", "..", "/", "a/b", "../t", "a\0b", "a" * 256, "a" * 100_000, "日本" * 50)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path_factory.mktemp("odd"), small_config()) as store:
        store.create_topic("t", 1)
        for _ in range(5):
            store.put(Message(topic="t", body=b"x", keys=("k",), tag="a"))
        yield store


@pytest.mark.parametrize("number", INTEGERS)
def test_a_pull_with_any_limit_returns_the_first_record_at_least(
    store: MessageStore, number: int
) -> None:
    for limits in (
        {"max_messages": number},
        {"max_bytes": number},
        {"max_messages": number, "max_bytes": number, "tag_expression": "a"},
    ):
        result = store.pull("t", 0, queue_offset=0, **limits)  # type: ignore[arg-type]
        assert result.status is PullStatus.FOUND
        assert result.next_offset == (5 if number > 1_000 else 1)


@pytest.mark.parametrize("number", INTEGERS)
def test_any_number_is_answered_or_refused(store: MessageStore, number: int) -> None:
    def allowed(call: Callable[..., Any], *args: Any, **options: Any) -> None:
        with suppress(StoreError):
            call(*args, **options)

    status = store.pull("t", 0, queue_offset=number).status
    assert (status is PullStatus.FOUND) is (number in (0, 1))
    allowed(store.pull, "t", number, queue_offset=0)
    allowed(store.min_offset, "t", number)
    allowed(store.max_offset, "t", number)
    allowed(store.message, number)
    allowed(store.reader.commit_offset, "g", "t", number, number)
    for boundary in ("lower", "upper"):
        assert 0 <= store.offset_by_time("t", 0, timestamp_ms=number, boundary=boundary) <= 5  # type: ignore[arg-type]
    assert store.query_by_key("t", "k", begin_timestamp_ms=number).record_count in (0, 5)
    assert store.query_by_key("t", "k", end_timestamp_ms=number).record_count in (0, 5)
    assert store.query_by_key("t", "k", max_messages=number).record_count in (1, 5)
    for field in ("queue_id", "flag", "born_timestamp_ms", "delay_level"):
        if not 0 <= number < 1 << 63:
            if field == "delay_level" or (field == "flag" and number == -1):
                continue
            with pytest.raises(StoreError):
                store.put(Message(topic="t", body=b"", **{field: number}))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NO_TOPICS, ids=lambda name: f"{name[:5]!r}-{len(name)}")
def test_a_topic_that_cannot_be_is_not_found(store: MessageStore, name: str) -> None:
    for call in (
        lambda: store.pull(name, 0, queue_offset=0),
        lambda: store.max_offset(name, 0),
        lambda: store.query_by_key(name, "k"),
        lambda: store.delete_topic(name),
        lambda: store.reader.commit_offset("g", name, 0, 0),
    ):
        with pytest.raises(TopicNotFound):
            call()
    with pytest.raises(InvalidMessage):
        store.put(Message(topic=name, body=b""))


@pytest.mark.parametrize("token", ["-1.0.0", "0.0.zzzzzzzzzzzzzzzz", "1.2", "1.2.3.4", "x", "..."])
def test_a_page_token_of_nobody_is_refused(store: MessageStore, token: str) -> None:
    with pytest.raises(InvalidMessage, match="page_token"):
        store.query_by_key("t", "k", page_token=token)


@pytest.mark.parametrize("pool", [False, True])
def test_opening_and_closing_again_and_again_keeps_nothing(
    tmp_path: Path, pool: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither descriptors nor threads nor maps; and a stop waits for no thread's sleep."""

    def used() -> tuple[int, int, int]:
        """Of this store alone: what else runs in this process opens and closes as it likes."""
        gc.collect()
        files = len(descriptors_below(tmp_path))
        maps = Path("/proc/self/maps").read_text().count(str(tmp_path))
        threads = [thread.name for thread in threading.enumerate()]
        return files, maps, sum(name.startswith("penstock") for name in threads)

    monkeypatch.setattr("storage.indexer.IDLE_WAIT_S", 60.0)
    config = small_config(
        transient_pool=pool, transient_pool_directory=str(tmp_path), flush_interval_ms=60_000,
        queue_flush_interval_ms=60_000,
    )  # fmt: skip
    before = used()
    for turn in range(6):
        store = MessageStore.open(tmp_path / "store", config)
        if turn == 0:
            store.create_topic("t", 1)
        store.put(Message(topic="t", body=b"x", keys=("k",)))
        assert store.query_by_key("t", "k").record_count == turn + 1
        began = time.monotonic()
        store.close()
        assert time.monotonic() - began < 20
    del store
    assert used() <= before
    assert [path.name for path in tmp_path.iterdir()] == ["store"]

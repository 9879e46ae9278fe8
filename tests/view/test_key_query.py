"""Queries by key: nothing of another key, everything of this one, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_store import records_in
from golden import golden_dump, golden_store

from storage import MessageStore, StoreConfig
from storage.errors import InvalidMessage, TopicNotFound
from storage.format.record import Record
from storage.message import KeyQueryResult, Message, PutResult
from storage.reader import StoreReader
from storage.view.index import key_query

CONFIG = StoreConfig(
    commit_log_file_size=1 << 16, consume_queue_file_size=400, index_slot_count=5,
    index_entry_count=60,
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 2)
        store.create_topic("other", 1)
        yield store


def decoded(result: KeyQueryResult) -> list[Record]:
    records = records_in(result.slices)
    assert len(records) == result.record_count
    return records


def pages(store: MessageStore, **options: int) -> list[list[Record]]:
    """Return all pages of the topic's key, each in the order of the log."""
    found, token = [], ""
    while True:
        page = store.query_by_key("t", "k", page_token=token, **options)
        found.append(decoded(page))
        token = page.next_page_token
        if not token:
            return found


def bodies(result: KeyQueryResult) -> list[bytes]:
    return [record.body for record in decoded(result)]


def put(store: MessageStore, count: int, *keys: str, topic: str = "t") -> list[PutResult]:
    return store.put_all([Message(topic=topic, body=b"%d" % n, keys=keys) for n in range(count)])


def test_keys_of_equal_hash_are_told_apart(store: MessageStore) -> None:
    """``Aa`` and ``BB`` have one Java hash; a broker sends both."""
    store.put(Message(topic="t", body=b"first", keys=("Aa",)))
    store.put(Message(topic="t", body=b"second", keys=("BB",)))
    store.put(Message(topic="t", body=b"third", keys=("x", "Aa", "y")))
    assert bodies(store.query_by_key("t", "Aa")) == [b"first", b"third"]
    assert bodies(store.query_by_key("t", "BB")) == [b"second"]
    assert bodies(store.query_by_key("t", "A")) == []


def test_messages_of_a_former_topic_of_the_name_are_not_the_topics(store: MessageStore) -> None:
    former = put(store, 30, "k")
    put(store, 2, "k", topic="other")
    store.delete_topic("t")
    store.create_topic("t", 1)
    assert decoded(store.query_by_key("t", "k")) == []
    assert store.query_by_key("t", former[0].unique_key, unique=True).record_count == 0
    now = [each.commit_offset for each in put(store, 20, "k")]
    found = [each.commit_offset for page in pages(store, max_messages=7) for each in page[::-1]]
    assert found == now[::-1]
    assert store.query_by_key("other", "k").record_count == 2


def test_pages_hold_everything_once_newest_page_first(store: MessageStore) -> None:
    """Over 150 messages of one key among others, in several index files."""
    wanted = []
    for _ in range(15):
        wanted += put(store, 10, "k")
        put(store, 5, "other-key")
    found = [[each.commit_offset for each in page] for page in pages(store, max_messages=7)]
    assert all(page == sorted(page) for page in found)
    assert all(len(page) == 7 for page in found[:-1])
    newest_first = [offset for page in found for offset in reversed(page)]
    assert newest_first == sorted((p.commit_offset for p in wanted), reverse=True)


def test_a_page_token_stays_good_while_messages_come(store: MessageStore) -> None:
    old = put(store, 20, "k")
    first = store.query_by_key("t", "k", max_messages=5)
    put(store, 200, "k")
    second = store.query_by_key("t", "k", max_messages=64, page_token=first.next_page_token)
    assert [r.commit_offset for r in decoded(second)] == [p.commit_offset for p in old[:15]]


def test_unique_keys_and_business_keys_are_different_questions(store: MessageStore) -> None:
    store.put(Message(topic="t", body=b"by id", keys=("b",), unique_key="u"))
    assert bodies(store.query_by_key("t", "u", unique=True)) == [b"by id"]
    assert bodies(store.query_by_key("t", "b")) == [b"by id"]
    assert bodies(store.query_by_key("t", "u")) == []
    assert bodies(store.query_by_key("t", "b", unique=True)) == []


def test_damage_of_a_record_is_reported_beside_the_others(
    store: MessageStore, tmp_path: Path
) -> None:
    puts = put(store, 3, "k")
    assert store.query_by_key("t", "k").record_count == 3
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(puts[1].commit_offset + 88)
        file.write(b"\xff")
    result = store.query_by_key("t", "k")
    assert bodies(result) == [b"0", b"2"]
    (damaged,) = result.damaged
    assert damaged.commit_offset == puts[1].commit_offset


def test_bad_questions_are_refused(store: MessageStore) -> None:
    for key, problem in (("", "key"), ("a b", "key")):
        with pytest.raises(InvalidMessage, match=problem):
            store.query_by_key("t", key)
    for token in ("?", "1.2", "a.b.c.d", "1..2"):
        with pytest.raises(InvalidMessage, match="page_token"):
            store.query_by_key("t", "k", page_token=token)
    with pytest.raises(TopicNotFound):
        store.query_by_key("nope", "k")


def test_a_reader_of_its_own_says_how_far_the_index_is(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 1)
        put(store, 30, "k")
        assert store.query_by_key("t", "k").indexed_offset == store.reader.visible_offset
    with StoreReader.open(tmp_path) as reader:
        assert reader.query_by_key("t", "k").record_count == 30


@pytest.mark.parametrize("name", ["basic", "slow", "cleaned"])
def test_every_key_of_a_brokers_store_finds_exactly_its_messages(name: str) -> None:
    """Times are the records' own: the index knows whole seconds, and the first of a file not even."""
    messages = [line for line in golden_dump(name) if line["type"] == "message"]
    by_key: dict[tuple[str, str], list[dict[str, int]]] = {}
    for message in messages:
        for key in set(message["properties"].get("KEYS", "").split(" ")) - {""}:
            by_key.setdefault((message["topic"], key), []).append(message)
    assert by_key
    with StoreReader.open(golden_store(name)) as reader:
        for (topic, key), wanted in sorted(by_key.items())[::3]:
            times = sorted(message["storeTimestamp"] for message in wanted)
            for begin, end in ((0, None), (times[len(times) // 2], times[-1])):
                expected = sorted(
                    message["commitLogOffset"]
                    for message in wanted
                    if begin <= message["storeTimestamp"] <= (end or 1 << 60)
                )[-64:]
                result = reader.query_by_key(
                    topic, key, begin_timestamp_ms=begin, end_timestamp_ms=end, max_messages=64
                )
                assert [record.commit_offset for record in decoded(result)] == expected


def test_a_page_holds_no_more_bytes_than_a_client_takes(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large records make small pages; one that alone is larger comes alone; none is left out."""
    monkeypatch.setattr(key_query, "PAGE_BYTES_MAX", 5_000)
    sizes = [2_000, 2_000, 2_000, 9_000, 10, 2_000]
    for size in sizes:
        store.put(Message(topic="t", body=b"x" * size, keys=("k",)))
    found = [[len(each.body) for each in page] for page in pages(store)]
    assert found == [[10, 2_000], [9_000], [2_000, 2_000], [2_000]]

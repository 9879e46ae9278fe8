"""Delayed messages of both clients: when they come, what takes them back, and what is refused, with which error."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from real_processes import until

from penstock import Client, FailedPrecondition, InvalidArgument

DAY_S = 86_400.0


def bodies(client: Client, topic: str) -> list[bytes]:
    return [record.body for record in client.consume(topic, follow=False)]


def test_each_way_of_saying_when_delivers_then(client: Client, topic: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    at = datetime.fromtimestamp(now_ms / 1000, UTC) + timedelta(milliseconds=600)
    for body, fields in {
        b"date": {"deliver_at": at},
        b"milliseconds": {"deliver_at": now_ms + 600},
        b"seconds": {"delay": 0.6},
        b"delta": {"delay": timedelta(milliseconds=600)},
        b"level": {"delay_level": 1},
    }.items():
        stored = client.produce(topic, body, queue_id=0, **fields)  # type: ignore[arg-type]
        assert stored.queue_offset == -1
        assert bool(stored.recall_handle) is (body != b"level")

    until(lambda: len(bodies(client, topic)) == 5)

    for record in client.consume(topic, follow=False):
        assert record.store_timestamp_ms >= now_ms + (1_000 if record.body == b"level" else 600)


def test_a_time_that_is_over_delivers_at_once(client: Client, topic: str) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    for fields in ({"deliver_at": past}, {"deliver_at": 1}, {"delay": -5.0}, {"delay": 0}):
        stored = client.produce(topic, b"now", queue_id=0, **fields)  # type: ignore[arg-type]
        assert (stored.queue_offset >= 0, stored.recall_handle) == (True, ""), fields
    assert bodies(client, topic) == [b"now"] * 4


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"delay": 40 * DAY_S + 60}, "TIMER_DELIVER_MS"),
        ({"deliver_at": datetime.now(UTC) + timedelta(days=41)}, "TIMER_DELIVER_MS"),
        ({"delay_level": -1}, "delay_level"),
        ({"delay_level": 2, "delay": 5.0}, ""),
        ({"delay": 5.0, "deliver_at": datetime.now(UTC) + timedelta(seconds=5)}, ""),
        ({"deliver_at": 0}, "deliver_at"),
        ({"deliver_at": "2030-01-01"}, "deliver_at"),
        ({"deliver_at": 1e12}, "deliver_at"),
        ({"delay": "10s"}, "delay"),
        ({"delay": float("inf")}, "delay"),
    ],
)
def test_a_delay_that_cannot_be_is_refused_and_nothing_is_stored(
    client: Client, topic: str, fields: dict[str, Any], field: str
) -> None:
    before = client.timers().pending_count
    with pytest.raises(InvalidArgument) as refused:
        client.produce(topic, b"refused", **fields)
    assert not field or field in (refused.value.field or str(refused.value))
    assert client.timers().pending_count <= before
    assert bodies(client, topic) == []


def test_a_handle_recalls_its_message_of_its_topic_and_not_too_late(
    client: Client, topic: str
) -> None:
    stored = client.produce(topic, b"recalled", delay=60.0)
    kept = client.produce(topic, b"kept", delay=0.2)
    other = f"{topic}-other"
    client.create_topic(other, queues=1)

    with pytest.raises(InvalidArgument, match="is of topic"):
        client.recall(stored.recall_handle, topic=other)
    assert client.recall(stored.recall_handle, topic=topic) == stored.unique_key

    until(lambda: bodies(client, topic) == [b"kept"])
    with pytest.raises(FailedPrecondition, match=kept.unique_key) as late:
        client.recall(kept.recall_handle)
    assert late.value.reason == "TOO_LATE_TO_RECALL"


@pytest.mark.parametrize("handle", ["", "no handle", "djEg", "x" * 5_000])
def test_what_is_no_handle_recalls_nothing(client: Client, handle: str) -> None:
    with pytest.raises(InvalidArgument):
        client.recall(handle)

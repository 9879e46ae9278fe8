"""Iterating over queues and topics against a reader whose calls meet faults."""

from __future__ import annotations

import threading
import time

import grpc
import pytest
from faulty_penstock import FaultyPenstock, rich_status
from real_processes import until

from penstock import Client, Damage, DataLoss, OffsetOutOfRange, TopicNotFound


def fill(client: Client, count: int, queue_id: int = 0, tag: str = "") -> None:
    for n in range(count):
        client.produce("orders", b"%d-%d" % (queue_id, n), queue_id=queue_id, tag=tag)


def test_a_consumer_is_open_when_it_is_made(client: Client) -> None:
    """The latest record is that of the moment, and a topic that does not exist is reported there."""
    client.produce("orders", b"before", queue_id=0)
    consumer = client.consume("orders", queues=[0], start="latest", follow=False)
    client.produce("orders", b"after", queue_id=0)

    assert consumer.positions == {0: 1}
    assert [record.body for record in consumer] == [b"after"]
    with pytest.raises(TopicNotFound):
        client.consume("nothing of that name")


def test_the_record_in_hand_is_not_counted_as_consumed_on_close(client: Client) -> None:
    """A consumer that fails at a record gets that record again."""
    fill(client, 5)
    with client.consume("orders", group="g", queues=[0], follow=False) as consumer:
        next(consumer)
        next(consumer)

    assert [o.queue_offset for o in client.offsets("g")] == [1]
    again = next(client.consume("orders", group="g", queues=[0], follow=False))
    assert again.queue_offset == 1


def test_offsets_are_committed_on_the_way(client: Client) -> None:
    """With a short interval, before the end and without a close."""
    fill(client, 20)
    consumer = client.consume("orders", group="g", queues=[0], follow=False, commit_interval_ms=1)
    for _ in range(10):
        next(consumer)
        time.sleep(0.002)

    [offset] = client.offsets("g")
    assert 5 <= offset.queue_offset <= 9
    consumer.close()


def test_without_auto_commit_nothing_is_committed(client: Client) -> None:
    """Not at the end and not on close."""
    fill(client, 3)
    with client.consume("orders", group="g", follow=False, auto_commit=False) as consumer:
        assert len(list(consumer)) == 3

    assert client.offsets("g") == []


def test_where_to_start(client: Client) -> None:
    """Earliest, an offset, a time; latest sees only what comes after."""
    fill(client, 5)
    third = list(client.pull("orders", 0, 0).records)[2].store_timestamp_ms

    def first(start: object) -> int:
        return next(
            client.consume("orders", queues=[0], start=start, follow=False)  # type: ignore[arg-type]
        ).queue_offset

    assert first("earliest") == 0
    assert first(3) == 3
    from datetime import UTC, datetime

    assert first(datetime.fromtimestamp(third / 1000, UTC)) == 2
    assert list(client.consume("orders", queues=[0], start="latest", follow=False)) == []


def test_a_group_s_offset_goes_before_the_start_asked_for(client: Client) -> None:
    """``start`` is for queues where the group has none."""
    fill(client, 5)
    client.commit_offset("g", "orders", 0, 4)

    record = next(client.consume("orders", group="g", queues=[0], start="earliest", follow=False))

    assert record.queue_offset == 4


def test_the_next_answer_comes_while_records_are_handed_out(
    client: Client, faulty: FaultyPenstock
) -> None:
    """One record is asked for, and two or three pulls are made: what is not asked for is bounded."""
    faulty.pull_records_max = 7
    fill(client, 70)
    with client.consume("orders", queues=[0], follow=False) as consumer:
        next(consumer)
        until(lambda: faulty.calls["Pull"] >= 2)
        time.sleep(0.1)
        assert faulty.calls["Pull"] <= 3
        assert [record.queue_offset for record in consumer] == list(range(1, 70))


def test_a_pull_ahead_that_fails_is_made_again(client: Client, faulty: FaultyPenstock) -> None:
    faulty.pull_records_max = 7
    fill(client, 30)
    away = rich_status(grpc.StatusCode.UNAVAILABLE, "away")
    faulty.faults["Pull"].extend([None, away])  # type: ignore[list-item]
    records = client.consume("orders", queues=[0], follow=False)
    assert [record.queue_offset for record in records] == list(range(30))


def test_a_tag_filters_and_progress_covers_what_was_filtered_out(client: Client) -> None:
    """The group's offset goes to the end although the last records did not match."""
    fill(client, 3, tag="a")
    fill(client, 3, tag="b")

    with client.consume("orders", group="g", queues=[0], tag="a", follow=False) as consumer:
        assert len(list(consumer)) == 3

    assert [o.queue_offset for o in client.offsets("g")] == [6]


def test_following_gives_records_as_they_come(client: Client, faulty: FaultyPenstock) -> None:
    """The iterator waits at the end and wakes for each new record, on any queue."""
    consumer = client.consume("orders", follow=True)
    got: list[bytes] = []

    def consume() -> None:
        for record in consumer:
            got.append(record.body)
            if len(got) == 6:
                return

    thread = threading.Thread(target=consume)
    thread.start()
    for n in range(6):
        time.sleep(0.02)
        client.produce("orders", b"%d" % n, queue_id=n % 4)
    thread.join(60)

    assert sorted(got) == [b"%d" % n for n in range(6)]
    assert faulty.calls["Pull"] < 30  # long polls, not a busy loop
    consumer.close()


def test_a_damaged_record_is_raised_and_can_be_gone_past(
    client: Client, faulty: FaultyPenstock
) -> None:
    """The error stands in the record's place, says where to go on, and iterating on does so."""
    fill(client, 6)
    faulty.damage("orders", 0, 2)
    consumer = client.consume("orders", group="g", queues=[0], follow=False)
    seen = [next(consumer).queue_offset, next(consumer).queue_offset]

    with pytest.raises(DataLoss, match="body does not match its CRC") as caught:
        next(consumer)

    assert caught.value.next_offset == 3
    assert caught.value.damage is not None
    assert caught.value.damage.queue_offset == 2
    assert (caught.value.topic, caught.value.queue_id) == ("orders", 0)
    assert consumer.positions == {0: 2}
    assert seen + [record.queue_offset for record in consumer] == [0, 1, 3, 4, 5]
    resumed = client.consume("orders", queues=[0], start=caught.value.next_offset, follow=False)
    assert [record.queue_offset for record in resumed] == [3, 4, 5]


def test_a_consumer_that_stops_at_damage_does_not_commit_past_it(
    client: Client, faulty: FaultyPenstock
) -> None:
    """The next consumer of the group meets the damaged record again."""
    fill(client, 4)
    faulty.damage("orders", 0, 2)
    with (
        pytest.raises(DataLoss),
        client.consume("orders", group="g", queues=[0], follow=False) as consumer,
    ):
        list(consumer)

    assert [o.queue_offset for o in client.offsets("g")] == [2]


def test_damaged_records_are_skipped_through_the_callback(
    client: Client, faulty: FaultyPenstock
) -> None:
    """Each is reported once, in its place, and the others are returned."""
    fill(client, 5)
    faulty.damage("orders", 0, 0)
    faulty.damage("orders", 0, 4)
    told: list[tuple[str, int, int]] = []

    def skip(topic: str, queue_id: int, damage: Damage) -> None:
        told.append((topic, queue_id, damage.queue_offset))

    consumer = client.consume("orders", queues=[0], follow=False, on_damaged=skip)

    assert [record.queue_offset for record in consumer] == [1, 2, 3]
    assert told == [("orders", 0, 0), ("orders", 0, 4)]


def test_an_offset_beyond_the_end_is_reported(client: Client) -> None:
    """As after the loss of a log's tail; going on starts at the end."""
    fill(client, 3)
    consumer = client.consume("orders", queues=[0], start=50, follow=False)

    with pytest.raises(OffsetOutOfRange) as caught:
        next(consumer)

    assert (caught.value.queue_offset, caught.value.next_offset) == (50, 3)
    assert list(consumer) == []


def test_a_following_consumer_outlasts_a_restart_of_the_reader(
    client: Client, faulty: FaultyPenstock
) -> None:
    """Connections are cut in the middle; no record is lost or doubled."""
    fill(client, 3)
    consumer = client.consume("orders", queues=[0], follow=True)
    seen = [next(consumer).queue_offset for _ in range(3)]
    faulty.stop()
    faulty.start()
    client.wait_ready(30)  # a produce over the connection that was cut would be of unknown outcome
    fill(client, 3)

    seen += [next(consumer).queue_offset for _ in range(3)]

    assert seen == [0, 1, 2, 3, 4, 5]
    consumer.close()


def test_a_consumer_that_does_not_follow_gives_up_in_the_end(
    client: Client, faulty: FaultyPenstock
) -> None:
    """It raises the reader's error once its timeout is over."""
    client.produce("orders", b"x", queue_id=0)
    with Client(**faulty.addresses, timeout_s=1) as client:
        client.wait_ready(30)
        consumer = client.consume("orders", queues=[0], follow=False)
        faulty.fail_next("Pull", rich_status(grpc.StatusCode.UNAVAILABLE, "away"), times=10**4)
        from penstock import Unavailable

        with pytest.raises(Unavailable, match="away"):
            next(consumer)

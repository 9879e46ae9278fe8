"""What a group did with one message, as its leases know it."""

from pathlib import Path

import pytest
from lease_store import GROUP, ORDERLY, TOPIC, LeaseStore, put, put_messages, with_retries

from storage import Message
from storage.leases.values import LeaseTrack, TrackState
from storage.tables.groups import GroupConfig

HANDLE = 40
LATE = GroupConfig(name="late").changed(begin="latest")


@pytest.fixture
def store(tmp_path: Path) -> LeaseStore:
    put(tmp_path / "store", 10)
    return LeaseStore(tmp_path / "store")


def track(store: LeaseStore, queue_offset: int, group: str = GROUP.name) -> LeaseTrack:
    [found] = [each for each in store.leases.tracks(TOPIC, 0, queue_offset) if each.group == group]
    return found


def state(store: LeaseStore, queue_offset: int, group: str = GROUP.name) -> TrackState:
    return track(store, queue_offset, group).state


def test_a_message_is_ready_then_in_flight_then_done(store: LeaseStore) -> None:
    batch = store.receive(2, lease_ms=30_000)
    assert state(store, 2) is TrackState.READY
    assert track(store, 1) == LeaseTrack(
        GROUP.name, TrackState.IN_FLIGHT, 1, store.clock.ms + 30_000
    )

    store.acknowledge(batch.receipt_handles[:HANDLE])
    store.clock.pass_ms(30_000)

    assert track(store, 0) == LeaseTrack(GROUP.name, TrackState.DONE)
    assert track(store, 1) == LeaseTrack(GROUP.name, TrackState.READY, 1, 0)
    assert state(store, 2) is TrackState.READY
    assert store.leases.tracks("other", 0, 0) == []


def test_a_message_that_was_given_back_waits_for_its_next_attempt(store: LeaseStore) -> None:
    group = with_retries(3, 5_000)
    batch = store.receive(1, group)
    store.leases.give_back(group, TOPIC, batch.receipt_handles)

    assert track(store, 0) == LeaseTrack(GROUP.name, TrackState.WAITING, 1, store.clock.ms + 5_000)


def test_a_lease_that_its_client_renews_names_the_client_and_its_end(store: LeaseStore) -> None:
    store.receive(1, client_id="c-1", lease_ms=10_000)
    store.clock.pass_ms(8_000)
    store.leases.renew(["c-1"])

    assert track(store, 0) == LeaseTrack(
        GROUP.name, TrackState.IN_FLIGHT, 1, store.clock.ms + 10_000, "c-1"
    )


def test_a_message_behind_another_of_its_message_group_waits_without_a_time(tmp_path: Path) -> None:
    messages = [
        Message(topic=TOPIC, body=b"%d" % number, properties={"__SHARDINGKEY": "a"})
        for number in range(2)
    ]
    put_messages(tmp_path / "store", messages)
    store = LeaseStore(tmp_path / "store")
    store.receive(2, ORDERLY)

    assert [track(store, each) for each in (0, 1)] == [
        LeaseTrack(GROUP.name, TrackState.IN_FLIGHT, 1, store.clock.ms + 60_000),
        LeaseTrack(GROUP.name, TrackState.WAITING),
    ]


def test_a_message_that_is_given_up_is_dead_before_its_copy_is_stored(store: LeaseStore) -> None:
    batch = store.receive(1)
    store.leases.dead_letter(GROUP.name, TOPIC, batch.receipt_handles)

    assert track(store, 0) == LeaseTrack(GROUP.name, TrackState.DEAD, 1)


def test_what_was_stored_before_a_group_began_is_not_done(store: LeaseStore) -> None:
    """Also by a journal that was written anew; a group that is set back gets it, and has done it then."""
    store.receive(1, LATE)
    put(store.directory, 1)
    store.receive(1, LATE)
    assert [state(store, each, LATE.name) for each in (9, 10)] == [
        TrackState.BEFORE_BEGIN,
        TrackState.IN_FLIGHT,
    ]
    store.leases.compact(always=True)
    store.kill()
    assert state(store, 9, LATE.name) is TrackState.BEFORE_BEGIN

    store.leases.reset(LATE, TOPIC, {0: 8})
    batch = store.receive(1, LATE)
    store.leases.acknowledge(LATE.name, TOPIC, batch.receipt_handles)
    store.kill()

    assert [state(store, each, LATE.name) for each in (7, 8, 9)] == [
        TrackState.BEFORE_BEGIN,
        TrackState.DONE,
        TrackState.READY,
    ]


def test_a_group_whose_messages_a_filter_dropped_has_done_them(tmp_path: Path) -> None:
    put(tmp_path / "store", 1, tag="a")
    store = LeaseStore(tmp_path / "store")
    store.receive(1, tag_expression="b")

    assert state(store, 0) is TrackState.DONE

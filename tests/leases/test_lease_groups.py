"""What groups add to leases: order, owners that renew, dead letters, retry topics that a broker left, resets."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lease_store import GROUP, ORDERLY, TOPIC, LeaseStore, bodies, put, put_messages, with_retries

from storage import Message, MessageStore
from storage.errors import TopicNotFound
from storage.message import Damage

HANDLE = 40


@pytest.fixture
def store(tmp_path: Path) -> LeaseStore:
    put(tmp_path / "store", 20)
    return LeaseStore(tmp_path / "store")


def of_groups(directory: Path, keys: str) -> LeaseStore:
    """A store of one queue; each letter is a message of that message group, a blank one without."""
    messages = [
        Message(TOPIC, b"%d" % number, properties={"__SHARDINGKEY": key} if key != " " else {})
        for number, key in enumerate(keys)
    ]
    put_messages(directory, messages)
    return LeaseStore(directory)


def lose_end(directory: Path, before: Path) -> None:
    """Let the log and its queues be what they were in a copy of the store."""
    for name in ("commitlog", "consumequeue", "checkpoint"):
        path = directory / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        copy = before / name
        shutil.copytree(copy, path) if copy.is_dir() else shutil.copy(copy, path)


# ---- order


def test_a_message_that_is_given_up_lets_the_next_one_through(tmp_path: Path) -> None:
    store = of_groups(tmp_path / "store", "aa")
    batch = store.receive(1, ORDERLY)
    heard: list[tuple[str, str]] = []

    dead, refused = store.leases.dead_letter(GROUP.name, TOPIC, batch.receipt_handles)
    store.leases.add_listener(lambda *names: heard.append(names))
    assert refused == []
    assert store.receive(1, ORDERLY).record_count == 0
    store.leases.end_dead_letters(GROUP.name, TOPIC, dead)

    assert heard == [(GROUP.name, TOPIC)]
    assert bodies(store.receive(1, ORDERLY)) == [1]


def test_the_same_attempt_is_given_what_it_still_holds(tmp_path: Path) -> None:
    store = of_groups(tmp_path / "store", "abcd")
    first = store.receive(3, ORDERLY, attempt_id="one")
    store.acknowledge(first.receipt_handles[:HANDLE])
    store.clock.pass_ms(1_000)

    again = store.receive(3, ORDERLY, attempt_id="one")

    assert bodies(again) == [1, 2]
    assert again.attempts.tolist() == [1, 1]
    assert again.receipt_handles == first.receipt_handles[HANDLE:]
    assert again.lease_end_ms == first.lease_end_ms
    assert bodies(store.receive(3, ORDERLY, attempt_id="two")) == [3]
    store.acknowledge(again.receipt_handles)
    assert store.receive(3, ORDERLY, attempt_id="one").record_count == 0


def test_a_queue_waits_when_too_many_of_it_are_blocked(tmp_path: Path) -> None:
    put_messages(
        tmp_path / "store",
        [Message(TOPIC, b"%d" % n, properties={"__SHARDINGKEY": "a"}) for n in range(50)],
    )
    store = LeaseStore(tmp_path / "store", blocked_max=10)

    store.receive(8, ORDERLY)

    (queue,) = store.leases.progress(ORDERLY, TOPIC)
    assert 11 <= queue.next_offset <= 11 + 8
    for number in range(1, 50):
        store.clock.pass_ms(60_000)
        batch = store.receive(8, ORDERLY)
        assert bodies(batch) == [number - 1]
        store.acknowledge(batch.receipt_handles)
        last = store.receive(1, ORDERLY)
        assert bodies(last) == [number]


def test_a_group_that_becomes_orderly_or_not_goes_on(tmp_path: Path) -> None:
    store = of_groups(tmp_path / "store", "aabb")
    assert bodies(store.receive(1)) == [0]
    assert bodies(store.receive(8, ORDERLY)) == [1, 2]
    store.kill()

    assert bodies(store.receive(8)) == [3]


# ---- owners


def test_leases_of_an_owner_last_while_it_renews_them(store: LeaseStore) -> None:
    batch = store.receive(2, client_id="one", lease_ms=10_000)
    other = store.receive(2, client_id="two", lease_ms=10_000)
    for _ in range(5):
        store.clock.pass_ms(8_000)
        assert store.leases.renew(["one", "nobody"]) == 1

    assert bodies(store.receive(32)) == bodies(other) + list(range(4, 20))
    store.kill()
    store.clock.pass_ms(9_999)
    assert store.receive(32).record_count == 0
    assert store.acknowledge(batch.receipt_handles[:HANDLE]) == []
    store.clock.pass_ms(1)
    assert bodies(store.receive(32)) == bodies(batch)[1:]


def test_leases_of_an_owner_that_has_gone_end_a_moment_later(store: LeaseStore) -> None:
    batch = store.receive(3, client_id="one")
    store.leases.renew(["one"])

    assert store.leases.release(["one"]) == 3

    assert store.leases.nearest_ms(GROUP.name, TOPIC) == store.clock.ms + 1_000
    store.clock.pass_ms(999)
    assert bodies(store.receive(1)) == [3]
    store.clock.pass_ms(1)
    assert bodies(store.receive(3)) == bodies(batch)


def test_a_lease_is_not_renewed_for_ever(tmp_path: Path) -> None:
    put(tmp_path / "store", 1)
    store = LeaseStore(tmp_path / "store")
    group = with_retries(16, 7_000)
    batch = store.receive(1, group, client_id="one")
    for _ in range(3 * 60):
        store.clock.pass_ms(60_000)
        store.leases.renew(["one"])
        assert store.receive(1, group).record_count == 0

    store.clock.pass_ms(6_999)
    assert store.receive(1, group).record_count == 0
    assert store.acknowledge(batch.receipt_handles) == []
    store.kill()
    assert store.leases.progress(group, TOPIC)[0].group_offset == 1


# ---- what a broker left


def test_retries_that_a_broker_left_belong_to_the_topic(tmp_path: Path) -> None:
    put(tmp_path / "store", 2)
    put(tmp_path / "store", 3, topic="%RETRY%billing_orders", tag="any")
    store = LeaseStore(tmp_path / "store")

    batch = store.receive(32, tag_expression="other")
    assert bodies(batch) == [0, 1, 2]
    assert store.acknowledge(batch.receipt_handles[: 2 * HANDLE]) == []
    store.kill()
    store.clock.pass_ms(60_000)

    again = store.receive(32)
    assert (bodies(again), again.attempts.tolist()) == ([2], [2])
    assert [each.topic for each in store.leases.progress(GROUP, TOPIC)] == [
        TOPIC,
        "%RETRY%billing_orders",
    ]


# ---- offsets that change


def test_a_topic_that_was_made_again_begins_at_its_beginning(store: LeaseStore) -> None:
    handles = store.receive(10).receipt_handles
    store.reopen()
    store.acknowledge(handles)
    store.leases.close()
    store.reader.close()
    with MessageStore.open(store.directory) as writer:
        writer.delete_topic(TOPIC)
    store.open()
    with pytest.raises(TopicNotFound):
        store.receive(1)
    store.leases.close()
    store.reader.close()
    put(store.directory, 15)
    store.open()

    batch = store.receive(32)

    assert (bodies(batch), batch.attempts.tolist()) == (list(range(15)), [1] * 15)


@pytest.mark.parametrize("count", [5, 15])
def test_after_a_loss_of_the_end_of_the_log_new_messages_are_not_passed_over(
    tmp_path: Path, count: int
) -> None:
    """They have the queue offsets of lost ones that were acknowledged."""
    directory = tmp_path / "store"
    put(directory, 10)
    shutil.copytree(directory, tmp_path / "before")
    put(directory, 10)
    store = LeaseStore(directory)
    batch = store.receive(20)
    store.acknowledge(batch.receipt_handles[HANDLE:])
    store.kill()
    store.reader.close()
    lose_end(directory, tmp_path / "before")
    put(directory, count)
    store.open()

    assert bodies(store.receive(32)) == list(range(count))
    store.clock.pass_ms(60_000)
    assert bodies(store.receive(1)) == [0]


def test_messages_that_are_not_shown_yet_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that recovers shows less for a moment than was handed out before."""
    put(tmp_path / "store", 10)
    store = LeaseStore(tmp_path / "store")
    group = with_retries(1)
    store.receive(10, group)
    store.kill()
    whole = store.reader.log.visible_offset
    half = store.reader.queue_view(TOPIC, 0).unit(5).commit_offset
    monkeypatch.setattr(store.reader, "shows_all", lambda: False)
    for attempt in (2, 3):
        store.clock.pass_ms(60_000)
        store.reader._visibility._fixed_bounds = (0, half)
        store.reader._queues.forget()
        early = [store.receive(3, group) for _ in range(4)]
        assert sum(each.record_count for each in early) == (5 if attempt == 2 else 0)
        assert store.leases.progress(group, TOPIC)[0].next_offset == 10

        store.reader._visibility._fixed_bounds = (0, whole)
        store.clock.pass_ms(100)
        late = store.receive(10, group)
        if attempt == 2:
            assert bodies(late) == [5, 6, 7, 8, 9]
        else:
            assert late.dead[0].queue_offsets.tolist() == [5, 6, 7, 8, 9]


# ---- damage


def test_a_damaged_record_is_passed_over_and_reported(store: LeaseStore) -> None:
    (path,) = [
        each for each in (store.directory / "commitlog").iterdir() if each.name.endswith("0")
    ][:1]
    data = bytearray(path.read_bytes())
    commit_offset = store.reader.queue_view(TOPIC, 0).unit(3).commit_offset
    data[commit_offset + 90] ^= 1
    with path.open("r+b") as file:
        file.write(data)

    batch = store.receive(32)

    assert len(bodies(batch)) == 19
    (damage,) = batch.damaged
    assert isinstance(damage, Damage)
    assert damage.queue_offset == 3
    store.acknowledge(batch.receipt_handles)
    assert store.leases.progress(GROUP, TOPIC)[0].group_offset == 20

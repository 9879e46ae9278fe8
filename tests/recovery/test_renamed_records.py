"""Bits that flip in a record's name or host, and files that are not the log's: nothing else moves."""

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from engine_store import pull_rebuilt
from flips import flip
from recovered_copy import recovered_copy
from steps_to_try import cases_to_try

from storage import Message, MessageStore, StoreConfig, offline

CONFIG = StoreConfig(
    commit_log_file_size=1 << 14,
    consume_queue_file_size=200,
    index_slot_count=20,
    index_entry_count=100,
    append_property_crc=False,
)
COUNT = 40
VICTIM = 25
QUEUE_ID, STORE_PORT, TOPIC = 12, 68, 95


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A broker's kind of store, without property CRCs, and the commit offsets of its records."""
    directory = tmp_path_factory.mktemp("plain")
    with MessageStore.open(directory, CONFIG) as store:
        store.create_topic("orders", 1)
        put = [
            store.put(Message(topic="orders", body=b"%06d" % n, queue_id=0)) for n in range(COUNT)
        ]
    for left in ("checkpoint", "config/penstock.json"):
        (directory / left).unlink()
    return directory, [result.commit_offset for result in put]


def copy_with(stored, tmp_path, position, bit):
    source, commit_offsets = stored
    directory = tmp_path / "store"
    shutil.copytree(source, directory)
    log = directory / "commitlog" / f"{0:020d}"
    flip(log, commit_offsets[VICTIM] + position, bit)
    return directory


def places(directory, topic="orders"):
    """Places in the queue, after a recovery."""
    spec = {"store": {}}
    with tempfile.TemporaryDirectory() as scratch:
        lines = list(offline.dump(recovered_copy(directory, Path(scratch), spec), spec))
    return {
        line["commitLogOffset"]: line["queueOffset"]
        for line in lines
        if line["type"] == "message" and line["topic"] == topic and "servedAs" not in line
    }


@pytest.mark.parametrize("queues_lost", [False, True])
@pytest.mark.parametrize(
    ("position", "bit"), [(TOPIC, 1), (TOPIC, 0x10), (QUEUE_ID, 0x80), (QUEUE_ID + 1, 0x20)]
)
def test_a_record_that_took_another_name_moves_no_other(
    stored, tmp_path, position, bit, queues_lost
):
    """Its place is kept, reported as damaged, and the store is opened and written on."""
    directory = copy_with(stored, tmp_path, position, bit)
    if queues_lost:
        shutil.rmtree(directory / "consumequeue")
        shutil.rmtree(directory / "config")
    expected = {offset: n for n, offset in enumerate(stored[1]) if n != VICTIM}
    found = places(directory)
    assert {offset: found.get(offset) for offset in expected} == expected
    for _ in range(2):
        with MessageStore.open(directory, CONFIG) as store:
            result = pull_rebuilt(store, "orders", 0, queue_offset=0, max_messages=COUNT)
            assert result.queue_offsets == tuple(expected.values())
            assert [damage.queue_offset for damage in result.damaged] == [VICTIM]
            assert store.max_offset("orders", 0) == COUNT
        (directory / "checkpoint").unlink()


@pytest.mark.parametrize("bit", [0x80, 0x01])
def test_a_host_that_no_client_decodes_is_damage(stored, tmp_path, bit):
    """A port below 0 or above 65535 is not a good record's."""
    directory = copy_with(stored, tmp_path, STORE_PORT + (bit == 1), bit)
    lines = list(offline.dump(directory, {"store": {}}))
    damaged = [line for line in lines if line["type"] == "damaged"]
    assert [line["commitLogOffset"] for line in damaged] == [stored[1][VICTIM]]
    assert len(places(directory)) == COUNT - 1


@pytest.mark.parametrize("name", ["5", f"{1 << 12:020d}", "9" * 20, "8" * 19])
def test_a_file_that_is_not_the_logs_hides_nothing(stored, tmp_path, name):
    directory = copy_with(stored, tmp_path, TOPIC, 0)
    (directory / "commitlog" / name).write_bytes(b"\xff" * 50)
    assert places(directory) == {offset: n for n, offset in enumerate(stored[1])}


@pytest.mark.parametrize(
    "document",
    [
        [], None, {"topicConfigTable": []}, {"topicConfigTable": {"orders": None}},
        {"topicConfigTable": {"orders": {"perm": "x"}}}, {"offsetTable": 3},
        {"offsetTable": {"a@b": 5}}, {"offsetTable": {"a@b": {"x": 1}}}, {"dataVersion": 7},
        {"subscriptionGroupTable": [1]},
    ],
)  # fmt: skip
def test_settings_of_the_wrong_kind_are_as_good_as_none(stored, tmp_path, document):
    directory = copy_with(stored, tmp_path, TOPIC, 0)
    for name in ("topics", "consumerOffset", "delayOffset", "subscriptionGroup"):
        for ending in (".json", ".json.bak"):
            (directory / "config" / (name + ending)).write_text(json.dumps(document))
    assert len(places(directory)) == COUNT
    list(offline.doctor(directory))
    with MessageStore.open(directory, CONFIG) as store:
        assert store.max_offset("orders", 0) == COUNT


@pytest.mark.parametrize("ahead", cases_to_try([0, 30, -3, 1], 2))
@pytest.mark.parametrize("file_size", cases_to_try([1 << 12, 1 << 14]))
def test_a_record_that_took_the_name_of_another_queue_takes_no_place_there(
    tmp_path, ahead, file_size
):
    """Whatever queue offset it brings along: the units that stood before say whose the place is."""
    directory = tmp_path / "store"
    with MessageStore.open(directory, replace(CONFIG, commit_log_file_size=file_size)) as store:
        store.create_topic("orders", 2)
        for n in range(10 + max(ahead, 0)):
            store.put(Message(topic="orders", body=b"%06d" % n, queue_id=1))
        for _ in range(10 + max(-ahead, 0)):
            store.put(Message(topic="orders", body=b"", queue_id=0))
        victim = store.put(Message(topic="orders", body=b"victim", queue_id=1)).commit_offset
        for n in range(20):
            store.put(Message(topic="orders", body=b"%06d" % n, queue_id=n % 2))
    for left in ("checkpoint", "config/penstock.json"):
        (directory / left).unlink()
    expected = places(directory)
    del expected[victim]
    start = victim - victim % file_size
    log = directory / "commitlog" / f"{start:020d}"
    flip(log, victim - start + QUEUE_ID + 3)
    found = places(directory)
    assert {offset: found.get(offset) for offset in expected} == expected
    with MessageStore.open(directory, CONFIG) as store:
        result = pull_rebuilt(store, "orders", 1, queue_offset=0, max_messages=100)
        assert len(result.damaged) == 1
        result = pull_rebuilt(store, "orders", 0, queue_offset=0, max_messages=100)
        assert result.damaged == ()


def test_a_zeroed_queue_whose_first_records_are_gone_begins_where_its_log_begins(tmp_path):
    """What stands before the first record is filled up, as in a file that is made again."""
    directory = tmp_path / "store"
    with MessageStore.open(directory, replace(CONFIG, commit_log_file_size=1 << 12)) as store:
        store.create_topic("orders", 1)
        for _ in range(45):
            store.put(Message(topic="orders", body=bytes(100), queue_id=0))
    (directory / "checkpoint").unlink()
    expected = {o: n for o, n in places(directory).items() if o >= 1 << 12}
    assert min(expected.values()) % 10
    (directory / "commitlog" / f"{0:020d}").unlink()
    for path in directory.glob("consumequeue/orders/0/*"):
        path.write_bytes(bytes(path.stat().st_size))
    assert places(directory) == expected

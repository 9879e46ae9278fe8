"""Recovery of directories that a real broker left: nothing intact is lost, nothing right is touched, and more is stored."""

import hashlib
import shutil

import numpy as np
import pytest
from engine_store import pull_rebuilt
from golden import CLEAN, STORES, TORN, golden_copy, golden_dump, golden_spec
from steps_to_try import steps_to_try

from storage import Message, MessageStore, StoreConfig
from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import MappedFileQueue
from storage.format.checkpoint import WriterSlot
from storage.queues.consume_queue import as_units
from storage.queues.queue_table import QueueTable
from storage.recovery.recover import recover
from storage.view.log.recovery_cases import Start

ZEROS = bytes(1 << 20)
INTACT = 3636  # records of the damaged stores' base
LOST_WITH_THE_DAMAGE = {
    "torn-last-record": 1, "cut-length": 1, "zeroed-tail": 5, "flip-last-body": 1,
    "flip-last-magic": 1, "flip-near-end-body": 1, "flip-early-body": 1, "flip-early-magic": 1,
    "no-abort-torn": 1, "lost-middle-commitlog-file": 537,
}  # fmt: skip


def open_and_recover(directory, spec):
    filesystem = FileSystem()
    files = MappedFileQueue(
        filesystem,
        directory / "commitlog",
        file_size=spec.get("mappedFileSizeCommitLog", 1 << 30),
    )
    queues = QueueTable(
        filesystem,
        directory / "consumequeue",
        file_size=spec.get("mappedFileSizeConsumeQueue", 6_000_000),
    )
    recovered = recover(
        files,
        queues,
        WriterSlot(),
        abort_found=(directory / "abort").exists(),
        unflushed_bytes_max=1 << 28,
    )
    return files, queues, recovered


def digest(path):
    """Of all bytes, but zeros are not hashed: a log file is a gibibyte of them."""
    found, position = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(len(ZEROS)):
            if piece != ZEROS[: len(piece)]:
                found.update(b"%d:" % position + piece)
            position += len(piece)
    return position, found.hexdigest()


def digests(directory):
    return {
        str(path.relative_to(directory)): digest(path)
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def queue_digests(directory):
    return {k: v for k, v in digests(directory).items() if k.startswith("consumequeue/")}


@pytest.mark.parametrize("name", CLEAN)
def test_a_cleanly_stopped_store_is_not_changed_by_one_byte(name, tmp_path):
    store = golden_copy(name, tmp_path)
    before = digests(store)

    _, _, recovered = open_and_recover(store, golden_spec(name)["store"])

    summary = next(line for line in golden_dump(name) if line["type"] == "commitlog")
    assert recovered.start is Start.FULL
    assert (recovered.min_offset, recovered.end_offset) == (summary["start"], summary["end"])
    assert recovered.record_count == summary["records"]
    assert recovered.damage == ()
    assert recovered.units_written == 0
    assert digests(store) == before


@pytest.mark.parametrize("name", [n for n in STORES if n not in ("ext", "cleaned", "defaults")])
def test_queues_rebuilt_from_the_log_alone_are_the_brokers_byte_for_byte(name, tmp_path):
    """Tags, delivery times, light queues and all; killed stores are first brought up to their log."""
    spec = golden_spec(name)["store"]
    store = golden_copy(name, tmp_path)
    open_and_recover(store, spec)
    expected = queue_digests(store)
    shutil.rmtree(store / "consumequeue")

    _, _, recovered = open_and_recover(store, spec)

    assert recovered.units_written > 0
    assert queue_digests(store) == expected


def test_rebuilt_queues_of_a_cleaned_log_are_filled_up_to_their_first_record(tmp_path):
    spec = golden_spec("cleaned")["store"]
    store = golden_copy("cleaned", tmp_path)
    kept = {path.relative_to(store): path.read_bytes() for path in store.glob("consumequeue/*/*/*")}
    shutil.rmtree(store / "consumequeue")

    _, _, recovered = open_and_recover(store, spec)

    prefilled = 0
    for path in store.glob("consumequeue/*/*/*"):
        units = as_units(path.read_bytes())
        original = as_units(kept[path.relative_to(store)])
        differing = units[units != original]
        assert np.all(differing["offset"] == 0)
        assert np.all(differing["size"] == 0x7FFFFFFF)
        assert np.all(original[units != original]["offset"] < recovered.min_offset)
        prefilled += len(differing)
    assert prefilled > 0


@pytest.mark.parametrize("variant", TORN)
def test_every_intact_record_of_a_damaged_store_is_in_its_queue(variant, tmp_path):
    """Those too which the broker drops: after a flipped bit, without queues, with a short file."""
    store = golden_copy(f"torn/{variant}", tmp_path)

    _, queues, recovered = open_and_recover(store, golden_spec("torn")["store"])

    assert recovered.record_count == INTACT - LOST_WITH_THE_DAMAGE.get(variant, 0)
    served = 0
    for topic, queue_id in queues.on_disk():
        queue = queues.get(topic, queue_id)
        units = as_units(queue.read(0, queue.next_offset))
        assert np.all(units["size"] > 0)
        damaged = np.zeros(len(units), bool)
        for damage in recovered.damage:
            damaged |= (units["offset"] >= damage.begin_offset) & (
                units["offset"] < damage.end_offset
            )
        assert np.all(units["offset"] < recovered.end_offset)
        served += int(np.count_nonzero(~damaged))
    assert served == recovered.record_count


def test_queue_offsets_of_damaged_records_without_queues_get_placeholders_at_the_damage(tmp_path):
    store = golden_copy("torn/flip-early-body", tmp_path)
    shutil.rmtree(store / "consumequeue")

    _, queues, recovered = open_and_recover(store, golden_spec("torn")["store"])

    (damage,) = recovered.damage
    pointing = 0
    for topic, queue_id in queues.on_disk():
        queue = queues.get(topic, queue_id)
        units = as_units(queue.read(0, queue.next_offset))
        pointing += int(np.count_nonzero(units["offset"] == damage.begin_offset))
    assert pointing == 1


def test_nothing_is_left_after_the_end(tmp_path):
    """An old record after the end would be met again when the log has grown up to it."""
    store = golden_copy("torn/stale-tail", tmp_path)

    files, _, recovered = open_and_recover(store, golden_spec("torn")["store"])

    last = files.find(recovered.end_offset)
    assert not np.any(last.array[recovered.end_offset - last.start_offset :])


def served_count(store, topic, queue_id):
    """Return how many records pulls of one queue give."""
    offset, count = store.min_offset(topic, queue_id), 0
    while offset < store.max_offset(topic, queue_id):
        result = pull_rebuilt(store, topic, queue_id, queue_offset=offset, max_messages=2_000)
        assert result.next_offset > offset
        count += result.record_count
        offset = result.next_offset
    return count


@pytest.mark.parametrize("variant", steps_to_try(list(TORN), 4))
def test_a_damaged_store_is_opened_served_and_written_on(variant, tmp_path):
    directory = golden_copy(f"torn/{variant}", tmp_path)
    config = StoreConfig(index_slot_count=500, index_entry_count=2_000)
    with MessageStore.open(directory, config) as store:
        assert store.writer.config.commit_log_file_size == 262_144
        assert store.writer.config.consume_queue_file_size == (
            6_000_000 if variant.startswith("only-commitlog") or "no-consumequeue" in variant
            else 6_000
        )  # fmt: skip
        good = 0
        for topic in ("audit_log-1", "few", "orders", "payments"):
            queue_count = store.writer.describe_topic(topic)[0].queue_count
            good += sum(served_count(store, topic, queue) for queue in range(queue_count))
        assert good == INTACT - LOST_WITH_THE_DAMAGE.get(variant, 0)
        result = store.put(Message(topic="orders", queue_id=0, body=b"after"))
        assert store.max_offset("orders", 0) == result.queue_offset + 1
    with MessageStore.open(directory, config) as store:
        assert not store.writer.stopped_unclean
        last = store.pull("orders", 0, queue_offset=result.queue_offset)
        assert last.record_count == 1

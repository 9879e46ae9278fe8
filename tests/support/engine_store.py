"""Small stores for the engine's tests: little files, and everything read back through the files."""

import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from storage.config import StoreConfig
from storage.errors import QueueRebuilding, StoreBusy
from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.config_json import decode_config, encode_config
from storage.format.properties import encode_properties
from storage.format.record import Record, decode_record, encode_for_batch
from storage.kernels.columns import CHECK_ALL
from storage.message import PullResult
from storage.queues.consume_queue import as_units
from storage.reader import StoreReader
from storage.store import MessageStore
from storage.tables.checked_json import decode_checked, encode_checked
from storage.view.log.walk import DamagedRange, RecordRun, walk_log

LOG_FILE_SIZE = 1 << 16
QUEUE_FILE_SIZE = 100 * 20
PASSING = shutil.ignore_patterns("*.tmp")
"""Of a store that is copied while its writer runs: files that are renamed the next moment."""


def small_config(**changes) -> StoreConfig:
    """Return a configuration whose files roll after a few hundred messages."""
    fields = {
        "commit_log_file_size": LOG_FILE_SIZE,
        "consume_queue_file_size": QUEUE_FILE_SIZE,
        "index_slot_count": 50,
        "index_entry_count": 200,
        "flush_interval_ms": 50,
        "queue_flush_interval_ms": 50,
    }
    return StoreConfig(**(fields | changes))


def append(writer, records):
    """Append a batch, trying again for as long as the writer is busy (creating a file, say)."""
    while True:
        try:
            return writer.append_batch(records)
        except StoreBusy as busy:
            threading.Event().wait(busy.retry_delay_ms / 1000)


def record(
    topic="t", queue_id=0, body=b"body", *, tag="", keys="", properties=None, sys_flag=0,
    property_crc=True,
):  # fmt: skip
    """Encode one record as a client puts it in a batch; without ``property_crc`` no checksum covers where it belongs."""
    block = encode_properties({"KEYS": keys, "TAGS": tag, **(properties or {})})
    return encode_for_batch(
        topic, queue_id, body, block, 0, sys_flag, 1_000, "10.0.0.1:5", property_crc
    )


def leave_as_a_broker_does(directory: Path) -> None:
    """Remove what a broker does not keep: a closed store is then one that we have not opened yet."""
    (directory / "checkpoint").unlink()
    for name in ("penstock.json*", "*.checksum"):
        for path in (directory / "config").glob(name):
            path.unlink()


def note_as_a_broker_does(directory: Path) -> None:
    """Leave in a closed store's checkpoint that a broker has stored something since."""
    path = directory / "checkpoint"
    page = bytearray(path.read_bytes())
    physic_timestamp_ms = int.from_bytes(page[:8]) + 1
    path.write_bytes(physic_timestamp_ms.to_bytes(8) + page[8:])


def change_settings(directory: Path, **fields: object) -> None:
    """Change fields of ``penstock.json``, as if they had been written so."""
    path = directory / "config" / "penstock.json"
    data = encode_checked(decode_checked(path.read_bytes()) | fields, indent=1)
    FileSystem().write_atomically(path, data, backup=False, copy=(".bak", data))


def change_topics(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the table in ``topics.json``, name to topic in a broker's shape."""
    path = directory / "config" / "topics.json"
    document = decode_config(path.read_bytes())
    change(document["topicConfigTable"])
    path.write_bytes(encode_config(document))


def records_on_disk(directory: Path) -> list[Record]:
    """Decode every record of a commit log; a damaged one is an error."""
    files = ReadOnlyMappedFileQueue(FileSystem(), directory / "commitlog", file_size=0)
    found = []
    for step in walk_log(files, files.first_offset, files.end_offset, checks=CHECK_ALL):
        assert not isinstance(step, DamagedRange), step
        if isinstance(step, RecordRun):
            found += [decode_record(step.data, int(position)) for position in step.rows[:, 0]]
    return found


def queue_units_on_disk(directory: Path, topic: str, queue_id: int) -> list[tuple[int, int, int]]:
    """Return ``(commit_offset, size, tag_code)`` of every unit that is not zero, file by file."""
    paths = sorted((directory / "consumequeue" / topic / str(queue_id)).iterdir())
    units = as_units(b"".join(path.read_bytes() for path in paths))
    used = np.flatnonzero(units["size"])
    return [tuple(int(value) for value in units[place]) for place in used]


def records_in(slices: Iterable[Any]) -> list[Record]:
    """Decode what a pull, a query or a receive has handed out."""
    found = []
    for part in slices:
        position = 0
        while position < len(part):
            found.append(decode_record(part, position))
            position += found[-1].total_size
        assert position == len(part)
    return found


def bodies_in(slices: Iterable[Any]) -> list[bytes]:
    """Return the bodies of these records."""
    return [bytes(each.body) for each in records_in(slices)]


def check_queues_match_log(directory: Path) -> int:
    """Require that units and records name each other, one to one; return how many there are."""
    records = records_on_disk(directory)
    by_queue: dict[tuple[str, int], list[Record]] = {}
    for each in records:
        by_queue.setdefault((each.topic, each.queue_id), []).append(each)
    for (topic, queue_id), members in by_queue.items():
        units = queue_units_on_disk(directory, topic, queue_id)
        assert [unit[0] for unit in units] == [each.commit_offset for each in members]
        assert [each.queue_offset for each in members] == list(range(len(members)))
    return len(records)


def pull_rebuilt(
    store: MessageStore | StoreReader, topic: str, queue_id: int, *, queue_offset: int, **asked: Any
) -> PullResult:
    """Pull as soon as the writer has rebuilt what a reader finds wrong from an offset on."""
    deadline = time.monotonic() + 30
    at = queue_offset
    while at < store.max_offset(topic, queue_id):
        try:
            at = max(store.pull(topic, queue_id, queue_offset=at).next_offset, at + 1)
        except QueueRebuilding:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    return store.pull(topic, queue_id, queue_offset=queue_offset, **asked)

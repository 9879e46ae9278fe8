"""Where things lie in a store directory, and the settings that its files were made with.

``config/penstock.json`` is ours alone; a broker ignores it::

    {"formatVersion": 1, "storeId": "32 hex digits", "commitLogFileSize": 1073741824,
     "consumeQueueFileSize": 6000000, "indexSlotCount": 5000000, "indexEntryCount": 20000000,
     "flushMode": "async", "deletedTopics": {"name": commit offset of its deletion},
     "deletingTopic": "name of one whose deletion is decided and not done; else it is not there"}

A directory that a broker made has none: then the file sizes are those found on disk.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.config import StoreConfig
from storage.errors import NotAStore, UnsupportedFormat
from storage.files.mapped_file_queue import FileEntry, list_files
from storage.format.consume_entry import UNIT_SIZE
from storage.format.names import parse_file_name

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem

FORMAT_VERSION: Final = 1
SETTINGS_FILE: Final = "penstock.json"
PAGE_SIZE: Final = 4096  # a log file that is shorter was cut
_STORE_NAMES: Final = frozenset(
    {"commitlog", "consumequeue", "config", "checkpoint", "index", "lock", "abort"}
)


class StorePaths:
    """Paths inside one store directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commit_log = root / "commitlog"
        self.consume_queue = root / "consumequeue"
        self.index = root / "index"
        self.config = root / "config"
        self.settings = root / "config" / SETTINGS_FILE
        self.checkpoint = root / "checkpoint"
        self.abort = root / "abort"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """What ``penstock.json`` says; ``present`` is False when there is none that can be read."""

    present: bool = False
    store_id: bytes = b""
    sizes: Mapping[str, int] = field(default_factory=dict)
    deleted_topics: Mapping[str, int] = field(default_factory=dict)
    deleting_topic: str = ""


_SIZE_FIELDS: Final = {
    "commitLogFileSize": "commit_log_file_size",
    "consumeQueueFileSize": "consume_queue_file_size",
    "indexSlotCount": "index_slot_count",
    "indexEntryCount": "index_entry_count",
}


def check_is_store(filesystem: FileSystem, root: Path) -> None:
    """Raise NotAStore if the directory holds things, but nothing that a store has."""
    try:
        names = {entry.name for entry in filesystem.list_directory(root)}
    except OSError as error:
        raise NotAStore(f"{root} cannot be read: {error.strerror or error}") from error
    if names and not names & _STORE_NAMES:
        raise NotAStore(f"{root} is not a store: it has no commitlog, and it is not empty")


def load_settings(filesystem: FileSystem, paths: StorePaths) -> StoreSettings:
    """Read ``penstock.json``. Raises UnsupportedFormat when newer code wrote it."""
    try:
        document = json.loads(filesystem.read_bytes(paths.settings))
        version = int(document["formatVersion"])
        if version > FORMAT_VERSION:
            raise UnsupportedFormat(
                f"{paths.settings} has format version {version}; this code reads {FORMAT_VERSION}"
            )
        return StoreSettings(
            present=True,
            store_id=bytes.fromhex(document["storeId"]),
            sizes={name: int(document[key]) for key, name in _SIZE_FIELDS.items()},
            deleted_topics={k: int(v) for k, v in document.get("deletedTopics", {}).items()},
            deleting_topic=str(document.get("deletingTopic", "")),
        )
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return StoreSettings()


def save_settings(
    filesystem: FileSystem, paths: StorePaths, settings: StoreSettings, config: StoreConfig
) -> StoreSettings:
    """Write ``penstock.json`` for ``config``, with a new store id if there is none yet; durable."""
    store_id = settings.store_id or secrets.token_bytes(16)
    sizes = {name: int(getattr(config, name)) for name in _SIZE_FIELDS.values()}
    document: dict[str, object] = {
        "formatVersion": FORMAT_VERSION,
        "storeId": store_id.hex(),
        **{key: sizes[name] for key, name in _SIZE_FIELDS.items()},
        "flushMode": config.flush_mode,
        "deletedTopics": dict(settings.deleted_topics),
    }
    if settings.deleting_topic:
        document["deletingTopic"] = settings.deleting_topic
    filesystem.make_directory(paths.config)
    filesystem.write_atomically(
        paths.settings, json.dumps(document, indent=1).encode(), backup=False
    )
    return replace(settings, present=True, store_id=store_id, sizes=sizes)


def effective_config(
    filesystem: FileSystem, paths: StorePaths, config: StoreConfig, settings: StoreSettings
) -> StoreConfig:
    """Return ``config`` with the sizes that this store was made with. Raises NotAStore."""
    if settings.present:
        return with_settled_sizes(filesystem, paths, config, settings)
    log_size = _common_size(list_files(filesystem, paths.commit_log))
    if log_size:
        config = replace(config, commit_log_file_size=max(log_size, PAGE_SIZE))
    queue_size = _common_size(_queue_files(filesystem, paths.consume_queue))
    if queue_size:
        config = replace(config, consume_queue_file_size=queue_size // UNIT_SIZE * UNIT_SIZE)
    return config


def with_settled_sizes(
    filesystem: FileSystem, paths: StorePaths, config: StoreConfig, settings: StoreSettings
) -> StoreConfig:
    """Return ``config`` with the sizes in ``penstock.json``. Raises NotAStore if none can have them.

    Log files are whole pages, but where a broker made them otherwise.
    """
    try:
        config = replace(config, **settings.sizes)  # type: ignore[arg-type]
    except ValueError as error:
        raise NotAStore(f"{paths.settings} is damaged: {error}") from error
    size = config.commit_log_file_size
    if size % PAGE_SIZE:
        found = [entry.size for entry in list_files(filesystem, paths.commit_log)]
        if found and size not in found:
            raise NotAStore(f"{paths.settings} is damaged: no commit log file has {size} bytes")
    return config


def queues_on_disk(filesystem: FileSystem, directory: Path) -> Iterator[tuple[str, int]]:
    """Yield topic and id of every queue that has a directory below ``consumequeue/``."""
    for topic in filesystem.list_directory(directory):
        if topic.is_directory:
            for queue_id in queues_of_topic(filesystem, directory, topic.name):
                yield topic.name, queue_id


def queues_of_topic(filesystem: FileSystem, directory: Path, topic: str) -> Iterator[int]:
    """Yield the ids of one topic's queues that have a directory below ``consumequeue/``."""
    for queue in filesystem.list_directory(directory / topic):
        queue_id = parse_file_name(queue.name)
        if queue.is_directory and queue_id is not None:
            yield queue_id


def _queue_files(filesystem: FileSystem, directory: Path) -> Iterator[FileEntry]:
    for topic, queue_id in queues_on_disk(filesystem, directory):
        yield from list_files(filesystem, directory / topic / str(queue_id))


def _common_size(files: Iterable[FileEntry]) -> int:
    """Return the length most files have, 0 without any file.

    Among equals the one at whose multiples more files begin, and then the longer.
    """
    listed = [entry for entry in files if entry.size >= UNIT_SIZE]
    counts = Counter(entry.size for entry in listed)
    highest = max(counts.values(), default=0)
    fitting = {
        size: sum(entry.start_offset % size == 0 for entry in listed)
        for size, count in counts.items()
        if count == highest
    }
    return max(fitting, key=lambda size: (fitting[size], size), default=0)

"""``config/penstock.json``: who a store is, and the sizes that its files were made with.

It is ours alone, with a checksum (``storage.tables.checked_json``), and twice, as a store is lost
without it: the first file that is whole counts, and each start writes both. A broker ignores it, and a
directory that a broker made has none::

    {"formatVersion": 4, "storeId": "32 hex digits", "commitLogFileSize": 1073741824,
     "consumeQueueFileSize": 6000000, "indexSlotCount": 5000000, "indexEntryCount": 20000000,
     "flushMode": "async", "deletedTopics": {"name": commit offset of its deletion},
     "deletingTopic": "name of one whose deletion is decided and not done; else it is not there",
     "lostOffsets": [[group, topic, queue id, queue offset, end of the queue], ...] or not there,
     "checksum": "8 hex digits"}
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from storage.clock import SystemClock
from storage.errors import StoreBusy, UnsupportedFormat
from storage.tables.checked_json import (
    MISSING,
    NOT_WHOLE,
    decode_checked,
    encode_checked,
    file_problem,
)
from storage.tables.consumer_offsets import OffsetBeyond, ProgressOrders
from storage.view.incarnations import Incarnations
from storage.view.layout import StorePaths

if TYPE_CHECKING:
    from pathlib import Path

    from storage.config import StoreConfig
    from storage.files.filesystem import FileStatus, FileSystem, ReadFileSystem

FORMAT_VERSION: Final = 4
_BACKUP: Final = ".bak"

_SIZE_FIELDS: Final = {
    "commitLogFileSize": "commit_log_file_size",
    "consumeQueueFileSize": "consume_queue_file_size",
    "indexSlotCount": "index_slot_count",
    "indexEntryCount": "index_entry_count",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """What ``penstock.json`` says; ``present`` is False when there is none that can be read.

    ``sizes`` are named as in ``StoreConfig``.
    """

    present: bool = False
    store_id: bytes = b""
    sizes: Mapping[str, int] = field(default_factory=dict)
    deleted_topics: Mapping[str, int] = field(default_factory=dict)
    deleting_topic: str = ""
    lost_offsets: tuple[OffsetBeyond, ...] = ()

    @property
    def incarnations(self) -> Incarnations:
        """Which topic of each name is meant."""
        return Incarnations(self.deleted_topics, self.deleting_topic)


def load_settings(filesystem: ReadFileSystem, paths: StorePaths) -> StoreSettings:
    """Read ``penstock.json``, or its ``.bak``. Raises UnsupportedFormat when other code wrote it, OSError, StoreBusy."""
    for path in _files(paths):
        try:
            return _read(filesystem, path)
        except (*MISSING, *NOT_WHOLE):
            continue
    return StoreSettings()


def damaged_settings(filesystem: ReadFileSystem, paths: StorePaths) -> dict[str, str]:
    """Return which of the two files are there and not whole, and what is wrong with each."""
    found = {}
    for path in _files(paths):
        try:
            _read(filesystem, path)
        except MISSING:
            continue
        except (OSError, StoreBusy, *NOT_WHOLE) as error:
            found[path.name] = file_problem(error)
    return found


def _files(paths: StorePaths) -> tuple[Path, Path]:
    return paths.settings, paths.settings.with_name(paths.settings.name + _BACKUP)


def _read(filesystem: ReadFileSystem, path: Path) -> StoreSettings:
    document = decode_checked(filesystem.read_bytes(path))
    return _settings_in(document, place=filesystem.location(path))


def _settings_in(document: Mapping[str, Any], *, place: str) -> StoreSettings:
    version = int(document["formatVersion"])
    if version != FORMAT_VERSION:
        raise UnsupportedFormat(
            f"{place} has format version {version}; this code reads {FORMAT_VERSION} alone"
        )
    return StoreSettings(
        present=True,
        store_id=bytes.fromhex(document["storeId"]),
        sizes={name: int(document[key]) for key, name in _SIZE_FIELDS.items()},
        deleted_topics=_deleted_topics(document),
        deleting_topic=str(document.get("deletingTopic", "")),
        lost_offsets=tuple(OffsetBeyond(*each) for each in document.get("lostOffsets", ())),
    )


def _document(settings: StoreSettings, *, flush_mode: str) -> dict[str, object]:
    document: dict[str, object] = {
        "formatVersion": FORMAT_VERSION,
        "storeId": settings.store_id.hex(),
        **{key: settings.sizes[name] for key, name in _SIZE_FIELDS.items()},
        "flushMode": flush_mode,
        "deletedTopics": dict(settings.deleted_topics),
    }
    if settings.deleting_topic:
        document["deletingTopic"] = settings.deleting_topic
    if settings.lost_offsets:
        document["lostOffsets"] = settings.lost_offsets
    return document


def save_settings(
    filesystem: FileSystem, paths: StorePaths, settings: StoreSettings, config: StoreConfig
) -> StoreSettings:
    """Write ``penstock.json`` for ``config``, with a new store id if there is none yet; durable."""
    saved = replace(
        settings,
        present=True,
        store_id=settings.store_id or new_store_id(),
        sizes={name: int(getattr(config, name)) for name in _SIZE_FIELDS.values()},
    )
    filesystem.make_directory(paths.config)
    document = _document(saved, flush_mode=config.flush_mode)
    data = encode_checked(document, indent=1)
    filesystem.write_atomically(paths.settings, data, backup=False, copy=(_BACKUP, data))
    return saved


class SettingsFile:
    """The settings of a store that may change meanwhile; the file is read again only when it did."""

    def __init__(self, filesystem: ReadFileSystem, paths: StorePaths) -> None:
        self._filesystem = filesystem
        self._paths = paths
        self._kept: tuple[FileStatus, StoreSettings] | None = None

    def load(self) -> StoreSettings:
        """Return what ``load_settings`` returns now."""
        try:  # first: what changes after it is seen the next time
            status = self._filesystem.status(self._paths.settings)
        except (FileNotFoundError, NotADirectoryError):
            return load_settings(self._filesystem, self._paths)  # of its .bak
        kept = self._kept
        if kept is not None and kept[0] == status:
            return kept[1]
        settings = load_settings(self._filesystem, self._paths)
        # Nothing is kept of what changed a moment ago: it may change again without its status doing so.
        has_settled = status.has_settled(SystemClock().now_ms())
        self._kept = (status, settings) if has_settled else None
        return settings

    def orders(self) -> ProgressOrders:
        """Return what whoever keeps groups' offsets is to do; a deletion that is not done is not among it."""
        settings = self.load()
        name, deleted = settings.deleting_topic, settings.deleted_topics
        done = {topic: at for topic, at in deleted.items() if topic != name} if name else deleted
        return ProgressOrders(done, settings.lost_offsets)


def new_store_id() -> bytes:
    """Return 16 random bytes, a store's identity."""
    return secrets.token_bytes(16)


def _deleted_topics(document: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(offset) for name, offset in document.get("deletedTopics", {}).items()}

"""Consumer groups' progress: ``config/consumerOffset.json`` in a broker's shape, with its ``.bak``.

Commits are kept in memory; ``save`` makes them durable. One process at a time may commit: the first
commit takes a byte of the store's lock file, and the file is read again before it. Others only
read, and see what was last saved.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from storage.clock import Clock
from storage.errors import InvalidMessage
from storage.files.directory_lock import DirectoryLock, LockRole
from storage.files.filesystem import FileSystem
from storage.format.config_json import MALFORMED, decode_config, encode_config, integer_keyed
from storage.format.names import group_name_problem

OFFSETS_FILE: Final = "consumerOffset.json"
LIGHT_OFFSETS_FILE: Final = "lmqConsumerOffset.json"  # of a broker with light queues, instead
SEPARATOR: Final = "@"
COMMITS_OF_A_VERSION: Final = 500

Table = dict[str, dict[int, int]]  # "topic@group" -> queue id -> queue offset


class ConsumerOffsets:
    """The offset table. Safe to use from several threads."""

    def __init__(self, filesystem: FileSystem, config_directory: Path, clock: Clock) -> None:
        self._filesystem = filesystem
        self._directory = config_directory
        self._clock = clock
        self._guard = threading.RLock()
        self._lock: DirectoryLock | None = None
        self._table: Table = {}
        self._document: dict[str, Any] = {}
        self._commits = 0
        self._saved_commits = 0
        self._name = OFFSETS_FILE
        self.reload()

    def reload(self) -> None:
        """Read the file again, or its ``.bak``; with neither readable there is no progress."""
        with self._guard:
            if self._lock is not None:
                return
            self._document, self._table = {}, {}
            for name in (OFFSETS_FILE, LIGHT_OFFSETS_FILE):
                if self._load(name) or self._load(name + ".bak"):
                    self._name = name
                    break

    def _load(self, name: str) -> bool:
        try:
            document = decode_config(self._filesystem.read_bytes(self._directory / name))
            table = document.get("offsetTable") or {}
            self._table = {str(key): integer_keyed(offsets) for key, offsets in table.items()}
        except (FileNotFoundError, *MALFORMED):
            return False
        self._document = document
        return bool(document)

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set progress in memory. Raises InvalidMessage, and StoreLocked if another commits here."""
        problem = group_name_problem(group)
        if problem:
            raise InvalidMessage("group", problem)
        with self._guard:
            self._own()
            self._table.setdefault(f"{topic}{SEPARATOR}{group}", {})[queue_id] = queue_offset
            self._commits += 1

    def _own(self) -> None:
        if self._lock is None:
            lock = DirectoryLock.acquire(
                self._filesystem, self._directory.parent, LockRole.CONSUMER_OFFSETS
            )
            self.reload()
            self._lock = lock

    def fetch(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return progress in one queue, None if there is none."""
        with self._guard:
            self.reload()
            return self._table.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id)

    def fetch_group(self, group: str) -> dict[str, dict[int, int]]:
        """Return a group's progress by topic and queue id."""
        with self._guard:
            self.reload()
            found: dict[str, dict[int, int]] = {}
            for key, offsets in self._table.items():
                topic, _, of_group = key.rpartition(SEPARATOR)
                if of_group == group:
                    found[topic] = dict(offsets)
            return found

    def groups(self) -> list[str]:
        """Return the names of all groups that have progress, sorted."""
        with self._guard:
            self.reload()
            return sorted({key.rpartition(SEPARATOR)[2] for key in self._table})

    @property
    def table(self) -> Mapping[str, Mapping[int, int]]:
        """The whole table, a copy: ``topic@group`` to queue id to queue offset."""
        with self._guard:
            self.reload()
            return {key: dict(offsets) for key, offsets in self._table.items()}

    def save(self) -> bool:
        """Make all commits so far durable; False if there was nothing new to save."""
        with self._guard:
            if self._commits == self._saved_commits:
                return False
            commits = self._commits
            self._filesystem.make_directory(self._directory)
            self._filesystem.write_atomically(
                self._directory / self._name, encode_config(self._to_document()), backup=True
            )
            self._saved_commits = commits
            return True

    def _to_document(self) -> dict[str, Any]:
        topics_of_group: dict[str, list[str]] = {}
        for key in self._table:
            topic, _, group = key.rpartition(SEPARATOR)
            topics_of_group.setdefault(group, []).append(topic)
        version = self._document.get("dataVersion") or {}
        since = self._commits // COMMITS_OF_A_VERSION - self._saved_commits // COMMITS_OF_A_VERSION
        counter = int(version.get("counter", 0)) + since
        self._document = {
            **self._document,
            "dataVersion": {
                "counter": counter,
                "stateVersion": int(version.get("stateVersion", 0)),
                "timestamp": self._clock.now_ms(),
            },
            "groupTopicMap": topics_of_group,
            "offsetTable": {key: dict(sorted(o.items())) for key, o in self._table.items()},
        }
        return dict(sorted(self._document.items()))

    def close(self) -> None:
        """Save and give up the right to commit."""
        with self._guard:
            try:
                self.save()
            finally:
                if self._lock is not None:
                    self._lock.release()
                    self._lock = None

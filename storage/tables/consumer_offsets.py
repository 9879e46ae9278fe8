"""Consumer groups' progress: ``config/consumerOffset.json`` in a broker's shape.

Commits are kept in memory; ``save`` makes them durable. One process at a time may commit: the first
commit takes a byte of the store's lock file, and the file is read again before it. Others only
read, and see what was last saved.

A writer has two orders in ``config/penstock.json`` for whoever keeps the offsets, as it may not change them
then. Both are followed before anything else, however late; ``config/progressNotes.json`` has what is done:

- Progress in a topic that was deleted goes: one that is made again has other messages at the same queue
  offsets.
- Offsets that lay after the end of their queue when a start found the end of the log lost are lowered to it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from storage.clock import Clock
from storage.errors import InvalidMessage, StoreFull
from storage.files.directory_lock import DirectoryLock, LockRole
from storage.files.filesystem import FileSystem
from storage.format.config_json import encode_config, integer_keyed
from storage.format.names import group_name_problem
from storage.tables.checked_json import MISSING, NOT_WHOLE, decode_checked, encode_checked
from storage.tables.table_files import (
    LIGHT_OFFSETS_FILE,
    OFFSETS_FILE,
    data_version,
    read_table,
    replace_table,
    settle_table,
    table_in,
)

_LOG: Final = logging.getLogger(__name__)
SEPARATOR: Final = "@"
OFFSET_MAP: Final = "offsetTable"
COMMITS_OF_A_VERSION: Final = 500

NOTES_FILE: Final = "progressNotes.json"
_TOPICS: Final = "deletedTopics"
_LOST: Final = "lostCount"

Table = dict[str, dict[int, int]]  # "topic@group" -> queue id -> queue offset


class OffsetBeyond(NamedTuple):
    """A group's offset that lies after the end of its queue."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    end_offset: int


class ProgressOrders(NamedTuple):
    """Topics that were deleted, with the commit offsets of that; and offsets that were lost, the oldest first."""

    deletions: Mapping[str, int]
    lost: tuple[OffsetBeyond, ...]


def _note_of(orders: ProgressOrders) -> dict[str, Any]:
    return {_TOPICS: dict(orders.deletions), _LOST: len(orders.lost)}


def offset_key(topic: str, group: str) -> str:
    """Return what a group's progress in a topic is kept under."""
    return f"{topic}{SEPARATOR}{group}"


def topic_and_group(key: str) -> tuple[str, str]:
    """Return the topic and the group of a key."""
    topic, _, group = key.rpartition(SEPARATOR)
    return topic, group


def offsets_in(document: Mapping[str, Any]) -> Table:
    """Return the offsets of a ``consumerOffset.json``. Raises ``MALFORMED``."""
    table = table_in(document, OFFSET_MAP)
    return {str(key): integer_keyed(offsets) for key, offsets in table.items()}


def offset_fields(table: Table, version: Mapping[str, int]) -> dict[str, Any]:
    """Return the fields of a ``consumerOffset.json``."""
    topics_of_group: dict[str, list[str]] = {}
    for key in table:
        topic, group = topic_and_group(key)
        topics_of_group.setdefault(group, []).append(topic)
    return {
        "dataVersion": version,
        "groupTopicMap": topics_of_group,
        OFFSET_MAP: {key: dict(sorted(offsets.items())) for key, offsets in table.items()},
    }


def _parsed(document: dict[str, Any]) -> tuple[dict[str, Any], Table]:
    if not document:
        raise ValueError("an empty document: its .bak may hold more")
    return document, offsets_in(document)


class ConsumerOffsets:
    """The offset table. Safe to use from several threads."""

    def __init__(
        self, filesystem: FileSystem, config_directory: Path, clock: Clock,
        orders: Callable[[], ProgressOrders] | None = None,
    ) -> None:  # fmt: skip
        """``orders`` returns a writer's, the same objects while they are the same; without it they are not followed."""
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
        self._note_path = config_directory / NOTES_FILE
        self._orders = orders
        self._done: ProgressOrders | None = None
        self.reload()

    def reload(self) -> None:
        """Read the file of the table that counts; without one there is no progress."""
        with self._guard:
            if self._lock is not None:
                self._take_over()
                return
            self._document, self._table = {}, {}
            for name in (OFFSETS_FILE, LIGHT_OFFSETS_FILE):
                read = read_table(self._filesystem, self._directory, name, _parsed)
                if read is not None:
                    self._document, self._table = read
                    self._name = name
                    break
            if self._orders is not None and (orders := self._orders()) != ({}, ()):
                self._follow(orders, self._known())

    def groups_of(self, topic: str) -> dict[str, dict[int, int]]:
        """Return the progress in a topic, by queue id, of each group that has any."""
        with self._guard:
            self.reload()
            found = [(topic_and_group(key), progress) for key, progress in self._table.items()]
            return {group: dict(progress) for (name, group), progress in found if name == topic}

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Set progress in memory. Raises InvalidMessage, and StoreLocked if another commits here."""
        problem = group_name_problem(group)
        if problem:
            raise InvalidMessage("group", problem)
        with self._guard:
            self.own()
            self._table.setdefault(offset_key(topic, group), {})[queue_id] = queue_offset
            self._commits += 1

    def forget(self, group: str) -> None:
        """Remove all progress of a group, in memory. Raises StoreLocked if another commits here."""
        with self._guard:
            self.own()
            for key in [key for key in self._table if topic_and_group(key)[1] == group]:
                del self._table[key]
                self._commits += 1

    def own(self) -> None:
        """Take the right to commit, which is kept until ``close``; StoreLocked if another commits here.

        Settings and leases of groups belong to whoever has it, too. Raises StoreFull where nothing says yet
        which deletions are done, and that cannot be written.
        """
        with self._guard:
            if self._lock is not None:
                self._take_over()
                return
            lock = DirectoryLock.acquire(
                self._filesystem, self._directory.parent, LockRole.CONSUMER_OFFSETS
            )
            try:
                settle_table(self._filesystem, self._directory / self._name, _parsed)
                self.reload()
            except BaseException:
                lock.release()
                raise
            self._lock = lock
            self._take_over()

    def _take_over(self) -> None:
        """Do what a writer has left, save that, and note it: a kill in between repeats it."""
        if self._orders is None or (orders := self._orders()) == self._done:
            return
        known = self._known()
        try:
            if self._follow(orders, known):
                self._commits += 1
                self.save()
            if known != _note_of(orders):
                document = encode_checked(_note_of(orders))
                self._filesystem.write_atomically(self._note_path, document, backup=False)
            self._done = orders
        except StoreFull:  # the next look does it
            # Without a note nobody could say later which deletions came before what is committed now.
            if known is None:
                raise

    def _known(self) -> dict[str, Any] | None:
        """Return the note of what is done; None where nobody knows."""
        try:
            return decode_checked(self._filesystem.read_bytes(self._note_path))
        except MISSING:
            return None
        except NOT_WHOLE as error:
            _LOG.error("config/%s is damaged (%s) and left out", self._note_path.name, error)
            return None

    def _follow(self, orders: ProgressOrders, known: dict[str, Any] | None) -> bool:
        """Do what is not known to be done, in memory; return whether there was anything.

        Nobody knows of which deletions offsets were left by a broker: they stay. What groups have set since stays.
        """
        deletions, lost = orders
        known = known or {_TOPICS: deletions, _LOST: 0}
        gone = {topic for topic, offset in deletions.items() if known[_TOPICS].get(topic) != offset}
        for key in [key for key in self._table if topic_and_group(key)[0] in gone]:
            del self._table[key]
        new = lost[known[_LOST] :]
        for each in new:
            offsets = self._table.get(offset_key(each.topic, each.group), {})
            if offsets.get(each.queue_id) == each.queue_offset:
                offsets[each.queue_id] = each.end_offset
        return bool(gone or new)

    def beyond(self, end_of: Callable[[str, int], int | None]) -> list[OffsetBeyond]:
        """Return the offsets after their queue's end, as ``end_of(topic, queue_id)`` knows it.

        Records were lost, or the table was damaged where nothing said so. A queue of which it returns None is
        left out.
        """
        found = []
        for key, offsets in sorted(self.table.items()):
            topic, group = topic_and_group(key)
            for queue_id, offset in sorted(offsets.items()):
                end_offset = end_of(topic, queue_id)
                if end_offset is not None and offset > end_offset:
                    found.append(OffsetBeyond(group, topic, queue_id, offset, end_offset))
        return found

    def lower(self, found: Sequence[OffsetBeyond]) -> None:
        """Set offsets to the ends of their queues, in memory. Raises StoreLocked if another commits here."""
        with self._guard:
            self.own()
            for each in found:
                self._table[offset_key(each.topic, each.group)][each.queue_id] = each.end_offset
                self._commits += 1

    def fetch(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return progress in one queue, None if there is none."""
        with self._guard:
            self.reload()
            return self._table.get(offset_key(topic, group), {}).get(queue_id)

    def fetch_group(self, group: str) -> dict[str, dict[int, int]]:
        """Return a group's progress by topic and queue id."""
        with self._guard:
            self.reload()
            found: dict[str, dict[int, int]] = {}
            for key, offsets in self._table.items():
                topic, of_group = topic_and_group(key)
                if of_group == group:
                    found[topic] = dict(offsets)
            return found

    def groups(self) -> list[str]:
        """Return the names of all groups that have progress, sorted."""
        with self._guard:
            self.reload()
            return sorted({topic_and_group(key)[1] for key in self._table})

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
            data = encode_config(self._to_document())
            replace_table(self._filesystem, self._directory / self._name, data)
            self._saved_commits = commits
            return True

    def _to_document(self) -> dict[str, Any]:
        held = self._document.get("dataVersion")
        version = held if isinstance(held, dict) else {}
        since = self._commits // COMMITS_OF_A_VERSION - self._saved_commits // COMMITS_OF_A_VERSION
        now = data_version(
            int(version.get("counter", 0)) + since,
            int(version.get("stateVersion", 0)),
            self._clock.now_ms(),
        )
        self._document = {**self._document, **offset_fields(self._table, now)}
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

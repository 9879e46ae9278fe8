"""The topic table: ``config/topics.json``, and the changes that it does not have yet.

A change is durable in the writer's journal, as a state for each topic; the writer writes the file within a
second, so that many changes cost one file. A state names the counter that the table's version has with the
change. A table whose counter is as high has it, or a broker's change since, and counts. Deletions are never
in the journal: they write the file.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from storage.errors import (
    InvalidMessage,
    QueueNotFound,
    StoreError,
    StoreFull,
    TopicExists,
    TopicNotFound,
)
from storage.format.config_json import Encoded, encoded
from storage.journal.states import StateJournal, encode_document, read_states
from storage.tables.table_files import (
    TOPICS_FILE,
    ReadTable,
    data_version,
    read_files,
    read_table,
    replace_table,
    settle_table,
)
from storage.tables.topics import (
    PERM_READ,
    TOPIC_MAP,
    NewTopic,
    TopicConfig,
    topics_document,
    topics_in,
)

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem, ReadFileSystem
    from storage.journal.states import States

_STATE: Final = "topic/"  # and the topic's name
_TOPIC_DEPTH: Final = 2  # of a topic in the document

Created = list[TopicConfig] | TopicExists | InvalidMessage
"""What became of topics that were to be created together."""


class _Table(NamedTuple):
    """What a ``topics.json`` holds."""

    topics: dict[str, TopicConfig]
    counter: int = 0
    state_version: int = 0
    other: Mapping[str, object] = MappingProxyType({})


def _parsed(document: dict[str, Any]) -> _Table:
    version = document.get("dataVersion") or {}
    return _Table(
        topics_in(document),
        int(version.get("counter", 0)),
        int(version.get("stateVersion", 0)),
        {k: v for k, v in document.items() if k not in ("dataVersion", TOPIC_MAP)},
    )


def _state_of(name: str, counter: int, fields: Mapping[str, object]) -> tuple[str, object]:
    """Return the name and the document of the state of a change; ``fields`` are the topic in a broker's shape."""
    return _STATE + name, {"counter": counter, "topic": fields}


def _changes_in(states: States, counter: int) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield name, counter and fields of each change that a table with ``counter`` does not have."""
    for state in states.names(_STATE):
        change = states.document(state)
        if change["counter"] > counter:
            yield state.removeprefix(_STATE), change["counter"], change["topic"]


def read_topics(
    filesystem: ReadFileSystem, config_directory: Path, journal_directory: Path
) -> dict[str, TopicConfig]:
    """Return the topics of a store by name, those that ``topics.json`` does not have yet among them."""
    states = read_states(filesystem, journal_directory)  # first: what leaves it is in the table
    table = read_table(filesystem, config_directory, TOPICS_FILE, _parsed) or _Table({})
    return table.topics | _changed(_changes_in(states, table.counter))


def _changed(changes: Iterable[tuple[str, int, dict[str, Any]]]) -> dict[str, TopicConfig]:
    return {name: TopicConfig.from_json(name, fields) for name, _, fields in changes}


class TopicTable:
    """All topics of a store.

    The writer alone changes it, with its open journal; a reader gives the journal's directory.
    """

    def __init__(
        self, filesystem: FileSystem, config_directory: Path, journal: StateJournal | Path
    ) -> None:
        self._filesystem = filesystem
        self._path = config_directory / TOPICS_FILE
        self._journal = journal
        self._saving = threading.Lock()  # before _changing
        self._changing = threading.Lock()
        self._read: ReadTable[_Table] | None = None
        self._table = _Table({})
        self._topics: dict[str, TopicConfig] = {}
        self._encoded: dict[str, tuple[TopicConfig, Encoded]] = {}  # as they were saved last
        self._unsaved: dict[str, int] = {}  # topics, and the counter of their last change
        self._counter = 0  # of the last change
        self._changed_ms = 0
        self.reload()

    def reload(self) -> None:
        """Read the file of the table that counts, and the changes that it lacks; without one it is empty."""
        journal = self._journal
        states = read_states(self._filesystem, journal) if isinstance(journal, Path) else journal
        self._read = read_files(self._filesystem, self._path, _parsed, self._read)
        self._table = self._read.content or _Table({})
        changes = list(_changes_in(states, self._table.counter))
        self._topics = self._table.topics | _changed(changes)
        self._unsaved = {name: counter for name, counter, _ in changes}
        self._counter = max((self._table.counter, *self._unsaved.values()))

    def settle(self) -> None:
        """Repair a damaged table from its ``.bak``."""
        settle_table(self._filesystem, self._path, _parsed)

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, name: object) -> bool:
        return name in self._topics

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(sorted(self._topics.values(), key=lambda topic: topic.name))

    def find(self, name: str) -> TopicConfig | None:
        """Return the topic: the same object for as long as nothing of it changes."""
        return self._topics.get(name)

    def is_read(self, name: str, queue_id: int) -> bool:
        """Return whether clients read a queue of a topic; of a topic that is not in the table they do.

        Raises InvalidMessage if the topic may not be read.
        """
        topic = self._topics.get(name)
        if topic is None:
            return True
        if not topic.perm & PERM_READ:
            raise InvalidMessage("topic", f"{name!r} may not be read: perm {topic.perm}")
        return queue_id < topic.read_queue_count

    def get(self, name: str, *, to_send: bool = False) -> TopicConfig:
        """Return the topic or raise TopicNotFound, which advises who is ``to_send`` to create it."""
        try:
            return self._topics[name]
        except KeyError:
            raise TopicNotFound(name, to_send=to_send) from None

    def check_queues(self, keys: Sequence[tuple[bytes, int]]) -> None:
        """Raise TopicNotFound, QueueNotFound or InvalidMessage unless producers may send to each queue.

        A topic is looked up once for those of its queues that follow each other.
        """
        name: bytes | None = None
        queue_count = 0
        for topic_name, queue_id in keys:
            if topic_name is not name:
                name = topic_name
                topic = self.get(name.decode(), to_send=True)
                if problem := topic.sending_problem:
                    raise InvalidMessage("topic", f"{topic.name!r} {problem}")
                queue_count = topic.write_queue_count
            if queue_id >= queue_count:
                raise QueueNotFound(topic_name.decode(), queue_id, queue_count)

    def check_topics(self, keys: Sequence[tuple[bytes, int]]) -> None:
        """Raise TopicNotFound unless each topic exists: what was decided is stored whatever it allows since."""
        for topic, _ in keys:
            self.get(topic.decode())

    def create(
        self, name: str, *, queue_count: int, attributes: Mapping[str, str], now_ms: int
    ) -> TopicConfig:
        """Add a topic; durable on return. Raises TopicExists, InvalidMessage."""
        new = NewTopic(name=name, queue_count=queue_count, attributes=attributes)
        (created,) = self.create_all([[new]], now_ms=now_ms)
        if isinstance(created, StoreError):
            raise created
        return created[0]

    def create_all(self, groups: Sequence[Sequence[NewTopic]], *, now_ms: int) -> list[Created]:
        """Add the topics of each group, all of it or none; durable on return.

        Returns the topics of each group, or why it is refused: TopicExists, InvalidMessage.
        """
        with self._changing:
            topics = dict(self._topics)
            created = [_add_all(topics, group) for group in groups]
            new = [topic for group in created if isinstance(group, list) for topic in group]
            if new:
                self._put(topics, new, now_ms)
        return created

    def changed(self, name: str, **given: Any) -> TopicConfig:
        """Return a topic as ``TopicConfig.changed`` makes it. Raises TopicNotFound, InvalidMessage."""
        return self.get(name).changed(**given)

    def replace(self, topic: TopicConfig, *, now_ms: int) -> None:
        """Put a changed topic in the place of the one of its name; durable on return."""
        with self._changing:
            self._put({**self._topics, topic.name: topic}, [topic], now_ms)

    def _put(self, topics: dict[str, TopicConfig], new: Sequence[TopicConfig], now_ms: int) -> None:
        counter = self._counter + 1
        changes = (_state_of(topic.name, counter, topic.to_json()) for topic in new)
        self._states().put({state: encode_document(change) for state, change in changes})
        self._unsaved |= {topic.name: counter for topic in new}
        self._topics, self._counter, self._changed_ms = topics, counter, now_ms

    def _states(self) -> StateJournal:
        if isinstance(self._journal, Path):
            raise TypeError("this table was opened to be read")
        return self._journal

    def delete(self, name: str, *, now_ms: int) -> None:
        """Remove a topic, and save the table; durable on return."""
        with self._saving:
            with self._changing:
                self.get(name)
                topics = {k: v for k, v in self._topics.items() if k != name}
                self._write(topics, self._counter + 1, now_ms)
                counter = self._counter + 1
                self._topics, self._counter, self._changed_ms = topics, counter, now_ms
            self._forget_saved(counter)

    def save(self, *, always: bool = False) -> None:
        """Write ``topics.json`` where it lacks a change, or ``always``; durable on return.

        Raises StoreFull with nothing lost, OSError.
        """
        with self._saving:
            with self._changing:
                topics, counter, changed_ms = self._topics, self._counter, self._changed_ms
                if not self._unsaved and not always:
                    return
            self._write(topics, counter, changed_ms)
            self._forget_saved(counter)

    def _write(self, topics: dict[str, TopicConfig], counter: int, now_ms: int) -> None:
        for name in self._encoded.keys() - topics.keys():  # also those of a save that failed
            del self._encoded[name]
        version = data_version(counter, self._table.state_version, now_ms)
        document = topics_document(topics, version, self._table.other, self._encode)
        self._filesystem.make_directory(self._path.parent)
        replace_table(self._filesystem, self._path, document)

    def _forget_saved(self, saved_counter: int) -> None:
        """Take from the journal what the table has by now. What stays there does not count: its counter says so."""
        with self._changing, suppress(StoreFull):
            saved = [name for name, counter in self._unsaved.items() if counter <= saved_counter]
            self._states().put(dict.fromkeys((_STATE + name for name in saved), b""))
            for name in saved:
                del self._unsaved[name]

    def _encode(self, topic: TopicConfig) -> Encoded:
        """Encode a topic, once for as long as it does not change: a table has thousands that stay as they are."""
        known = self._encoded.get(topic.name)
        if known is None or known[0] is not topic:
            known = self._encoded[topic.name] = topic, encoded(topic.to_json(), _TOPIC_DEPTH)
        return known[1]


def _add_all(topics: dict[str, TopicConfig], group: Sequence[NewTopic]) -> Created:
    added: dict[str, TopicConfig] = {}
    try:
        for new in group:
            topic = new.checked()
            if topic.name in topics or topic.name in added:
                raise TopicExists(topic.name)
            added[topic.name] = topic
    except (TopicExists, InvalidMessage) as refusal:
        return refusal
    topics.update(added)
    return list(added.values())

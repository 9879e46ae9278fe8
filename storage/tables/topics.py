"""The topic table: ``config/topics.json`` in a broker's shape, and the changes that it does not have yet.

A change is durable in the writer's journal (``storage.tables.unsaved_topics``); the writer writes the file within
a second, so that many changes cost one file. Fields that this code does not know are kept as they were read.
Which of the table's files counts is decided in ``storage.tables.table_copies``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from storage.errors import InvalidMessage, StoreError, StoreFull, TopicExists, TopicNotFound
from storage.format.config_json import MALFORMED, Encoded, encode_config, encoded
from storage.format.limits import NOT_SENT_TO
from storage.format.names import topic_name_problem
from storage.journal.states import StateJournal, encode_document, read_states
from storage.tables.table_copies import TableCopies, read_copies
from storage.tables.table_files import (
    TOPICS_FILE,
    data_version,
    document_in,
    read_table,
    readable_by,
    table_in,
)
from storage.tables.unsaved_topics import PREFIX, changes_in, state_of

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem, ReadFileSystem
    from storage.journal.states import States

PERM_WRITE: Final = 2
PERM_READ: Final = 4
QUEUE_COUNT_MAX: Final = 65_536
ATTRIBUTES_SIZE_MAX: Final = 32_767  # each change of a topic writes the whole table
NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})
QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUES: Final = "BatchCQ"
MESSAGE_TYPE: Final = "message.type"
MESSAGE_TYPES: Final = (
    "UNSPECIFIED",
    "NORMAL",
    "FIFO",
    "DELAY",
    "TRANSACTION",
    "MIXED",
)  # a broker's
TOPIC_MAP: Final = "topicConfigTable"
_TOPIC_DEPTH: Final = 2  # of a topic in the document

_DEFAULT_FIELDS: Final[Mapping[str, object]] = MappingProxyType(
    {"order": False, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """One topic: its queues, who may use them, and its attributes."""

    name: str
    read_queue_count: int
    write_queue_count: int
    perm: int = PERM_READ | PERM_WRITE
    attributes: Mapping[str, str] = field(default_factory=lambda: NO_ATTRIBUTES)
    other_fields: Mapping[str, object] = field(default_factory=lambda: _DEFAULT_FIELDS)

    @property
    def queue_count(self) -> int:
        """Return how many queues exist for reading or writing."""
        return max(self.read_queue_count, self.write_queue_count)

    @property
    def sending_problem(self) -> str | None:
        """What keeps clients from sending to the topic, None if nothing does."""
        if self.name in NOT_SENT_TO:
            return "is a broker's own: it acts on what stands there"
        return None if self.perm & PERM_WRITE else f"may not be written to: perm {self.perm}"

    @property
    def has_batch_queues(self) -> bool:
        """Return whether a broker keeps the topic's queues in the form that we do not."""
        return self.attributes.get(QUEUE_TYPE) == BATCH_QUEUES

    def to_json(self) -> dict[str, object]:
        """Return the topic in a broker's shape, and its order."""
        fields = {
            **self.other_fields,
            "attributes": dict(self.attributes),
            "perm": self.perm,
            "readQueueNums": self.read_queue_count,
            "topicName": self.name,
            "writeQueueNums": self.write_queue_count,
        }
        return dict(sorted(fields.items()))

    @classmethod
    def from_json(cls, name: str, fields: Mapping[str, Any]) -> TopicConfig:
        """Read a topic in a broker's shape; missing fields get a broker's class defaults."""
        known = {"attributes", "perm", "readQueueNums", "topicName", "writeQueueNums"}
        return cls(
            name=str(fields.get("topicName") or name),
            read_queue_count=int(fields.get("readQueueNums", 16)),
            write_queue_count=int(fields.get("writeQueueNums", 16)),
            perm=int(fields.get("perm", PERM_READ | PERM_WRITE)),
            attributes={str(k): str(v) for k, v in (fields.get("attributes") or {}).items()},
            other_fields={k: v for k, v in fields.items() if k not in known},
        )


def topics_in(document: Mapping[str, Any]) -> dict[str, TopicConfig]:
    """Return the topics of a ``topics.json``, by name. Raises ``MALFORMED``."""
    table = table_in(document, TOPIC_MAP)
    topics = [TopicConfig.from_json(name, fields) for name, fields in table.items()]
    return {topic.name: topic for topic in topics}


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


def topics_document(
    topics: Mapping[str, TopicConfig], version: Mapping[str, int], other: Mapping[str, object],
    encode: Callable[[TopicConfig], object] = TopicConfig.to_json,
) -> bytes:  # fmt: skip
    """Return a ``topics.json``, topics by name, after ``other`` fields that this code does not know."""
    table = {name: encode(topics[name]) for name in sorted(topics)}
    return encode_config({**other, "dataVersion": version, TOPIC_MAP: table})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic that is to be created."""

    name: str
    queue_count: int
    attributes: Mapping[str, str] = field(default_factory=lambda: NO_ATTRIBUTES)

    def checked(self) -> TopicConfig:
        """Return the topic as it will be. Raises InvalidMessage."""
        problem = topic_name_problem(self.name)
        if problem:
            raise InvalidMessage("topic", problem)
        return TopicConfig(
            name=self.name,
            read_queue_count=_checked_queue_count(self.queue_count),
            write_queue_count=self.queue_count,
            attributes=_checked_attributes(self.attributes),
        )


Created = list[TopicConfig] | TopicExists | InvalidMessage
"""What became of topics that were to be created together."""


def read_topics(
    filesystem: ReadFileSystem, config_directory: Path, journal_directory: Path
) -> dict[str, TopicConfig]:
    """Return the topics of a store by name, those that ``topics.json`` does not have yet among them."""
    states = read_states(filesystem, journal_directory)  # first: what leaves it is in the table
    table = read_table(filesystem, config_directory, TOPICS_FILE, _parsed) or _Table({})
    return table.topics | _unsaved_in(states, table)


def _unsaved_in(states: States, table: _Table) -> dict[str, TopicConfig]:
    changes = changes_in(states, table.counter)
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
        self._data = b""  # of the table that was read last
        self._table = _Table({})
        self._topics: dict[str, TopicConfig] = {}
        self._encoded: dict[str, tuple[TopicConfig, Encoded]] = {}  # as they were saved last
        self._unsaved: dict[str, int] = {}  # topics, and the counter of their last change
        self._counter = 0  # of the last change
        self._changed_ms = 0
        self.reload()

    def reload(self) -> None:
        """Read the copy of the table that counts, and the changes that it lacks; without a copy it is empty."""
        journal = self._journal
        states = read_states(self._filesystem, journal) if isinstance(journal, Path) else journal
        chosen = read_copies(self._filesystem, self._path, readable_by(_parsed))
        if chosen.data != self._data:
            self._table = _Table({})
            with suppress(*MALFORMED):
                self._table = _parsed(document_in(chosen.data))
            self._data = chosen.data
        self._topics = self._table.topics | _unsaved_in(states, self._table)
        changes = changes_in(states, self._table.counter)
        self._unsaved = {name: counter for name, counter, _ in changes}
        self._counter = max((self._table.counter, *self._unsaved.values()))

    def settle(self) -> str:
        """Make all copies of the table agree; return what was wrong, empty if nothing was.

        Durable on return. Raises StoreFull, OSError.
        """
        return TableCopies(self._filesystem, self._path).settle(readable_by(_parsed))

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

    def changed(
        self,
        name: str,
        *,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str] = NO_ATTRIBUTES,
    ) -> TopicConfig:
        """Return a topic as it would be with what is given. Raises TopicNotFound, InvalidMessage."""
        topic = self.get(name)
        if read_queue_count is not None:
            topic = replace(topic, read_queue_count=_checked_queue_count(read_queue_count))
        if write_queue_count is not None:
            topic = replace(topic, write_queue_count=_checked_queue_count(write_queue_count))
        if perm is not None:
            if not 0 <= perm <= 7:
                raise InvalidMessage("perm", f"must lie between 0 and 7, not {perm}")
            topic = replace(topic, perm=perm)
        if attributes:
            checked = _checked_attributes(attributes)
            topic = replace(topic, attributes=_bounded({**topic.attributes, **checked}))
        return topic

    def replace(self, topic: TopicConfig, *, now_ms: int) -> None:
        """Put a changed topic in the place of the one of its name; durable on return."""
        with self._changing:
            self._put({**self._topics, topic.name: topic}, [topic], now_ms)

    def _put(self, topics: dict[str, TopicConfig], new: Sequence[TopicConfig], now_ms: int) -> None:
        counter = self._counter + 1
        changes = (state_of(topic.name, counter, topic.to_json()) for topic in new)
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
                self._topics, self._counter, self._changed_ms = topics, self._counter + 1, now_ms
            self._forget_saved(self._counter)

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
        TableCopies(self._filesystem, self._path).replace(document)

    def _forget_saved(self, saved_counter: int) -> None:
        """Take from the journal what the table has by now. What stays there does not count: its counter says so."""
        with self._changing, suppress(StoreFull):
            saved = [name for name, counter in self._unsaved.items() if counter <= saved_counter]
            self._states().put(dict.fromkeys((PREFIX + name for name in saved), b""))
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


def _checked_queue_count(queue_count: int) -> int:
    if not 1 <= queue_count <= QUEUE_COUNT_MAX:
        raise InvalidMessage(
            "queue_count", f"must lie between 1 and {QUEUE_COUNT_MAX}, not {queue_count}"
        )
    return queue_count


def _checked_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    if attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
        raise InvalidMessage(
            "attributes", f"{QUEUE_TYPE} {BATCH_QUEUES} is not supported; leave it out"
        )
    checked = dict(attributes)
    if MESSAGE_TYPE in attributes:
        checked[MESSAGE_TYPE] = attributes[MESSAGE_TYPE].upper()  # a broker knows no other spelling
        if checked[MESSAGE_TYPE] not in MESSAGE_TYPES:
            raise InvalidMessage(
                "attributes",
                f"{MESSAGE_TYPE} is one of {', '.join(MESSAGE_TYPES)}, not {attributes[MESSAGE_TYPE]!r}",
            )
    return _bounded(checked)


def _bounded(attributes: dict[str, str]) -> dict[str, str]:
    size = sum(len(name) + len(value) for name, value in attributes.items())
    if size > ATTRIBUTES_SIZE_MAX:
        raise InvalidMessage(
            "attributes", f"{size} characters together; the most is {ATTRIBUTES_SIZE_MAX}"
        )
    return attributes

"""The topic table: ``config/topics.json`` in a broker's shape.

Fields that this code does not know are kept as they were read. Which of the table's files counts is
decided in ``storage.tables.table_copies``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from storage.errors import InvalidMessage, StoreError, TopicExists, TopicNotFound
from storage.format.config_json import Encoded, encode_config, encoded
from storage.format.limits import NOT_SENT_TO
from storage.format.names import topic_name_problem
from storage.tables.table_copies import TableCopies
from storage.tables.table_files import (
    TOPICS_FILE,
    data_version,
    read_table,
    readable_by,
    table_in,
)

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem

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


def _parsed(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, TopicConfig]]:
    version = document.get("dataVersion") or {}
    int(version.get("counter", 0)) + int(version.get("stateVersion", 0))
    return document, topics_in(document)


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


class TopicTable:
    """All topics of a store; the writer is the only one who changes it."""

    def __init__(self, filesystem: FileSystem, config_directory: Path) -> None:
        self._filesystem = filesystem
        self._path = config_directory / TOPICS_FILE
        self._topics: dict[str, TopicConfig] = {}
        self._encoded: dict[str, tuple[TopicConfig, Encoded]] = {}  # as they were saved last
        self._other: dict[str, object] = {}
        self._version_counter = 0
        self._state_version = 0
        self.reload()

    def reload(self) -> None:
        """Read the copy of the table that counts; without one the table is empty."""
        read = read_table(self._filesystem, self._path.parent, TOPICS_FILE, _parsed)
        document, self._topics = read or ({}, {})
        version = document.get("dataVersion") or {}
        self._version_counter = int(version.get("counter", 0))
        self._state_version = int(version.get("stateVersion", 0))
        self._other = {k: v for k, v in document.items() if k not in ("dataVersion", TOPIC_MAP)}

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
        """Add a topic and save the table; durable on return. Raises TopicExists, InvalidMessage."""
        new = NewTopic(name=name, queue_count=queue_count, attributes=attributes)
        (created,) = self.create_all([[new]], now_ms=now_ms)
        if isinstance(created, StoreError):
            raise created
        return created[0]

    def create_all(self, groups: Sequence[Sequence[NewTopic]], *, now_ms: int) -> list[Created]:
        """Add the topics of each group, all of it or none, and save the table once; durable on return.

        Returns the topics of each group, or why it is refused: TopicExists, InvalidMessage.
        """
        topics = dict(self._topics)
        created = [_add_all(topics, group) for group in groups]
        if len(topics) > len(self._topics):
            self._save(topics, now_ms=now_ms)
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
        """Put a changed topic in the place of the one of its name and save the table; durable on return."""
        self._store(topic.name, topic, now_ms=now_ms)

    def delete(self, name: str, *, now_ms: int) -> None:
        """Remove a topic from the table and save it; durable on return."""
        self.get(name)
        self._store(name, None, now_ms=now_ms)

    def _store(self, name: str, topic: TopicConfig | None, *, now_ms: int) -> None:
        topics = {k: v for k, v in self._topics.items() if k != name}
        if topic is not None:
            topics[name] = topic
        self._save(topics, now_ms=now_ms)

    def _save(self, topics: dict[str, TopicConfig], *, now_ms: int) -> None:
        for name in self._encoded.keys() - topics.keys():  # also those of a save that failed
            del self._encoded[name]
        version = data_version(self._version_counter + 1, self._state_version, now_ms)
        document = topics_document(topics, version, self._other, self._encode)
        self._filesystem.make_directory(self._path.parent)
        TableCopies(self._filesystem, self._path).replace(document)
        self._topics = topics
        self._version_counter += 1

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

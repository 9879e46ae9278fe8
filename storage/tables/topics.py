"""Topics in a broker's shape, as ``config/topics.json`` has them.

Fields that this code does not know are kept as they were read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from storage.errors import InvalidMessage
from storage.format.config_json import encode_config
from storage.format.limits import NOT_SENT_TO
from storage.format.names import topic_name_problem
from storage.tables.table_files import table_in

PERM_WRITE: Final = 2
PERM_READ: Final = 4
QUEUE_COUNT_MAX: Final = 65_536
ATTRIBUTES_SIZE_MAX: Final = 32_767  # of names and values together
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

    def changed(
        self,
        *,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str] = NO_ATTRIBUTES,
    ) -> TopicConfig:
        """Return the topic as it would be with what is given. Raises InvalidMessage."""
        topic = self
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

"""Labels of topics and groups as a broker has them."""

from __future__ import annotations

from typing import Final

from storage.format.names import SYSTEM_GROUP_PREFIX
from storage.tables.topics import MESSAGE_TYPE, TopicConfig

_SYSTEM_PREFIX: Final = "rmq_sys_"
_SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
    }
)  # fmt: skip


def flag(value: bool) -> str:
    """Return a truth as a label has it."""
    return "true" if value else "false"


def is_system(topic: str, group: str = "") -> str:
    """Return whether a topic or a group is a broker's own, as a label has it."""
    own = topic in _SYSTEM_TOPICS or topic.startswith(_SYSTEM_PREFIX)
    return flag(own or group.startswith(SYSTEM_GROUP_PREFIX))


def message_type(topic: TopicConfig | None) -> str:
    """Return what messages a topic is for, as its attribute says; normal ones where it says nothing."""
    return "normal" if topic is None else topic.attributes.get(MESSAGE_TYPE, "normal").lower()

"""Names of topics, groups and properties, and what RocketMQ allows of them."""

from __future__ import annotations

import re
from typing import Final

from services.gateway.messages.statuses import CallRefused
from services.gateway.v2 import definition_pb2 as v2
from storage.format.names import consumer_group_problem, topic_name_problem
from storage.format.properties import (
    CHECK_IMMUNITY,
    CHECK_TIMES,
    INNER_MULTI_DISPATCH,
    RESERVED,
    STORE_ONLY,
    TRANSACTION_ID,
    TRANSIENT_PREFIX,
)

BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
RECONSUME_TIME: Final = "RECONSUME_TIME"

_DELIVERED: Final = frozenset(
    {
        CHECK_IMMUNITY, CHECK_TIMES, "INNER_BASE", INNER_MULTI_DISPATCH, "INNER_NUM",
        "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", TRACE_CONTEXT, TRANSACTION_ID,
    }
)  # fmt: skip  # reserved, and a proxy delivers them nevertheless
INTERNAL: Final = RESERVED - _DELIVERED
"""Names of properties that are never a user's: refused in a message, left out of what is delivered."""
UNDELIVERED: Final = INTERNAL | {TRACE_CONTEXT}
"""Names of properties that are no user's where a message is delivered."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def has_control(text: str) -> bool:
    """Whether a text has a control character, two of which end properties."""
    return _CONTROL.search(text) is not None


def is_internal(name: str) -> bool:
    """Whether a message may not have a user property of that name."""
    return name in INTERNAL or name in STORE_ONLY or name.startswith(TRANSIENT_PREFIX)


def topic_of(resource: v2.Resource) -> str:
    """Return the topic's name. Raises CallRefused with ILLEGAL_TOPIC."""
    if problem := topic_name_problem(resource.name):
        raise CallRefused(v2.ILLEGAL_TOPIC, problem)
    return resource.name


def group_of(resource: v2.Resource) -> str:
    """Return the group's name. Raises CallRefused with ILLEGAL_CONSUMER_GROUP."""
    if problem := consumer_group_problem(resource.name):
        raise CallRefused(v2.ILLEGAL_CONSUMER_GROUP, problem)
    return resource.name

"""Which of the queues that there are a selection means."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

from pipeline.errors import InvalidOption
from pipeline.source.options import Selection


class HasTopic(Protocol):
    """A queue, as far as it is chosen by its topic."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...


Q = TypeVar("Q", bound=HasTopic)


def wants(chosen: Selection, topic: str, queue_id: int) -> bool:
    """Return whether a queue is chosen, one that is there or that comes later."""
    if chosen.pattern is not None:
        return re.fullmatch(chosen.pattern, topic) is not None
    if chosen.assigned is not None:
        return queue_id in chosen.assigned.get(topic, ())
    return chosen.is_everything or topic in chosen.topics


def check_topics(chosen: Selection, known: Collection[str], where: str) -> None:
    """Raise InvalidOption for a chosen topic that a store does not know.

    Of a stream: a pattern may wait for topics to come; an assigned queue, for its first message.
    """
    option, topics = "subscribe", chosen.topics
    if chosen.assigned is not None:
        option, topics = "assign", tuple(chosen.assigned)
    for topic in topics:
        if topic not in known:
            some = ", ".join(sorted(known)[:10]) or "none"
            raise InvalidOption(
                option,
                f"{where}: no topic is named {topic!r}; topics: {some}. To wait for one to come,"
                " use subscribePattern",
            )


def select(
    queues: Mapping[tuple[str, int], Q], topics: Collection[str], chosen: Selection, where: str
) -> list[Q]:
    """Return the chosen queues of a store; ``topics`` are those that it knows, with queues or not.

    Raises InvalidOption for a topic or queue that does not exist; ``where`` names the store.
    """

    def no_topic(wanted: str, verb: str) -> str:
        some = ", ".join(sorted(topics)[:10]) or "none"
        return f"{where}: no topic {verb} {wanted!r}; topics: {some}"

    if chosen.pattern is not None:
        matches = [queue for queue in queues.values() if re.fullmatch(chosen.pattern, queue.topic)]
        if not matches and not any(re.fullmatch(chosen.pattern, name) for name in topics):
            raise InvalidOption("subscribePattern", no_topic(chosen.pattern, "matches"))
        return matches
    if chosen.assigned is not None:
        wanted = [(topic, i) for topic, ids in chosen.assigned.items() for i in ids]
        for topic, queue_id in wanted:
            if (topic, queue_id) not in queues:
                raise InvalidOption("assign", f"{where}: topic {topic!r} has no queue {queue_id}")
        return [queues[key] for key in wanted]
    for topic in chosen.topics:
        if topic not in topics:
            raise InvalidOption("subscribe", no_topic(topic, "is named"))
    return [
        queue for queue in queues.values() if chosen.is_everything or queue.topic in chosen.topics
    ]

"""Which of the queues that there are a selection means."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Protocol, TypeVar

from pipeline.errors import InvalidOption
from pipeline.options import Selection


class HasTopic(Protocol):
    """A queue, as far as it is chosen by its topic."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...


Q = TypeVar("Q", bound=HasTopic)


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

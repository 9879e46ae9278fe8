"""Routes and assignments: the queues of a topic, served where the client came in.

Split routes name each queue twice: at the writer to send to it, at the reader to receive from it.
Clients in some languages choose by that permission; others take any entry, and stay where they came in.
"""

from __future__ import annotations

import ipaddress
from typing import Final, NamedTuple

from services.gateway.messages.statuses import CallRefused
from services.gateway.topics import KnownTopic
from services.gateway.v2 import definition_pb2 as v2

ALL_QUEUES: Final = -1
ADDRESSES_MAX: Final = 16  # they come back with every queue of a route


SPLITTING_LANGUAGES: Final = frozenset(
    {"PYTHON", "JAVA", "HTTP", "DOT_NET", "CPP"}
)  # HTTP: Node.js


class SplitEndpoints(NamedTuple):
    """Where clients reach the writer and the reader."""

    writer: v2.Endpoints
    reader: v2.Endpoints


class Routes:
    """Makes the queues of routes; the broker has one name."""

    def __init__(self, broker_name: str, split: SplitEndpoints | None = None) -> None:
        self._broker_name = broker_name
        self._split = split

    def split_for(self, language: str) -> SplitEndpoints | None:
        """Return where a client sends and receives by itself, None if it stays where it came in."""
        return self._split if language in SPLITTING_LANGUAGES else None

    def route(
        self,
        topic: KnownTopic,
        resource: v2.Resource,
        endpoints: v2.Endpoints,
        split: SplitEndpoints | None = None,
    ) -> list[v2.MessageQueue]:
        """Return every queue of a topic; of split routes those to write, then those to read."""
        if topic.queue_count == 0:
            raise CallRefused(v2.FORBIDDEN, f"topic {topic.name} may be neither read nor written")
        if split is not None:
            halves = (
                (v2.WRITE, topic.write_queue_count, split.writer),
                (v2.READ, topic.read_queue_count, split.reader),
            )
            return [
                self._queue(resource, queue_id, permission, topic, place)
                for permission, count, place in halves
                for queue_id in range(count)
            ]
        return [
            self._queue(resource, queue_id, topic.permission(queue_id), topic, endpoints)
            for queue_id in range(topic.queue_count)
        ]

    def assignments(
        self,
        topic: KnownTopic,
        resource: v2.Resource,
        endpoints: v2.Endpoints,
        *,
        orderly: bool,
        split: SplitEndpoints | None = None,
    ) -> list[v2.Assignment]:
        """Return what a push consumer asks: each queue of an orderly group, else all at once."""
        if split is not None:
            endpoints = split.reader
        if topic.read_queue_count == 0:
            raise CallRefused(v2.FORBIDDEN, f"topic {topic.name} may not be read")
        queue_ids = range(topic.read_queue_count) if orderly else (ALL_QUEUES,)
        return [
            v2.Assignment(
                message_queue=self._queue(resource, queue_id, v2.READ_WRITE, topic, endpoints)
            )
            for queue_id in queue_ids
        ]

    def _queue(
        self,
        resource: v2.Resource,
        queue_id: int,
        permission: v2.Permission,
        topic: KnownTopic,
        endpoints: v2.Endpoints,
    ) -> v2.MessageQueue:
        return v2.MessageQueue(
            topic=resource,
            id=queue_id,
            permission=permission,
            broker=v2.Broker(name=self._broker_name, id=0, endpoints=endpoints),
            accept_message_types=topic.accepts,
        )


def endpoints_of(address: str) -> v2.Endpoints:
    """Return HOST:PORT as routes name it."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        scheme = v2.DOMAIN_NAME
    else:
        scheme = v2.IPv4 if version == 4 else v2.IPv6
    return v2.Endpoints(scheme=scheme, addresses=[v2.Address(host=host, port=int(port))])


def checked_endpoints(asked: v2.Endpoints) -> v2.Endpoints:
    """Return where a client reaches the gateway: what it was configured with, as it says itself."""
    if not asked.addresses or asked.scheme not in v2.AddressScheme.values()[1:]:
        raise CallRefused(v2.ILLEGAL_ACCESS_POINT, "the request names no endpoints")
    if len(asked.addresses) > ADDRESSES_MAX:
        raise CallRefused(
            v2.ILLEGAL_ACCESS_POINT,
            f"{len(asked.addresses)} addresses; the most is {ADDRESSES_MAX}",
        )
    return asked

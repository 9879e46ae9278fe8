"""Families about the gateway: RocketMQ's clients, and what waits for the writer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import Metric

from services.gateway.sends.sender import WaitingRoom
from services.gateway.sessions import Sessions
from services.gateway.v2 import definition_pb2 as v2
from services.metrics.exposition import gauge, gauges, paced, with_rest
from services.metrics.names import is_system

_PRODUCER: Final = ("language", "version", "protocol_type")
_CONSUMER: Final = ("consumer_group", *_PRODUCER, "consume_mode", "is_system")


class GatewayCollector:
    """Reads the table of sessions, and how much waits."""

    def __init__(self, sessions: Sessions, room: WaitingRoom) -> None:
        self._sessions = sessions
        self._room = room

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        producers: Counter[tuple[str, ...]] = Counter()
        consumers: Counter[tuple[str, ...]] = Counter()
        for _, session in paced(self._sessions):
            language, version = session.language.lower(), session.version
            if session.client_type == v2.PRODUCER:
                producers[language, version, "grpc"] += 1
            elif session.group:
                mode = "push" if session.client_type == v2.PUSH_CONSUMER else "pull"
                group = session.group
                consumers[group, language, version, "grpc", mode, is_system("", group)] += 1
        for name, meaning, labels, counts in (
            ("rocketmq_producer_connections", "Producers.", _PRODUCER, producers),
            ("rocketmq_consumer_connections", "Consumers.", _CONSUMER, consumers),
        ):
            rows = with_rest(list(counts.items()), len(labels))
            yield gauges(name, meaning, labels, rows)
        room = self._room
        yield gauge(
            "penstock_sending_bytes", "Bytes of messages that wait for the writer.", room.bytes
        )
        yield gauge("penstock_sending_limit_bytes", "Above this sends are refused.", room.bytes_max)

"""What tests of leases do over and over: store messages, receive and acknowledge them."""

from __future__ import annotations

from typing import Any, NamedTuple

from real_processes import until
from three_services import ThreeServices

from penstock.v1 import common_pb2, groups_pb2, leases_pb2, writer_pb2
from storage.format.record import Record, decode_record


class Leased(NamedTuple):
    """One message that was received."""

    record: Record
    handle: bytes
    attempt: int

    @property
    def body(self) -> bytes:
        return self.record.body


def messages_of(answer: leases_pb2.ReceiveResponse) -> list[Leased]:
    """Return what an answer holds, message by message."""
    found, position = [], 0
    count = answer.record_count
    assert len(answer.attempts) == count
    width = len(answer.receipt_handles) // max(count, 1)
    for number in range(count):
        record = decode_record(answer.records, position)
        position += record.total_size
        handle = answer.receipt_handles[number * width : (number + 1) * width]
        found.append(Leased(record, handle, answer.attempts[number]))
    assert position == len(answer.records)
    return found


class Consumer:
    """Calls of a group's member in one topic."""

    def __init__(self, services: ThreeServices, group: str, topic: str) -> None:
        self._services = services
        self.group = group
        self.topic = topic

    def receive(self, timeout_s: float = 30, **fields: Any) -> list[Leased]:
        return messages_of(self.ask(timeout_s, **fields))

    def ask(self, timeout_s: float = 30, **fields: Any) -> leases_pb2.ReceiveResponse:
        request = leases_pb2.ReceiveRequest(group=self.group, topic=self.topic, **fields)
        return self._services.leases.Receive(request, timeout=timeout_s)  # type: ignore[no-any-return]

    def acknowledge(self, *leased: Leased | bytes) -> list[tuple[int, int]]:
        request = leases_pb2.AcknowledgeRequest(
            group=self.group, topic=self.topic, receipt_handles=_handles(leased)
        )
        return _refused(self._services.leases.Acknowledge(request, timeout=30))

    def change(self, duration_ms: int, *leased: Leased | bytes) -> list[tuple[int, int]]:
        request = leases_pb2.ChangeLeasesRequest(
            group=self.group,
            topic=self.topic,
            receipt_handles=_handles(leased),
            duration_ms=duration_ms,
        )
        return _refused(self._services.leases.ChangeLeases(request, timeout=30))

    def dead_letter(self, *leased: Leased | bytes) -> list[tuple[int, int]]:
        request = leases_pb2.DeadLetterRequest(
            group=self.group, topic=self.topic, receipt_handles=_handles(leased)
        )
        return _refused(self._services.leases.DeadLetter(request, timeout=30))

    def describe(self) -> list[groups_pb2.GroupQueue]:
        request = groups_pb2.DescribeGroupRequest(group=self.group, topic=self.topic)
        return list(self._services.groups.DescribeGroup(request, timeout=30).queues)


def _handles(leased: tuple[Leased | bytes, ...]) -> bytes:
    return b"".join(each if isinstance(each, bytes) else each.handle for each in leased)


def _refused(answer: Any) -> list[tuple[int, int]]:
    return [(each.index, each.problem) for each in answer.refused]


def create_topic(services: ThreeServices, name: str, queues: int = 1) -> None:
    request = writer_pb2.CreateTopicRequest(name=name, queue_count=queues)
    services.writer.CreateTopic(request, timeout=20)


def put(services: ThreeServices, topic: str, *bodies: bytes, **fields: Any) -> list[Any]:
    """Store messages; a receive that comes after it finds all of them, not the first alone."""
    messages = [common_pb2.Message(topic=topic, body=body, **fields) for body in bodies]
    request = writer_pb2.ProduceRequest(messages=messages)
    results = list(services.writer.Produce(request, timeout=20).results)
    until(lambda: _is_dispatched(services))
    return results


def _is_dispatched(services: ThreeServices) -> bool:
    status = services.writer.GetWriterStatus(writer_pb2.GetWriterStatusRequest(), timeout=20)
    return bool(status.dispatched_offset >= status.appended_offset)


def create_group(services: ThreeServices, name: str, **settings: Any) -> groups_pb2.GroupSettings:
    request = groups_pb2.CreateGroupRequest(
        settings=groups_pb2.GroupSettings(name=name, **settings)
    )
    return services.groups.CreateGroup(request, timeout=20)  # type: ignore[no-any-return]

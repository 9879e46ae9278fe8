"""A client that speaks RocketMQ's wire and does just what a test says; of a proxy or of the gateway alike."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2 as pb
from services.gateway.v2 import service_pb2_grpc

CALL_SECONDS = 60.0


class WireClient:
    """A producer of topics, or with ``group`` a simple consumer of them; a context manager."""

    def __init__(self, address: str, name: str, topics: Sequence[str], group: str = "") -> None:
        self._channel = grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)])
        self._stub: Any = service_pb2_grpc.MessagingServiceStub(self._channel)
        self._metadata = (("x-mq-client-id", f"{name}@1@0@test"), ("x-mq-language", "PYTHON"))
        self._topics = topics
        self._group = group
        self._commands: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __enter__(self) -> WireClient:
        if self._group:
            entries = [
                v2.SubscriptionEntry(
                    topic=v2.Resource(name=topic),
                    expression=v2.FilterExpression(type=v2.TAG, expression="*"),
                )
                for topic in self._topics
            ]
            settings = v2.Settings(
                client_type=v2.SIMPLE_CONSUMER,
                subscription=v2.Subscription(
                    group=v2.Resource(name=self._group), subscriptions=entries
                ),
            )
        else:
            topics = [v2.Resource(name=topic) for topic in self._topics]
            settings = v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=topics))
        self._commands.put(pb.TelemetryCommand(settings=settings))
        self._answers = self._stub.Telemetry(
            iter(self._commands.get, None), metadata=self._metadata, wait_for_ready=True
        )
        next(self._answers)
        return self

    def __exit__(self, *_: object) -> None:
        self._commands.put(None)
        self._answers.cancel()
        self._channel.close()

    def _call(self, method: str, request: Any) -> Any:
        return getattr(self._stub, method)(request, timeout=CALL_SECONDS, metadata=self._metadata)

    def send(
        self, topic: str, keys: Sequence[str], kind: int = v2.NORMAL, *, message_group: str = "",
        deliver_at_ms: int = 0,
    ) -> list[pb.SendResultEntry]:  # fmt: skip
        """Send messages whose ids and bodies are their keys, one a call; each is stored on return."""
        results = []
        for key in keys:
            system = v2.SystemProperties(
                message_id=key, message_type=kind, body_encoding=v2.IDENTITY, keys=[key]
            )
            system.born_timestamp.GetCurrentTime()
            if message_group:
                system.message_group = message_group
            if deliver_at_ms:
                at = Timestamp()
                at.FromMilliseconds(deliver_at_ms)
                system.delivery_timestamp.CopyFrom(at)
            message = v2.Message(
                topic=v2.Resource(name=topic), body=key.encode(), system_properties=system
            )
            answer = self._call("SendMessage", pb.SendMessageRequest(messages=[message]))
            assert answer.status.code == v2.OK, answer
            results.append(answer.entries[0])
        return results

    def end_transaction(self, topic: str, sent: pb.SendResultEntry, *, commit: bool) -> int:
        """Return the status of the end of a transaction."""
        answer = self._call("EndTransaction", pb.EndTransactionRequest(
            topic=v2.Resource(name=topic), message_id=sent.message_id,
            transaction_id=sent.transaction_id, resolution=v2.COMMIT if commit else v2.ROLLBACK,
            source=v2.SOURCE_CLIENT,
        ))  # fmt: skip
        return int(answer.status.code)

    def receive(
        self,
        topic: str,
        count: int = 32,
        *,
        lease_s: int = 30,
        wait_s: float = 1,
        queue_id: int = -1,
    ) -> list[v2.Message]:
        """Return what one receive brings; nothing where there is nothing."""
        wait = Duration()
        wait.FromMilliseconds(int(wait_s * 1000))
        request = pb.ReceiveMessageRequest(
            group=v2.Resource(name=self._group),
            message_queue=v2.MessageQueue(topic=v2.Resource(name=topic), id=queue_id),
            filter_expression=v2.FilterExpression(type=v2.TAG, expression="*"),
            batch_size=count, invisible_duration=Duration(seconds=lease_s), long_polling_timeout=wait,
        )  # fmt: skip
        found = []
        for answer in self._call("ReceiveMessage", request):
            if answer.HasField("message"):
                found.append(answer.message)
            elif answer.HasField("status"):
                assert answer.status.code in (v2.OK, v2.MESSAGE_NOT_FOUND), answer
        return found

    def receive_all(
        self, topic: str, *, quiet_s: float, until: int = 1 << 30, **options: Any
    ) -> list[v2.Message]:
        """Receive until there was nothing for a time, or there are so many."""
        found: list[v2.Message] = []
        last = time.monotonic()
        while len(found) < until and time.monotonic() - last < quiet_s:
            more = self.receive(topic, **options)
            found += more
            if more:
                last = time.monotonic()
        return found

    def ack(self, topic: str, messages: Sequence[v2.Message]) -> list[int]:
        """Return the status of each acknowledgement."""
        codes = []
        for begin in range(0, len(messages), 32):
            entries = [
                pb.AckMessageEntry(
                    message_id=each.system_properties.message_id,
                    receipt_handle=each.system_properties.receipt_handle,
                )
                for each in messages[begin : begin + 32]
            ]
            answer = self._call("AckMessage", pb.AckMessageRequest(
                group=v2.Resource(name=self._group), topic=v2.Resource(name=topic), entries=entries
            ))  # fmt: skip
            codes += [entry.status.code for entry in answer.entries]
        return codes

    def change(self, topic: str, message: v2.Message, seconds: int) -> int:
        """Return the status of a change of a lease."""
        answer = self._call("ChangeInvisibleDuration", pb.ChangeInvisibleDurationRequest(
            group=v2.Resource(name=self._group), topic=v2.Resource(name=topic),
            receipt_handle=message.system_properties.receipt_handle,
            message_id=message.system_properties.message_id,
            invisible_duration=Duration(seconds=seconds),
        ))  # fmt: skip
        return int(answer.status.code)

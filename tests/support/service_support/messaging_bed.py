"""Writer, reader and gateway in this process, and the calls of a RocketMQ client on them."""

from __future__ import annotations

import itertools
import queue
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
from free_ports import free_address
from google.protobuf.duration_pb2 import Duration
from run_cli import penstock
from service_settings import gateway_settings, reader_settings, writer_settings
from typer.testing import Result

from penstock import Client
from penstock.addresses import WITHOUT_PROXY
from services.gateway.__main__ import serve as serve_gateway
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.reader.__main__ import serve as serve_reader
from services.testing import BackgroundService
from services.writer.__main__ import serve as serve_writer

ENDPOINTS = v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="127.0.0.1", port=8081)])
CLIENT = (("x-mq-client-id", "host@1@0@abc"), ("x-mq-language", "PYTHON"))
NUMBERS = itertools.count(1)


class MessagingBed:
    """Writer, reader and gateway; the reader can be started again.

    The gateway is a port of the reader, or a service of its own. With split routes all three serve RocketMQ's clients.
    """

    def __init__(
        self,
        store: Path,
        stack: ExitStack,
        *,
        has_own_gateway: bool = False,
        splits_routes: bool = False,
        push_lease_ms: int = 60_000,
        **of_writer: Any,
    ) -> None:
        self.addresses = {name: free_address() for name in ("writer", "reader", "gateway")}
        writer, reader, gateway = self.addresses.values()
        endpoints: dict[str, Any] = (
            {"writer_endpoint": writer, "reader_endpoint": reader} if splits_routes else {}
        )
        self._stack = stack
        self._of_reader = reader_settings(
            store,
            push_lease_ms=push_lease_ms,
            listen=reader,
            writer_address=writer,
            gateway_listen="" if has_own_gateway else gateway,
            **endpoints,
        )
        of_writer = {"listen": writer, "reader_address": reader, **endpoints, **of_writer}
        stack.enter_context(BackgroundService(serve_writer, writer_settings(store, **of_writer)))
        self._running = self._start_reader()
        if has_own_gateway:
            own = gateway_settings(
                listen=gateway, writer_address=writer, reader_address=reader, **endpoints
            )
            stack.enter_context(BackgroundService(serve_gateway, own))
        self.channels = {
            name: stack.enter_context(grpc.insecure_channel(address))
            for name, address in self.addresses.items()
        }
        self.channel = self.channels["gateway"]
        self.stub: Any = service_pb2_grpc.MessagingServiceStub(self.channel)
        self.client = stack.enter_context(Client(writer=writer, reader=reader))

    def penstock(self, *arguments: object, stdin: str | bytes | None = None) -> Result:
        """Run a command against the services."""
        at = (f"--{name}={self.addresses[name]}" for name in ("writer", "reader"))
        return penstock(*at, *arguments, stdin=stdin)

    def _start_reader(self) -> BackgroundService:
        return self._stack.enter_context(BackgroundService(serve_reader, self._of_reader))

    def restart_reader(self) -> None:
        self._running.stop()
        self._running = self._start_reader()

    def topic(self, message_type: str = "NORMAL") -> v2.Resource:
        return self.create(f"topic-{next(NUMBERS)}", 2, message_type)

    def create(self, name: str, queues: int, message_type: str = "NORMAL") -> v2.Resource:
        self.client.create_topic(name, queues=queues, attributes={"message.type": message_type})
        return v2.Resource(name=name)

    def ends(self, topic: str) -> dict[int, int]:
        """Return the offset after the last message of each queue."""
        queues = self.client.describe_topic(topic).queues
        return {queue_id: end for queue_id, (_, end) in queues.items()}

    def call(self, method: str, request: Any, client: Any = CLIENT, at: str = "gateway") -> Any:
        stub = service_pb2_grpc.MessagingServiceStub(self.channels[at])
        return getattr(stub, method)(request, timeout=30, metadata=client)

    def send_all(self, *messages: v2.Message) -> service_pb2.SendMessageResponse:
        request = service_pb2.SendMessageRequest(messages=messages)
        return self.call("SendMessage", request)  # type: ignore[no-any-return]

    def end(self, topic: str, transaction_id: str, resolution: int) -> int:
        """Return the status of the end of a transaction."""
        request = service_pb2.EndTransactionRequest(
            topic=v2.Resource(name=topic),
            message_id=transaction_id,
            transaction_id=transaction_id,
            resolution=resolution,  # type: ignore[arg-type]
        )
        return int(self.call("EndTransaction", request).status.code)

    def send(
        self, topic: v2.Resource, body: bytes = b"x", at: str = "gateway", **system: Any
    ) -> v2.Status:
        request = service_pb2.SendMessageRequest(messages=[message(topic, body, **system)])
        return self.call("SendMessage", request, at=at).status  # type: ignore[no-any-return]

    def receive(
        self,
        topic: v2.Resource,
        group: v2.Resource,
        client: Any = CLIENT,
        at: str = "gateway",
        **changes: Any,
    ) -> list[v2.Message]:
        request = receive_request(topic, group, **changes)
        answers = list(self.call("ReceiveMessage", request, client, at))
        assert answers[0].status.code in (v2.OK, v2.MESSAGE_NOT_FOUND), answers
        return [each.message for each in answers if each.HasField("message")]

    def acknowledge(
        self, topic: v2.Resource, group: v2.Resource, handle: str, at: str = "gateway"
    ) -> int:
        entry = service_pb2.AckMessageEntry(message_id="01", receipt_handle=handle)
        request = service_pb2.AckMessageRequest(group=group, topic=topic, entries=[entry])
        answer = self.call("AckMessage", request, at=at)
        assert [each.status.code for each in answer.entries] == [answer.status.code]
        return int(answer.status.code)

    def change(
        self,
        topic: v2.Resource,
        group: v2.Resource,
        handle: str,
        seconds: int = 0,
        at: str = "gateway",
    ) -> int:
        request = service_pb2.ChangeInvisibleDurationRequest(
            group=group,
            topic=topic,
            receipt_handle=handle,
            invisible_duration=Duration(seconds=seconds),
        )
        answer = self.call("ChangeInvisibleDuration", request, at=at)
        assert answer.receipt_handle == handle  # clients keep it, whatever the status
        return int(answer.status.code)

    def give_up(
        self, topic: v2.Resource, group: v2.Resource, handle: str, at: str = "gateway"
    ) -> int:
        request = service_pb2.ForwardMessageToDeadLetterQueueRequest(
            group=group, topic=topic, receipt_handle=handle, message_id="01"
        )
        return int(self.call("ForwardMessageToDeadLetterQueue", request, at=at).status.code)

    def lease_one(self) -> tuple[v2.Resource, v2.Resource, str]:
        """Return a new topic, a new group, and the handle of its only message."""
        topic, group = self.topic(), v2.Resource(name=f"group-{next(NUMBERS)}")
        assert self.send(topic).code == v2.OK
        [received] = self.receive(topic, group)
        return topic, group, received.system_properties.receipt_handle


class ProducerStream:
    """The Telemetry stream of a producer of topics; what it is told waits until the test reads it.

    As a context manager it has sent its settings.
    """

    def __init__(self, channel: grpc.Channel, client_id: str, *topics: str) -> None:
        self._said: queue.SimpleQueue[Any] = queue.SimpleQueue()
        publishing = v2.Publishing(topics=[v2.Resource(name=topic) for topic in topics])
        settings = v2.Settings(client_type=v2.PRODUCER, publishing=publishing)
        self._settings = service_pb2.TelemetryCommand(settings=settings)
        stub: Any = service_pb2_grpc.MessagingServiceStub(channel)
        metadata = (("x-mq-client-id", client_id), ("x-mq-language", "JAVA"))
        self._stream = stub.Telemetry(iter(self._said.get, None), metadata=metadata, timeout=60)

    def __enter__(self) -> ProducerStream:
        assert self.settings() == v2.OK
        return self

    def __exit__(self, *_: object) -> None:
        self._said.put(None)
        self._stream.cancel()

    def settings(self) -> int | None:
        """Send settings; return the status of the answer, None at the stream's end."""
        self._said.put(self._settings)
        answer = next(self._stream, None)
        return None if answer is None else int(answer.status.code)

    def asked(self) -> service_pb2.RecoverOrphanedTransactionCommand:
        """Return the next question."""
        return next(self._stream).recover_orphaned_transaction_command  # type: ignore[no-any-return]

    def end(self) -> list[Any]:
        """End the stream in order; return what it was told and nobody has read."""
        self._said.put(None)
        return list(self._stream)


def message(topic: v2.Resource, body: bytes = b"x", **system: Any) -> v2.Message:
    properties = {
        "message_id": f"01{next(NUMBERS):032X}",
        "message_type": v2.NORMAL,
        "body_encoding": v2.IDENTITY,
        **system,
    }
    return v2.Message(topic=topic, body=body, system_properties=v2.SystemProperties(**properties))


def receive_request(
    topic: v2.Resource, group: v2.Resource, /, **changes: Any
) -> service_pb2.ReceiveMessageRequest:
    return service_pb2.ReceiveMessageRequest(
        **{
            "group": group,
            "message_queue": v2.MessageQueue(topic=topic),
            "batch_size": 8,
            "invisible_duration": Duration(seconds=30),
            "long_polling_timeout": Duration(seconds=10),
            **changes,
        }
    )


def every_call(topic: v2.Resource, group: v2.Resource) -> dict[str, Any]:
    """Return a request of each kind that a client's life consists of, but for Telemetry."""
    return {
        "QueryRoute": service_pb2.QueryRouteRequest(topic=topic, endpoints=ENDPOINTS),
        "QueryAssignment": service_pb2.QueryAssignmentRequest(
            topic=topic, group=group, endpoints=ENDPOINTS
        ),
        "Heartbeat": service_pb2.HeartbeatRequest(group=group, client_type=v2.PUSH_CONSUMER),
        "SendMessage": service_pb2.SendMessageRequest(messages=[message(topic)]),
        "ReceiveMessage": receive_request(topic, group, long_polling_timeout=Duration(seconds=1)),
        "AckMessage": service_pb2.AckMessageRequest(
            group=group, topic=topic, entries=[service_pb2.AckMessageEntry(receipt_handle="a" * 40)]
        ),
        "ChangeInvisibleDuration": service_pb2.ChangeInvisibleDurationRequest(
            group=group, topic=topic, receipt_handle="a" * 40
        ),
        "ForwardMessageToDeadLetterQueue": service_pb2.ForwardMessageToDeadLetterQueueRequest(
            group=group, topic=topic, receipt_handle="a" * 40
        ),
        "EndTransaction": service_pb2.EndTransactionRequest(
            topic=topic, message_id="01", transaction_id="01", resolution=v2.COMMIT
        ),
        "RecallMessage": service_pb2.RecallMessageRequest(topic=topic, recall_handle="none"),
        "NotifyClientTermination": service_pb2.NotifyClientTerminationRequest(group=group),
    }


def codes_of(answer: Any) -> set[int]:
    if hasattr(answer, "status"):
        return {answer.status.code}
    return {each.status.code for each in answer if each.HasField("status")}


def send_to(gateway: str, topic: str, body: bytes = b"x") -> int:
    """Send one message to a gateway that may still be starting; return the status."""
    request = service_pb2.SendMessageRequest(messages=[message(v2.Resource(name=topic), body)])
    with grpc.insecure_channel(gateway, [WITHOUT_PROXY]) as channel:
        send = service_pb2_grpc.MessagingServiceStub(channel).SendMessage
        return int(send(request, timeout=60, wait_for_ready=True).status.code)

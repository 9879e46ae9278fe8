"""A gateway under test: what it calls, and a stub that says who it is."""

from __future__ import annotations

from typing import Any

import grpc
from fake_leases import FakeLeases

from penstock.v1 import writer_pb2, writer_pb2_grpc
from services.gateway.v2 import service_pb2_grpc
from services.testing import BackgroundService

CLIENT = (("x-mq-client-id", "host@1@0@abc"), ("x-mq-language", "PYTHON"))


class GatewayBed:
    """The gateway, what it calls, and a stub that says who it is."""

    def __init__(
        self, gateway: BackgroundService, writer: BackgroundService, leases: FakeLeases
    ) -> None:
        self.gateway = gateway
        self.writer_service = writer
        self.leases = leases
        self.channel = grpc.insecure_channel(
            gateway.address, [("grpc.max_receive_message_length", -1)]
        )
        self.stub: Any = service_pb2_grpc.MessagingServiceStub(self.channel)
        self.writer = writer_pb2_grpc.WriterStub(grpc.insecure_channel(writer.address))

    def call(self, method: str, request: Any, *, timeout: float = 10, client: Any = CLIENT) -> Any:
        return getattr(self.stub, method)(request, timeout=timeout, metadata=client)

    def create(self, name: str, queues: int, message_type: str = "NORMAL") -> None:
        self.writer.CreateTopic(
            writer_pb2.CreateTopicRequest(
                name=name, queue_count=queues, attributes={"message.type": message_type}
            ),
            timeout=10,
        )

"""The gateway as part of ``serve``: its address, that it comes back there when its process is killed, its end."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import grpc
from real_processes import supervisor

from penstock.v1 import writer_pb2, writer_pb2_grpc
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc


def send(address: str, number: int) -> v2.Status:
    system = v2.SystemProperties(message_id=f"01{number}", message_type=v2.NORMAL)
    message = v2.Message(topic=v2.Resource(name="orders"), body=b"x", system_properties=system)
    with grpc.insecure_channel(address) as channel:
        answer = service_pb2_grpc.MessagingServiceStub(channel).SendMessage(
            service_pb2.SendMessageRequest(messages=[message]), timeout=30, wait_for_ready=True
        )
    assert isinstance(answer, service_pb2.SendMessageResponse)
    return answer.status


def test_the_reader_of_serve_is_the_gateway_too_and_starts_again_where_clients_know_it(
    tmp_path: Path,
) -> None:
    """Writer and reader have ports of their own choice, which it is told."""
    with supervisor(tmp_path / "store", "--gateway-listen", "127.0.0.1:0") as serve:
        writer, _ = serve.wait_serving("writer")
        address, process_id = serve.wait_serving("gateway")
        assert serve.wait_serving("reader")[1] == process_id
        assert serve.wait_serving("reader")[0] != address
        with grpc.insecure_channel(writer) as channel:
            writer_pb2_grpc.WriterStub(channel).CreateTopic(
                writer_pb2.CreateTopicRequest(name="orders", queue_count=1),
                timeout=30,
                wait_for_ready=True,
            )
        assert send(address, 1).code == v2.OK
        os.kill(process_id, signal.SIGKILL)
        assert serve.wait_serving("gateway", 2)[0] == address
        assert send(address, 2).code == v2.OK
        assert serve.stop() == 0

"""The gateway as part of ``serve``: its address, that it comes back there when its process is killed, its end."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import grpc
from real_processes import supervisor

from penstock import Client
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


def test_an_ordinary_stop_says_once_a_service_that_it_drains_and_nothing_of_its_streams(
    tmp_path: Path,
) -> None:
    settings = service_pb2.TelemetryCommand(
        settings=v2.Settings(
            client_type=v2.PRODUCER, publishing=v2.Publishing(topics=[v2.Resource(name="orders")])
        )
    )
    with supervisor(tmp_path / "store", "--gateway-listen", "127.0.0.1:0") as serve:
        writer, _ = serve.wait_serving("writer")
        address, _ = serve.wait_serving("gateway")
        serve.wait_serving("indexer")
        with Client(writer=writer) as client:
            client.create_topic("orders", queues=1)
        assert send(address, 1).code == v2.OK
        with grpc.insecure_channel(address) as channel:
            stub: Any = service_pb2_grpc.MessagingServiceStub(channel)
            streams = []
            for number in range(3):
                metadata = (("x-mq-client-id", f"client {number}"),)
                commands = chain([settings], iter(threading.Event().wait, True))
                stream = stub.Telemetry(commands, metadata=metadata)
                assert next(stream).status.code == v2.OK
                streams.append(stream)
            assert serve.stop() == 0
            assert [list(stream) for stream in streams] == [[], [], []]
    events = [json.loads(line) for line in serve.output if line.startswith("{")]
    said = Counter((each["service"], each["event"]) for each in events)

    assert [said[service, "draining"] for service in ("writer", "reader", "indexer")] == [1, 1, 1]
    assert not [each for each in events if each["event"] in ("call", "call failed")]
    assert "Traceback" not in serve.text()

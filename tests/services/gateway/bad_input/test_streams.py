"""Telemetry streams of silence and of garbage: the client is served, and the next stream too."""

from __future__ import annotations

import queue
import random
from typing import Any

import grpc
import pytest
from messaging_bed import CLIENT, MessagingBed

from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2


def test_a_stream_of_silence_costs_its_client_nothing(bed: MessagingBed) -> None:
    """It stays open, its client is served meanwhile, and the first settings are answered however late."""
    topic, group = bed.topic(), v2.Resource(name="silent")
    said: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stream = bed.stub.Telemetry(iter(said.get, None), metadata=CLIENT, timeout=60)
    stream.initial_metadata()  # it is open
    assert bed.send(topic).code == v2.OK
    [received] = bed.receive(topic, group)
    handle = received.system_properties.receipt_handle
    assert bed.acknowledge(topic, group, handle) == v2.OK
    said.put(service_pb2.TelemetryCommand())  # nothing in it
    said.put(
        service_pb2.TelemetryCommand(
            settings=v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=[topic]))
        )
    )
    assert next(stream).status.code == v2.OK
    said.put(None)
    assert list(stream) == []


@pytest.mark.parametrize("seed", range(3))
def test_garbage_ends_its_stream_and_the_client_opens_another(bed: MessagingBed, seed: int) -> None:
    dice = random.Random(seed)
    client = (("x-mq-client-id", f"garbage-{seed}"),)
    raw = bed.channel.stream_stream("/apache.rocketmq.v2.MessagingService/Telemetry")
    settings = service_pb2.TelemetryCommand(
        settings=v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing())
    ).SerializeToString()
    for _ in range(20):
        answers = raw(iter([settings, b"\xff" + dice.randbytes(200)]), metadata=client, timeout=30)
        assert service_pb2.TelemetryCommand.FromString(next(answers)).status.code == v2.OK
        with pytest.raises(grpc.RpcError) as caught:
            next(answers)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    [answer] = raw(iter([settings]), metadata=client, timeout=30)
    assert service_pb2.TelemetryCommand.FromString(answer).status.code == v2.OK

"""Requests that are damaged, and raw HTTP/2 that is, beside an honest load: documented answers, and nothing lost.

``MALFORMED=20000`` sends so many requests, and a tenth as many connections with raw frames.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import grpc
import pytest
from fault_ledger import Ledger
from google.protobuf.descriptor import MethodDescriptor
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from malformed import methods, requests_of, send_frames
from service_checks import finish
from service_load import DOCUMENTED, ServiceLoad
from service_trio import SERVICES, ServiceTrio

REQUESTS = int(os.environ.get("MALFORMED", "300"))
TIMEOUT_S = 1.0  # of streams that go on; honest calls have theirs
FOR_THE_SERVER = 10  # answers that are read of a stream


def call(channel: grpc.Channel, method: MethodDescriptor, requests: list[bytes]) -> grpc.StatusCode:
    """Make a call; return its status."""
    kinds = {True: "stream", False: "unary"}
    kind = f"{kinds[method.client_streaming]}_{kinds[method.server_streaming]}"
    name = f"/{method.containing_service.full_name}/{method.name}"
    try:
        argument = iter(requests) if method.client_streaming else requests[0]
        answers = getattr(channel, kind)(name)(argument, timeout=TIMEOUT_S)
        if method.server_streaming:
            for count, _ in enumerate(answers):
                if count == FOR_THE_SERVER:
                    answers.cancel()
                    break
    except grpc.RpcError as error:
        assert "Traceback" not in (error.details() or "")
        return error.code()
    return grpc.StatusCode.OK


def served_at(channel: grpc.Channel) -> set[str]:
    """Return the full names of the services that a process says it has."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=20)
    return {service.name for service in answer.list_services_response.service}


@pytest.mark.timeout(14_400)
def test_malformed_requests_and_frames_beside_a_load(
    memory_path: Path, fault_report: list[str]
) -> None:
    dice = random.Random(REQUESTS)
    statuses: Counter[str] = Counter()
    with ServiceTrio(memory_path / "store") as trio:
        load = ServiceLoad(trio.addresses, Ledger()).start()
        load.goes_on()
        channels = [grpc.insecure_channel(trio.addresses[name]) for name in SERVICES]
        every = [
            (channel, method)
            for channel in channels
            for served in [served_at(channel)]
            for method in methods()
            if method.containing_service.full_name in served
        ]
        assert len({method.full_name for _, method in every}) > 20
        sent = 0
        try:
            for number in range(REQUESTS):
                channel, method = every[number % len(every)]
                requests = requests_of(dice, method)
                status = call(channel, method, requests)
                assert status in {*DOCUMENTED, grpc.StatusCode.OK}, (method.full_name, requests)
                statuses[status.name] += 1
                if number % 10 == 0:
                    send_frames(dice, trio.addresses[dice.choice(SERVICES)])
                sent += 1
        finally:
            fault_report.append(
                f"malformed: {sent} requests, {dict(statuses)}, {-(-sent // 10)} connections of raw"
                f" frames; {load.acknowledged} acknowledged beside them"
            )
        assert not trio.reap()
        load.goes_on()
        finish(trio, load)
        for channel in channels:
            channel.close()
    assert not load.codes, "an honest caller was refused"

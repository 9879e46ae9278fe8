"""A reader that starts on a broker's directory before the writer: who waits there holds up nobody."""

from __future__ import annotations

from pathlib import Path

import grpc
from golden import golden_copy
from service_settings import reader_settings, writer_settings

from penstock.v1 import leases_pb2, leases_pb2_grpc
from services.reader.__main__ import serve as serve_reader
from services.testing import BackgroundService
from services.writer.__main__ import serve as serve_writer


def test_a_receive_that_waits_leaves_the_others_alone(tmp_path: Path) -> None:
    store = golden_copy("basic", tmp_path)
    with (
        BackgroundService(serve_reader, reader_settings(store)) as reader,
        BackgroundService(serve_writer, writer_settings(store)),
        grpc.insecure_channel(reader.address) as channel,
    ):
        leases = leases_pb2_grpc.LeasesStub(channel)

        def receive(wait_ms: int) -> leases_pb2.ReceiveResponse:
            request = leases_pb2.ReceiveRequest(
                group="waiting",
                topic="orders",
                max_messages=1_000,
                lease_ms=600_000,
                wait_ms=wait_ms,
            )
            return leases.Receive(request, timeout=60)

        while receive(0).record_count:
            pass
        assert receive(500).record_count == 0

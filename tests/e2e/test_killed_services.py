"""Three real processes under a supervisor: each is killed under load and nothing is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from real_processes import Running, supervisor, until
from steps_to_try import cases_to_try

from penstock.v1 import (
    common_pb2,
    indexer_pb2,
    indexer_pb2_grpc,
    reader_pb2,
    reader_pb2_grpc,
    writer_pb2,
    writer_pb2_grpc,
)
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc

STUBS = {
    "writer": writer_pb2_grpc.WriterStub,
    "reader": reader_pb2_grpc.ReaderStub,
    "indexer": indexer_pb2_grpc.IndexerStub,
}
RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
]


class Load:
    """Produces numbered messages with hardly a pause and keeps what was acknowledged."""

    def __init__(self, stub: Any) -> None:
        self.acknowledged: list[tuple[int, str]] = []
        self.refusals = 0
        self._stub = stub
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            message = common_pb2.Message(
                topic="load", body=b"%d" % number, keys=[f"n{number}"], queue_id=0
            )
            try:
                answer = self._stub.Produce(
                    writer_pb2.ProduceRequest(messages=[message]), timeout=30
                )
                self.acknowledged.append((number, answer.results[0].message_id))
            except grpc.RpcError as error:
                assert error.code() in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                    grpc.StatusCode.RESOURCE_EXHAUSTED,
                ), error
                # A client tries again by itself when the next log file is still being made.
                self.refusals += error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED
                time.sleep(0.02)
            number += 1
            time.sleep(0.002)  # or half of the machine serves this alone

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def goes_on(self) -> None:
        """Wait until more has been acknowledged than by now."""
        before = len(self.acknowledged)
        until(lambda: len(self.acknowledged) > before + 20, 60)


@pytest.fixture(params=cases_to_try(["sync", "async"]))
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    flags = ("--flush-mode", request.param, "--gateway-listen", "127.0.0.1:0")
    with supervisor(tmp_path / "store", *flags) as process:
        yield process


def pull_all(reader: Any) -> list[int]:
    request = reader_pb2.PullStreamRequest(topic="load", decode=True)
    return [
        int(record.body)
        for response in reader.PullStream(request, timeout=30)
        for record in response.decoded
    ]


def send(gateway: str) -> int:
    system = v2.SystemProperties(message_id="01", message_type=v2.NORMAL)
    message = v2.Message(topic=v2.Resource(name="load"), body=b"-1", system_properties=system)
    with grpc.insecure_channel(gateway) as channel:
        answer = service_pb2_grpc.MessagingServiceStub(channel).SendMessage(
            service_pb2.SendMessageRequest(messages=[message]), timeout=30, wait_for_ready=True
        )
    return int(answer.status.code)


def test_each_process_is_killed_in_turn_and_nothing_acknowledged_is_lost(
    running: Running,
) -> None:
    """Each serves again at its address; the gateway is a port of the reader."""
    found = {name: running.wait_serving(name) for name in STUBS}
    gateway, process_id = running.wait_serving("gateway")
    assert (process_id, gateway != found["reader"][0]) == (found["reader"][1], True)
    channels = {n: grpc.insecure_channel(address, RECONNECT) for n, (address, _) in found.items()}
    stubs = {name: STUBS[name](channel) for name, channel in channels.items()}
    writer, reader, indexer = stubs["writer"], stubs["reader"], stubs["indexer"]
    writer.CreateTopic(writer_pb2.CreateTopicRequest(name="load", queue_count=1), timeout=20)
    load = Load(writer)
    try:
        load.goes_on()
        for name in ("reader", "indexer"):
            refusals = load.refusals
            os.kill(found[name][1], signal.SIGKILL)
            load.goes_on()
            assert load.refusals == refusals, f"the writer suffered from the death of the {name}"
            assert running.wait_serving(name, 2)[0] == found[name][0]
            load.goes_on()
        assert running.wait_serving("gateway", 2)[0] == gateway
        assert send(gateway) == v2.OK

        os.kill(found["writer"][1], signal.SIGKILL)
        assert pull_all(reader)
        indexer.GetIndexerStatus(indexer_pb2.GetIndexerStatusRequest(), timeout=10)
        assert running.wait_serving("writer", 2)[0] == found["writer"][0]
        load.goes_on()
    finally:
        load.stop()

    end = writer.GetWriterStatus(writer_pb2.GetWriterStatusRequest(), timeout=10).appended_offset
    indexer.WaitIndexed(indexer_pb2.WaitIndexedRequest(commit_offset=end), timeout=30)
    stored = pull_all(reader)
    numbers = [number for number, _ in load.acknowledged]
    assert set(numbers) <= set(stored)
    assert len(stored) == len(set(stored))
    for number, message_id in load.acknowledged[:: max(1, len(numbers) // 40)]:
        by_id = reader.GetMessage(reader_pb2.GetMessageRequest(message_id=message_id), timeout=10)
        assert by_id.record.body == b"%d" % number
        by_key = reader.QueryByKey(
            reader_pb2.QueryByKeyRequest(topic="load", key=f"n{number}", decode=True), timeout=10
        )
        assert [int(record.body) for record in by_key.decoded] == [number]
    for channel in channels.values():
        channel.close()


def test_a_stop_signal_drains_all_three_and_leaves_a_clean_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with supervisor(store) as process:
        address, _ = process.wait_serving("writer")
        pids = [process.wait_serving(name)[1] for name in STUBS]
        assert (store / "abort").exists()
        with grpc.insecure_channel(address) as channel:
            stub = writer_pb2_grpc.WriterStub(channel)
            stub.CreateTopic(writer_pb2.CreateTopicRequest(name="t", queue_count=1), timeout=20)
            message = common_pb2.Message(topic="t", body=b"x")
            stub.Produce(writer_pb2.ProduceRequest(messages=[message]), timeout=20)
        assert process.stop(signal.SIGINT) == 0, process.text()
    assert not (store / "abort").exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_services_end_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with supervisor(tmp_path / "store") as process:
        pids = [process.wait_serving(name)[1] for name in STUBS]
        process.process.kill()
        process.process.wait(30)

        until(lambda: all(has_ended(pid) for pid in pids), 60)


def has_ended(pid: int) -> bool:
    """Also of one that has not been waited for: in a container that may be for ever."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"

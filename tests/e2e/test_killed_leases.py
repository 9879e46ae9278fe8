"""The reader killed under receives and acknowledgements: what is acknowledged is done, nothing is lost.

``KILLS`` says how often (``make kill-test``: 500).
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import grpc
from leasing import messages_of
from service_process import ReaderProcess, WriterProcess

from penstock.v1 import groups_pb2, groups_pb2_grpc, leases_pb2, leases_pb2_grpc
from penstock.v1.writer_pb2 import ProduceRequest
from penstock.v1.writer_pb2_grpc import WriterStub

KILLS = int(os.environ.get("KILLS", "1"))
MESSAGES_A_LIFE = 150
LEASE_MS = 1_500
GROUP = {"group": "g", "topic": "t"}


class Member(threading.Thread):
    """Receives and acknowledges some of what it gets; the rest has to come again."""

    acknowledged: set[bytes]
    guard = threading.Lock()

    def __init__(self, address: str, acknowledged: set[bytes], seed: int) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.acknowledged = acknowledged
        self._dice = random.Random(seed)
        self.stopping = threading.Event()
        self.problem: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            with grpc.insecure_channel(self._address) as channel:
                stub = leases_pb2_grpc.LeasesStub(channel)
                while not self.stopping.is_set():
                    with suppress(grpc.RpcError):
                        self._turn(stub)
        except BaseException as error:  # noqa: BLE001  raised by the test
            self.problem = error

    def _turn(self, stub: leases_pb2_grpc.LeasesStub) -> None:
        with self.guard:
            done = set(
                self.acknowledged
            )  # before the call: what it returns was not acknowledged then
        request = leases_pb2.ReceiveRequest(**GROUP, lease_ms=LEASE_MS, wait_ms=300)
        leased = messages_of(stub.Receive(request, timeout=5, wait_for_ready=True))
        again = [each.body for each in leased if each.body in done]
        assert not again, f"acknowledged, and handed out again: {again}"
        chosen = [each for each in leased if self._dice.random() < 0.8]
        if not chosen:
            return
        answer = stub.Acknowledge(
            leases_pb2.AcknowledgeRequest(
                **GROUP, receipt_handles=b"".join(each.handle for each in chosen)
            ),
            timeout=5,
        )
        refused = {each.index for each in answer.refused}
        with self.guard:
            self.acknowledged |= {
                each.body for number, each in enumerate(chosen) if number not in refused
            }


def test_nothing_acknowledged_comes_again_and_nothing_else_is_lost(tmp_path: Path) -> None:
    dice = random.Random(7)
    store = tmp_path / "store"
    acknowledged: set[bytes] = set()
    with WriterProcess(store) as writer, grpc.insecure_channel(writer.address) as channel:
        produce = WriterStub(channel).Produce
        with writer.client() as client:
            client.create_topic("t", queues=3)
        with ReaderProcess(store) as reader:
            members = [Member(reader.address, acknowledged, seed) for seed in range(3)]
            count = 0
            for life in range(KILLS + 1):
                if life:
                    time.sleep(dice.uniform(0.1, 0.8))
                    reader.kill()
                    reader.start()
                request = ProduceRequest()
                for number in range(count, count + MESSAGES_A_LIFE):
                    request.messages.add(topic="t", body=b"%d" % number)
                count += MESSAGES_A_LIFE
                produce(request, timeout=20)
            everything = {b"%d" % number for number in range(count)}
            until = time.monotonic() + 60 + KILLS
            while acknowledged != everything and time.monotonic() < until:
                assert not [each.problem for each in members if each.problem]
                time.sleep(0.05)
            for each in members:
                each.stopping.set()
            for each in members:
                each.join(20)
            assert not [each.problem for each in members if each.problem]
            assert acknowledged == everything
            with grpc.insecure_channel(reader.address) as to_reader:
                described = groups_pb2_grpc.GroupsStub(to_reader).DescribeGroup(
                    groups_pb2.DescribeGroupRequest(**GROUP), timeout=20
                )
            assert [queue.lag for queue in described.queues] == [0, 0, 0]

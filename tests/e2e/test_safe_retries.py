"""A writer that is killed under clients that send again: every message is in the log once, and nobody has to ask."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from background_loop import BackgroundService
from engine_store import records_on_disk
from gateway_bed import CLIENT
from messaging_bed import message
from real_processes import until
from service_settings import gateway_settings
from slow_link import SlowLink
from writer_process import WriterProcess

from penstock import Client, Message, PenstockError, RecordBatch
from penstock.sequences import RequestToken
from services.gateway.__main__ import serve as serve_gateway
from services.rocketmq.v2 import definition_pb2 as v2
from services.rocketmq.v2 import service_pb2, service_pb2_grpc

KILLS = 3
PATIENCE_S = 120.0


class Load:
    """Sends numbered messages by one way of producing without a pause, and keeps how many were acknowledged."""

    def __init__(self, name: str, client: Client, run: Callable[[Load], None]) -> None:
        self.name, self.client = name, client
        self.count = 0  # sent and, but for the last ones of a stream, acknowledged
        self.failures: list[Exception] = []
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(run,))
        self._thread.start()

    def _run(self, run: Callable[[Load], None]) -> None:
        try:
            run(self)
        except (PenstockError, AssertionError) as error:
            self.failures.append(error)

    def goes_on(self) -> bool:
        """Pace what is sent, so that it can be read back; False once it is enough."""
        return not self.stopping.wait(0.01)

    def bodies(self, count: int) -> list[bytes]:
        return [b"%s %d" % (self.name.encode(), self.count + n) for n in range(count)]

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join()


def single(load: Load) -> None:
    while load.goes_on():
        load.client.produce("t", load.bodies(1)[0], keys=["k"])
        load.count += 1


def many(load: Load) -> None:
    while load.goes_on():
        stored = load.client.produce_many([Message("t", body) for body in load.bodies(5)])
        assert len(stored) == 5
        load.count += 5


def batches(load: Load) -> None:
    while load.goes_on():
        batch = RecordBatch("t", queue_id=1)
        batch.add_many(load.bodies(20))
        assert load.client.produce_batch(batch).record_count == 20
        load.count += 20


def stream(load: Load) -> None:
    with load.client.producer(delivery_timeout_s=PATIENCE_S, linger_ms=1) as producer:
        while load.goes_on():
            producer.send("t", load.bodies(1)[0])
            load.count += 1


@pytest.mark.parametrize("flags", [["--flush-mode", "sync"], ["--flush-mode", "async"]])
def test_a_killed_writer_leaves_each_message_of_clients_that_send_again_in_the_log_once(
    tmp_path: Path, flags: list[str]
) -> None:
    with WriterProcess(tmp_path / "store", *flags) as writer:
        clients = [writer.client(timeout_s=PATIENCE_S) for _ in range(4)]
        clients[0].create_topic("t", queues=3)
        ways = [single, many, batches, stream]
        loads = [Load(way.__name__, client, way) for way, client in zip(ways, clients, strict=True)]
        try:
            for kill in range(KILLS + 1):
                before = [load.count for load in loads]
                until(
                    lambda counts=before: all(
                        load.failures or load.count > count + 20
                        for load, count in zip(loads, counts, strict=True)
                    ),
                    60,
                )
                if kill < KILLS:
                    writer.kill()
                    writer.start()
        finally:
            for load in loads:
                load.stop()
            for client in clients:
                client.close()
    assert [load.failures for load in loads] == [[]] * len(loads)
    found = Counter(record.body for record in records_on_disk(tmp_path / "store"))
    assert {body: count for body, count in found.items() if count > 1} == {}
    expected = {b"%s %d" % (load.name.encode(), n) for load in loads for n in range(load.count)}
    assert set(found) == expected


def test_a_producer_says_where_a_real_writer_has_put_each_message(tmp_path: Path) -> None:
    """Queue offsets and commit offsets, of batches of every size, of which the log has a little more."""
    expected = {}
    with WriterProcess(tmp_path / "store") as writer, writer.client(timeout_s=PATIENCE_S) as client:
        client.create_topic("t", queues=2)
        with client.producer(delivery_timeout_s=PATIENCE_S, linger_ms=60_000) as producer:
            for count in (1, 2, 50, 700):
                bodies = [b"%d of %d" % (n, count) for n in range(count)]
                handles = [
                    producer.send("t", body, queue_id=n % 2, keys=["k"])
                    for n, body in enumerate(bodies)
                ]
                producer.flush(PATIENCE_S)
                expected.update(zip(bodies, (handle.result() for handle in handles), strict=True))
    assert not any(stored.repeated for stored in expected.values())
    assert {
        record.body: (record.queue_id, record.queue_offset, record.commit_offset)
        for record in records_on_disk(tmp_path / "store")
    } == {
        body: (stored.queue_id, stored.queue_offset, stored.commit_offset)
        for body, stored in expected.items()
    }


def test_who_asks_a_real_writer_again_with_a_token_is_told_what_the_first_was_told(
    tmp_path: Path,
) -> None:
    batch = RecordBatch("t")
    batch.add_many([b"a", b"b"])
    with WriterProcess(tmp_path / "store") as writer, writer.client(timeout_s=PATIENCE_S) as client:
        client.create_topic("t", queues=1)
        producer_id, now_ms = secrets.randbelow(1 << 62) + 1, int(time.time() * 1_000)
        tokens = [str(RequestToken(producer_id, n, now_ms)) for n in (1, 2)]
        placed = client.produce_batch(batch, token=tokens[0])
        stored = client.produce("t", b"c", token=tokens[1])
        assert (placed.repeated, stored.repeated) == (False, False)
        for _ in range(3):
            client.produce("t", b"other")
        assert client.produce_batch(batch, token=tokens[0]) == replace(placed, repeated=True)
        assert client.produce("t", b"c", token=tokens[1]) == replace(stored, repeated=True)
    found = Counter(record.body for record in records_on_disk(tmp_path / "store"))
    assert found == {b"a": 1, b"b": 1, b"c": 1, b"other": 3}


def test_what_the_gateway_sends_again_after_a_lost_answer_and_a_kill_is_in_the_log_once(
    tmp_path: Path,
) -> None:
    topic = v2.Resource(name="t")
    answers: list[service_pb2.SendMessageResponse] = []
    with (
        WriterProcess(tmp_path / "store", "--flush-mode", "sync") as writer,
        writer.client(timeout_s=PATIENCE_S) as client,
        SlowLink(writer.address, 0) as link,
        BackgroundService(serve_gateway, gateway_settings(writer_address=link.address)) as gateway,
        grpc.insecure_channel(gateway.address) as channel,
    ):
        client.create_topic("t", queues=1, attributes={"message.type": "NORMAL"})
        stub = service_pb2_grpc.MessagingServiceStub(channel)

        def send(*bodies: bytes) -> None:
            request = service_pb2.SendMessageRequest(messages=[message(topic, b) for b in bodies])
            answers.append(stub.SendMessage(request, metadata=CLIENT, timeout=30))

        send(b"before")
        stored = client.writer_status().flushed_offset
        link.is_mute = True
        sending = threading.Thread(target=send, args=(b"a", b"b"))
        sending.start()
        until(lambda: client.writer_status().flushed_offset > stored, 20)
        writer.kill()
        link.is_mute = False
        writer.start()
        sending.join(30)
        send(b"after")
    assert [answer.status.code for answer in answers] == [v2.OK] * 3
    assert [[entry.offset for entry in answer.entries] for answer in answers] == [[0], [1, 2], [3]]
    found = [record.body for record in records_on_disk(tmp_path / "store")]
    assert found == [b"before", b"a", b"b", b"after"]

"""A writer that is killed under clients that send again: every message is in the log once, and nobody has to ask."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from engine_store import records_on_disk
from messaging_bed import CLIENT, message
from real_processes import until
from service_process import WriterProcess
from service_settings import gateway_settings
from slow_link import SlowLink
from steps_to_try import ALL_STEPS, cases_to_try

from penstock import Client, Message, PenstockError, RecordBatch
from services.gateway.__main__ import serve as serve_gateway
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.testing import BackgroundService
from storage.format.names import HALF_TOPIC

T = TypeVar("T")
KILLS = 3 if ALL_STEPS else 2
EVERY_CONNECTION = 1 << 30
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


@pytest.mark.parametrize("flush_mode", cases_to_try(["sync", "async"]))
def test_a_killed_writer_leaves_each_message_of_clients_that_send_again_in_the_log_once(
    tmp_path: Path, flush_mode: str
) -> None:
    with WriterProcess(tmp_path / "store", "--flush-mode", flush_mode) as writer:
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


class LossyPath:
    """A writer and a link to it; each answer to ``call`` is lost after its records are durable, then the writer killed."""

    def __init__(self, writer: WriterProcess, link: SlowLink, observer: Client) -> None:
        self.writer, self.link, self.observer = writer, link, observer

    def call(self, action: Callable[[], T]) -> T:
        """Return what the action returned in the end."""
        results: list[T] = []
        before = self.observer.writer_status().flushed_offset
        self.link.mute_count = EVERY_CONNECTION
        calling = threading.Thread(target=lambda: results.append(action()))
        calling.start()
        until(lambda: self.observer.writer_status().flushed_offset > before, PATIENCE_S)
        self.writer.kill()
        self.link.mute_count = 0
        self.writer.start()
        calling.join(PATIENCE_S)
        [result] = results
        return result


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Iterator[LossyPath]:
    with (
        WriterProcess(tmp_path / "store", "--flush-mode", "sync") as writer,
        writer.client(timeout_s=PATIENCE_S) as observer,
        SlowLink(writer.address, 0) as link,
    ):
        yield LossyPath(writer, link, observer)


@pytest.fixture(name="gateway")
def _gateway(path: LossyPath) -> Iterator[Any]:
    """What a RocketMQ client calls; its gateway reaches the writer over the link."""
    settings = gateway_settings(writer_address=path.link.address)
    with (
        BackgroundService(serve_gateway, settings) as gateway,
        grpc.insecure_channel(gateway.address) as channel,
    ):
        yield service_pb2_grpc.MessagingServiceStub(channel)


def bodies_by_topic(store: Path) -> Counter[tuple[str, bytes]]:
    return Counter((record.topic, record.body) for record in records_on_disk(store))


def test_what_the_gateway_sends_again_after_a_lost_answer_and_a_kill_is_in_the_log_once(
    path: LossyPath, gateway: Any
) -> None:
    topic = v2.Resource(name="t")
    path.observer.create_topic("t", queues=1, attributes={"message.type": "NORMAL"})

    def send(*bodies: bytes) -> list[int]:
        request = service_pb2.SendMessageRequest(messages=[message(topic, b) for b in bodies])
        answer = gateway.SendMessage(request, metadata=CLIENT, timeout=PATIENCE_S)
        assert answer.status.code == v2.OK
        return [entry.offset for entry in answer.entries]

    assert send(b"before") == [0]
    assert path.call(lambda: send(b"a", b"b")) == [1, 2]
    assert send(b"after") == [3]
    found = [record.body for record in records_on_disk(path.writer.store)]
    assert found == [b"before", b"a", b"b", b"after"]


@pytest.mark.parametrize("resolution", cases_to_try([v2.COMMIT, v2.ROLLBACK]))
def test_a_half_message_and_its_end_whose_answers_are_lost_count_once_through_the_gateway(
    path: LossyPath, gateway: Any, resolution: v2.TransactionResolution
) -> None:
    topic = v2.Resource(name="t")
    path.observer.create_topic("t", queues=1, attributes={"message.type": "TRANSACTION"})
    first, half = (message(topic, body, message_type=v2.TRANSACTION) for body in (b"first", b"a"))
    key = half.system_properties.message_id
    sent = service_pb2.SendMessageRequest(messages=[half])
    ended = service_pb2.EndTransactionRequest(
        topic=topic, message_id=key, transaction_id=key, resolution=resolution
    )
    options = {"metadata": CLIENT, "timeout": PATIENCE_S}
    gateway.SendMessage(service_pb2.SendMessageRequest(messages=[first]), **options)  # connects
    assert path.call(lambda: gateway.SendMessage(sent, **options)).status.code == v2.OK
    unknown = service_pb2.EndTransactionRequest(
        topic=topic, message_id="none", transaction_id="none", resolution=resolution
    )
    answer = gateway.EndTransaction(unknown, **options)  # connects again
    assert answer.status.code == v2.INVALID_TRANSACTION_ID
    for answer in (
        path.call(lambda: gateway.EndTransaction(ended, **options)),
        gateway.EndTransaction(ended, **options),
    ):
        assert answer.status.code == v2.OK
    found = bodies_by_topic(path.writer.store)
    assert found[HALF_TOPIC, b"a"] == 1
    assert found["t", b"a"] == (resolution == v2.COMMIT)


@pytest.mark.parametrize("commit", cases_to_try([True, False]))
def test_a_half_message_and_its_end_whose_answers_are_lost_count_once_for_a_client(
    path: LossyPath, commit: bool
) -> None:
    path.observer.create_topic("t", queues=1)
    with Client(writer=path.link.address, timeout_s=PATIENCE_S) as client:
        transaction = client.transaction("t", transaction_id="one")
        transaction.send(b"a")
        path.call(lambda: transaction.send(b"b"))
        end = transaction.commit if commit else transaction.rollback
        ended = path.call(end)
        assert ended is not None
        assert (ended.message_count, ended.already) == (2, True)
    found = bodies_by_topic(path.writer.store)
    assert [found[HALF_TOPIC, body] for body in (b"a", b"b")] == [1, 1]
    assert [found["t", body] for body in (b"a", b"b")] == [commit] * 2

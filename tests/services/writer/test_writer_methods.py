"""The writer's methods over an engine in memory: acknowledgements, their order, and failures."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from fake_writer_store import FakeWriterStore
from frame_outcomes import outcomes_of
from real_processes import until

from penstock.v1 import common_pb2, writer_pb2, writer_pb2_grpc
from services.writer.acks import Acks
from services.writer.produce_stream import SMALL_BYTES
from services.writer.servicer import MESSAGES_MAX, WriterServicer
from storage import errors

IN_FLIGHT = 4


@pytest.fixture(scope="module")
def store() -> FakeWriterStore:
    return FakeWriterStore(acknowledges_itself=False)


@pytest.fixture(scope="module")
def grpc_service() -> Any:
    return writer_pb2.DESCRIPTOR.services_by_name["Writer"]


@pytest.fixture(scope="module")
def grpc_servicer_factory(store: FakeWriterStore) -> Callable[[asyncio.Event], Any]:
    return lambda draining: WriterServicer(
        store, Acks(store), draining, stream_batches_max=IN_FLIGHT
    )


@pytest.fixture(scope="module")
def grpc_stub_cls() -> Any:
    return writer_pb2_grpc.WriterStub


@pytest.fixture(autouse=True)
def fresh(store: FakeWriterStore) -> Iterator[None]:
    store.error = store._failure = None
    store.stored.clear()
    store.acknowledge()
    yield
    store._failure = None
    store.acknowledge()


def request(*bodies: bytes) -> writer_pb2.ProduceRequest:
    return writer_pb2.ProduceRequest(
        messages=[common_pb2.Message(topic="t", body=body) for body in bodies]
    )


def test_produce_answers_only_after_the_acknowledgement(
    grpc_stub: Any, store: FakeWriterStore
) -> None:
    call = grpc_stub.Produce.future(request(b"a", b"b"), timeout=60)
    until(lambda: len(store.stored) == 2)
    time.sleep(0.05)
    assert not call.done()
    store.acknowledge(store.appended_offset - 1)
    time.sleep(0.05)
    assert not call.done()
    store.acknowledge()
    assert [r.topic for r in call.result().results] == ["t", "t"]


def test_a_failed_sync_acknowledges_nothing(grpc_stub: Any, store: FakeWriterStore) -> None:
    call = grpc_stub.Produce.future(request(b"x"), timeout=60)
    until(lambda: len(store.stored) == 1)
    store.fail(errors.StoreFailed("fsync failed; restart the writer"))
    with pytest.raises(grpc.RpcError) as caught:
        call.result()
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "fsync failed" in caught.value.details()


def test_a_cancelled_caller_leaves_the_others_waiting(
    grpc_stub: Any, store: FakeWriterStore
) -> None:
    gone = grpc_stub.Produce.future(request(b"gone"), timeout=60)
    until(lambda: len(store.stored) == 1)
    stays = grpc_stub.Produce.future(request(b"stays"), timeout=60)
    until(lambda: len(store.stored) == 2)
    gone.cancel()
    time.sleep(0.05)
    store.acknowledge()
    assert len(stays.result().results) == 1


def test_a_deadline_ends_a_wait_for_an_acknowledgement(
    grpc_stub: Any, store: FakeWriterStore
) -> None:
    for timeout_s in (0.2, 1.0, 5.0):
        with pytest.raises(grpc.RpcError) as caught:
            grpc_stub.Produce(request(b"x"), timeout=timeout_s)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        if store.stored:
            return
    raise AssertionError("it never came to a wait")


def test_an_empty_request_is_refused(grpc_stub: Any, refusal: Any, store: FakeWriterStore) -> None:
    for refused in (
        refusal(grpc_stub.Produce, writer_pb2.ProduceRequest()),
        refusal(grpc_stub.ProduceBatch, writer_pb2.ProduceBatchRequest()),
    ):
        assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "at least one" in refused.message
    assert not store.stored


class Stream:
    """A stream of batches whose two directions a test moves by hand."""

    def __init__(self, stub: Any) -> None:
        self._frames: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.answers = outcomes_of(stub.ProduceStream(self._requests(), timeout=60))

    def _requests(self) -> Iterator[writer_pb2.ProduceBatchRequest]:
        while (records := self._frames.get()) is not None:
            yield writer_pb2.ProduceBatchRequest(records=records)

    def send(self, records: bytes) -> None:
        self._frames.put(records)

    def close(self) -> None:
        self._frames.put(None)


def test_stream_answers_follow_in_order_when_acknowledged(
    grpc_stub: Any, store: FakeWriterStore
) -> None:
    stream = Stream(grpc_stub)
    base = store.appended_offset
    for size in (10, 20, 30):
        stream.send(b"r" * size)
    until(lambda: len(store.stored) == 3)
    store.acknowledge(base + 30)
    assert next(stream.answers).stored.end_commit_offset == base + 10
    assert next(stream.answers).stored.end_commit_offset == base + 30
    stream.close()
    store.acknowledge()
    assert [a.stored.end_commit_offset for a in stream.answers] == [base + 60]


def test_frames_that_become_safe_together_have_one_answer(
    grpc_stub: Any, store: FakeWriterStore
) -> None:
    frames: queue.SimpleQueue[writer_pb2.ProduceBatchRequest | None] = queue.SimpleQueue()
    answers = grpc_stub.ProduceStream(iter(frames.get, None), timeout=60)
    for _ in range(IN_FLIGHT):
        frames.put(writer_pb2.ProduceBatchRequest(records=b"r"))
    until(lambda: len(store.stored) == IN_FLIGHT)
    store.acknowledge()
    frames.put(None)

    assert [len(each.outcomes) for each in answers] == [IN_FLIGHT]


def test_small_frames_that_come_at_once_are_appended_together(
    grpc_stub: Any, store: FakeWriterStore, background: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "acknowledges_itself", True)
    monkeypatch.setattr(store, "joined_counts", [])
    stream = Stream(grpc_stub)
    base = store.appended_offset
    stream.send(b"first")
    assert next(stream.answers).stored.end_commit_offset == base + 5

    def send_all() -> None:
        """Send, while the loop does nothing else."""
        for size in (1, 2, SMALL_BYTES + 1, 3, 4):
            stream.send(b"r" * size)
        stream.close()
        time.sleep(0.5)

    background.call(send_all)
    ends = [answer.stored.end_commit_offset - base - 5 for answer in stream.answers]
    assert ends == [1, 3, SMALL_BYTES + 4, SMALL_BYTES + 7, SMALL_BYTES + 11]
    assert 2 in store.joined_counts


def test_a_refused_frame_is_answered_in_its_place_and_the_stream_goes_on(
    grpc_stub: Any, store: FakeWriterStore
) -> None:
    stream = Stream(grpc_stub)
    stream.send(b"first")
    until(lambda: len(store.stored) == 1)
    store.error = errors.StoreBusy("the pool is full", retry_delay_ms=7)
    refused_before = store.refused_count
    stream.send(b"refused")
    stream.send(b"")
    until(lambda: store.refused_count > refused_before)
    store.error = None
    stream.send(b"last")
    stream.close()
    until(lambda: len(store.stored) == 2)
    store.acknowledge()
    first, busy, empty, last = list(stream.answers)
    assert first.WhichOneof("outcome") == last.WhichOneof("outcome") == "stored"
    assert busy.failure.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    assert (busy.failure.retry_delay_ms, busy.failure.record_index) == (7, -1)
    assert empty.failure.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert store.stored == [b"first", b"last"]


def test_unanswered_frames_of_a_stream_are_bounded(grpc_stub: Any, store: FakeWriterStore) -> None:
    stream = Stream(grpc_stub)
    for _ in range(4 * IN_FLIGHT):
        stream.send(b"x")
    until(lambda: len(store.stored) >= IN_FLIGHT)
    time.sleep(0.2)
    assert len(store.stored) == IN_FLIGHT
    stream.close()

    def all_stored() -> bool:
        store.acknowledge()
        return len(store.stored) == 4 * IN_FLIGHT

    until(all_stored)
    store.acknowledge()
    assert len(list(stream.answers)) == 4 * IN_FLIGHT


def test_a_failed_store_answers_each_frame_of_a_stream(
    grpc_stub: Any, store: FakeWriterStore
) -> None:
    """Those appended and not synced, and those that come later, each in its place."""
    stream = Stream(grpc_stub)
    base = store.appended_offset
    for frame in (b"safe", b"never", b"safe either"):
        stream.send(frame)
    until(lambda: len(store.stored) == 3)
    store.acknowledge(base + 4)
    assert next(stream.answers).WhichOneof("outcome") == "stored"
    store.fail(errors.StoreFailed("fsync failed"))
    store.error = errors.StoreFailed("fsync failed")
    stream.send(b"late")
    stream.close()
    answers = list(stream.answers)
    assert [a.failure.code for a in answers] == [grpc.StatusCode.FAILED_PRECONDITION.value[0]] * 3
    assert all("fsync failed" in a.failure.message for a in answers)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_batch_of_many_queues_is_stored_beside_the_event_loop(
    grpc_stub: Any,
    store: FakeWriterStore,
    background: Any,
    monkeypatch: pytest.MonkeyPatch,
    at_once: bool,
) -> None:
    monkeypatch.setattr(store, "takes_batches_at_once", at_once)
    threads: list[threading.Thread] = []
    append = store.append_batch

    def noted(records: memoryview, **more: Any) -> Any:
        threads.append(threading.current_thread())
        return append(records, **more)

    monkeypatch.setattr(store, "append_batch", noted)
    store.acknowledges_itself = True
    batches = [b"%d" % n * (SMALL_BYTES + 1) for n in range(3)]
    requests = [writer_pb2.ProduceBatchRequest(records=batch) for batch in batches]
    assert grpc_stub.ProduceBatch(requests[0], timeout=20).record_count == 1
    answers = list(outcomes_of(grpc_stub.ProduceStream(iter(requests[1:]), timeout=20)))
    assert [answer.stored.record_count for answer in answers] == [1, 1]
    assert store.stored == batches
    loop_thread = background.call(threading.current_thread)
    assert {thread is loop_thread for thread in threads} == {at_once}


def test_a_draining_service_answers_what_it_stored_and_ends_the_stream(
    grpc_stub: Any, store: FakeWriterStore, grpc_server: Any, background: Any
) -> None:
    stream = Stream(grpc_stub)
    stream.send(b"stored")
    until(lambda: len(store.stored) == 1)
    background.call(grpc_server.draining.set)
    time.sleep(0.1)
    store.acknowledge()
    assert next(stream.answers).stored.record_count == 1
    with pytest.raises(grpc.RpcError) as caught:
        next(stream.answers)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    stream.close()


@pytest.fixture
def putting(
    store: FakeWriterStore, monkeypatch: pytest.MonkeyPatch
) -> queue.Queue[threading.Thread]:
    """The thread of each ``put`` of the store that has returned."""
    threads: queue.Queue[threading.Thread] = queue.Queue()
    put = store.put

    def noted(messages: Any, **options: Any) -> Any:
        results = put(messages, **options)
        threads.put(threading.current_thread())
        return results

    monkeypatch.setattr(store, "put", noted)
    return threads


def test_a_request_that_is_sent_again_is_looked_up_beside_the_event_loop(
    grpc_stub: Any,
    store: FakeWriterStore,
    background: Any,
    putting: queue.Queue[threading.Thread],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is stored of it may have to be read from the disk."""
    monkeypatch.setattr(store, "is_new", lambda producer: not (producer.age_ms or store.stored))
    loop_thread = background.call(threading.current_thread)
    for age_ms, is_first in ((0, True), (0, False), (1, False)):
        repeat = request(b"x")
        repeat.producer.CopyFrom(
            writer_pb2.ProducerSequence(producer_id=1, sequence=1, age_ms=age_ms)
        )
        answer = grpc_stub.Produce.future(repeat, timeout=30)
        assert (putting.get(timeout=30) is loop_thread) is is_first
        store.acknowledge()
        assert len(answer.result().results) == 1


def test_more_messages_than_a_request_may_have_are_refused(
    grpc_channel: grpc.Channel, store: FakeWriterStore, refusal: Any
) -> None:
    call = grpc_channel.unary_unary("/penstock.v1.Writer/Produce")
    refused = refusal(call, b"\x0a\x00" * (MESSAGES_MAX + 1))
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert str(MESSAGES_MAX) in refused.message
    assert not store.stored

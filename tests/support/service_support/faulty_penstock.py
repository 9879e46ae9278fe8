"""A running store behind one address, where calls meet the faults that a test asks for."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from functools import partial
from typing import Any

import grpc
import pytest
from free_ports import free_address
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from real_processes import until

from penstock.v1 import reader_pb2, writer_pb2
from services.testing import RunningStore, running_store
from storage.format.names import file_name

SERVICES = ("writer", "reader", "indexer")
PRODUCES: dict[str, Any] = {
    "Produce": writer_pb2.ProduceRequest, "ProduceBatch": writer_pb2.ProduceBatchRequest
}  # fmt: skip
UNBOUNDED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
STATUS_DETAILS = "grpc-status-details-bin"
BODY_POSITION = 88  # behind two IPv4 hosts


def rich_status(
    code: grpc.StatusCode,
    message: str,
    *,
    reason: str = "",
    field_name: str = "",
    retry_delay_ms: int = 0,
    metadata: dict[str, str] | None = None,
) -> status_pb2.Status:
    """A status with the details that the services send."""
    status = status_pb2.Status(code=code.value[0], message=message)
    details: list[Any] = [
        error_details_pb2.ErrorInfo(reason=reason, domain="penstock", metadata=metadata or {})
    ]
    if field_name:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field_name)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if retry_delay_ms:
        duration = duration_pb2.Duration()
        duration.FromMilliseconds(retry_delay_ms)
        details.append(error_details_pb2.RetryInfo(retry_delay=duration))
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


class _GrpcStatus(grpc.Status):
    def __init__(self, code: grpc.StatusCode, details: str, rich: bytes | None) -> None:
        self.code = code
        self.details = details
        self.trailing_metadata = ((STATUS_DETAILS, rich),) if rich else ()


class FaultyPenstock(grpc.GenericRpcHandler):
    """Passes calls on to a store's services, byte by byte; every address of a client is the same."""

    def __init__(self, store: RunningStore) -> None:
        self._store = store
        self._channels = {
            f"penstock.v1.{name.capitalize()}": grpc.insecure_channel(
                getattr(store, name), UNBOUNDED
            )
            for name in SERVICES
        }
        self.direct = store.client()
        self.calls: Counter[str] = Counter()
        self.faults: dict[str, deque[status_pb2.Status | None]] = defaultdict(deque)
        self.answers_lost: Counter[str] = Counter()  # stored, not answered
        self.requests: list[Any] = []  # whose each produce was that reached the writer, in order
        self.answers_wait = threading.Event()  # of batches
        self.answers_wait.set()
        self.batches_unanswered_max = 0
        self.pull_records_max = 1000
        self.lock = threading.Lock()  # who holds it keeps calls from going on
        self._batches_unanswered = 0
        self._guard = threading.Lock()
        self.address = free_address()
        self.start()

    @property
    def addresses(self) -> dict[str, str]:
        """Arguments of a client."""
        return dict.fromkeys(SERVICES, self.address)

    def start(self) -> None:
        """Serve, on the address of before after a `stop`."""
        self._server = grpc.server(futures.ThreadPoolExecutor(16), options=UNBOUNDED)
        self.health = health.HealthServicer()
        for service in self._channels:
            self.health.set(service, health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        self._server.add_generic_rpc_handlers((self,))
        for _ in range(50):
            try:
                self._server.add_insecure_port(self.address)
                break
            except RuntimeError:
                time.sleep(0.05)
        self._server.start()

    def stop(self) -> None:
        """Cut every connection."""
        self._server.stop(None).wait()

    def close(self) -> None:
        """Stop, and leave the store empty."""
        self.answers_wait.set()
        self.stop()
        for topic in self.direct.topics():
            self.direct.delete_topic(topic.name)
        self.direct.close()
        for channel in self._channels.values():
            channel.close()

    # ---- what a test asks for, and finds

    def fail_next(self, method: str, status: status_pb2.Status, times: int = 1) -> None:
        """Let the next calls of a method end with a status."""
        self.faults[method].extend([status] * times)

    def damage(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Flip a bit in the body of a stored record."""
        record = self.direct.pull(topic, queue_id, queue_offset, max_messages=1).records[0]
        files = self._store.directory / "commitlog"
        start = max(s for s in (int(p.name) for p in files.iterdir()) if s <= record.commit_offset)
        with (files / file_name(start)).open("r+b") as file:
            at = file.seek(record.commit_offset - start + BODY_POSITION)
            flipped = file.read(1)[0] ^ 1
            file.seek(at)
            file.write(bytes([flipped]))

    def stored_count(self) -> int:
        """Return how many records there are in all topics."""
        until(self._is_dispatched)
        described = (self.direct.describe_topic(topic.name) for topic in self.direct.topics())
        return sum(end for each in described for _, end in each.queues.values())

    def bodies(self, topic: str, queue_id: int) -> list[bytes]:
        """Bodies of a queue in order."""
        until(self._is_dispatched)
        records = self.direct.consume(topic, queues=[queue_id], follow=False)
        return [bytes(record.body) for record in records]

    def _is_dispatched(self) -> bool:
        status = self.direct.writer_status()
        return status.dispatched_offset >= status.appended_offset

    # ---- calls

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return what takes a call; health checks are not passed on."""
        _, service, method = details.method.split("/")
        if service not in self._channels:
            return None
        channel = self._channels[service]
        if method == "PullStream":
            return grpc.unary_stream_rpc_method_handler(
                partial(self._stream, channel.unary_stream(details.method))
            )
        return grpc.unary_unary_rpc_method_handler(
            partial(self._call, method, channel.unary_unary(details.method))
        )

    def _call(self, method: str, stub: Any, request: bytes, context: grpc.ServicerContext) -> bytes:
        if method != "ProduceBatch":
            return self._answer(method, stub, request, context)
        with self._unanswered_batch():
            self.answers_wait.wait(60)
            return self._answer(method, stub, request, context)

    def _answer(self, method: str, stub: Any, request: bytes, context: Any) -> bytes:
        self._meet_fault(method, context)
        if method in PRODUCES and context.is_active():
            self.requests.append(PRODUCES[method].FromString(request).producer)
        if method == "Pull":
            pull = reader_pb2.PullRequest.FromString(request)
            pull.max_messages = min(pull.max_messages or 32, self.pull_records_max)
            request = pull.SerializeToString()
        with self.lock:
            call = stub.future(request, timeout=_left_s(context))
        if not context.add_callback(call.cancel):
            call.cancel()
        answer: bytes = _passed_on(call.result, context)
        self.lose_answer(method, context)
        return answer

    def _stream(self, stub: Any, request: bytes, context: Any) -> Iterator[bytes]:
        self._meet_fault("PullStream", context)
        call = stub(request, timeout=_left_s(context))
        context.add_callback(call.cancel)
        while answer := _passed_on(partial(next, call, b""), context):
            yield answer

    def _meet_fault(self, method: str, context: grpc.ServicerContext) -> None:
        self.calls[method] += 1
        status = self.faults[method].popleft() if self.faults[method] else None
        if status is not None:
            code = next(each for each in grpc.StatusCode if each.value[0] == status.code)
            context.abort_with_status(_GrpcStatus(code, status.message, status.SerializeToString()))

    def lose_answer(self, method: str, context: grpc.ServicerContext) -> None:
        """Break off now if the answer is to be lost."""
        if self.answers_lost[method]:
            self.answers_lost[method] -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "lost on purpose")

    @contextmanager
    def _unanswered_batch(self) -> Iterator[None]:
        with self._guard:
            self._batches_unanswered += 1
            self.batches_unanswered_max = max(self.batches_unanswered_max, self._batches_unanswered)
        try:
            yield
        finally:
            with self._guard:
                self._batches_unanswered -= 1


def _left_s(context: grpc.ServicerContext) -> float:
    """Return how long a caller waits; one that waits for ever, for more seconds than grpc can add to a time, an hour."""
    return min(context.time_remaining(), 3_600)


def _passed_on(answer: Callable[[], Any], context: grpc.ServicerContext) -> Any:
    """Return an answer of a service, or end the call as the service did."""
    try:
        return answer()
    except grpc.FutureCancelledError:
        context.abort(grpc.StatusCode.CANCELLED, "the caller has gone")
    except grpc.RpcError as error:
        rich = dict(error.trailing_metadata() or ()).get(STATUS_DETAILS)
        context.abort_with_status(_GrpcStatus(error.code(), error.details(), rich))


@pytest.fixture(scope="session", name="running")
def running_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    with running_store(tmp_path_factory.mktemp("running") / "store") as store:
        yield store


@pytest.fixture(name="faulty")
def faulty_fixture(running: RunningStore) -> Iterator[FaultyPenstock]:
    faulty = FaultyPenstock(running)
    faulty.direct.create_topic("orders", queues=4)
    yield faulty
    faulty.close()

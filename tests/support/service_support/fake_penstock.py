"""The three services over a list in memory, with faults on request: what client tests talk to."""

from __future__ import annotations

import copy
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from free_ports import free_address
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from plain_records import encode_record

from penstock.v1 import (
    common_pb2,
    indexer_pb2,
    indexer_pb2_grpc,
    reader_pb2,
    reader_pb2_grpc,
    writer_pb2,
    writer_pb2_grpc,
)
from storage.format.message_id import decode_message_id, encode_message_id
from storage.format.producer_sequence import encode_sequence
from storage.format.record import Record, decode_record

STORE_HOST = "127.0.0.1:10911"


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


@dataclass
class FakeStore:
    """What is stored, and the faults that the next calls are to meet."""

    topics: dict[str, int] = field(default_factory=dict)
    log: list[bytes] = field(default_factory=list)
    queues: dict[tuple[str, int], list[bytes]] = field(default_factory=lambda: defaultdict(list))
    damaged: dict[tuple[str, int, int], str] = field(default_factory=dict)
    groups: dict[tuple[str, str, int], int] = field(default_factory=dict)
    faults: dict[str, deque[status_pb2.Status | None]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    answers_lost: dict[str, int] = field(
        default_factory=lambda: defaultdict(int)
    )  # stored, not answered
    requests: list[Any] = field(default_factory=list)  # whose each was, in order
    answered: dict[tuple[int, int], Any] = field(default_factory=dict)  # by producer and sequence
    answers_wait: threading.Event = field(default_factory=threading.Event)  # of batches
    batches_unanswered: int = 0
    batches_unanswered_max: int = 0
    commit_offset: int = 0
    pull_records_max: int = 1000
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.answers_wait.set()
        self.grown = threading.Condition(self.lock)

    def wake(self) -> None:
        """Let those who wait for a record look whether their call goes on."""
        with self.lock:
            self.grown.notify_all()

    def fail_next(self, method: str, status: status_pb2.Status, times: int = 1) -> None:
        """Let the next calls of a method end with a status."""
        self.faults[method].extend([status] * times)

    def meet_fault(self, method: str, context: grpc.ServicerContext) -> None:
        self.calls[method] += 1
        if self.faults[method]:
            status = self.faults[method].popleft()
            if status is not None:
                context.abort_with_status(_GrpcStatus(status))

    def once(self, producer: Any, store: Callable[[], Any]) -> Any:
        """Store a request unless it is stored; return its answer."""
        with self.lock:
            self.requests.append(producer)
            key = producer.producer_id, producer.sequence
            if not key[0]:
                return store()
            if key in self.answered:
                answer = copy.deepcopy(self.answered[key])
                answer.repeated = True
                return answer
            answer = self.answered[key] = store()
            return answer

    @contextmanager
    def unanswered_batch(self) -> Iterator[None]:
        """Count a batch while it has no answer, and hold it back while answers wait."""
        with self.lock:
            self.batches_unanswered += 1
            self.batches_unanswered_max = max(self.batches_unanswered_max, self.batches_unanswered)
        self.answers_wait.wait(60)
        try:
            yield
        finally:
            with self.lock:
                self.batches_unanswered -= 1

    def lose_answer(self, method: str, context: grpc.ServicerContext) -> None:
        """Break off now if the answer is to be lost."""
        if self.answers_lost[method]:
            self.answers_lost[method] -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "lost on purpose")

    def check_topic(self, topic: str, context: grpc.ServicerContext) -> None:
        if topic not in self.topics:
            context.abort_with_status(
                _GrpcStatus(
                    rich_status(
                        grpc.StatusCode.NOT_FOUND,
                        f"topic {topic!r} does not exist; create it first",
                        reason="TOPIC_NOT_FOUND",
                    )
                )
            )

    def described(self, name: str) -> common_pb2.Topic:
        count = self.topics[name]
        return common_pb2.Topic(name=name, read_queue_count=count, write_queue_count=count, perm=6)

    def append_all(self, records: list[Record], producer: Any) -> list[Record]:
        """Store the records of a request as a writer would, the first of which says whose request it is."""
        with self.lock:
            blocks = [record.properties_block for record in records]
            if producer.producer_id:
                request = producer.producer_id, producer.sequence
                blocks[0] = encode_sequence(*request, 0) + blocks[0]
                size = sum(map(len, map(self._placed, records, blocks)))
                told = encode_sequence(*request, size, self.commit_offset)
                blocks[0] = told + records[0].properties_block
            return list(map(self._append, records, blocks))

    def _placed(self, record: Record, properties_block: bytes) -> bytes:
        return encode_record(
            topic=record.topic,
            queue_id=record.queue_id,
            body=record.body,
            properties_block=properties_block,
            flag=record.flag,
            queue_offset=len(self.queues[record.topic, record.queue_id]),
            commit_offset=self.commit_offset,
            born_timestamp_ms=record.born_timestamp_ms,
            store_timestamp_ms=1_700_000_000_000 + len(self.log),
            store_host=STORE_HOST,
            append_property_crc=True,
        )

    def _append(self, record: Record, properties_block: bytes) -> Record:
        data = self._placed(record, properties_block)
        self.queues[record.topic, record.queue_id].append(data)
        self.log.append(data)
        self.commit_offset += len(data)
        self.grown.notify_all()
        return decode_record(data)

    def append_batch(self, request: Any) -> writer_pb2.ProduceBatchResponse:
        """Store a batch of records."""
        with self.lock:
            first = self.commit_offset
            position, records = 0, []
            while position < len(request.records):
                records.append(decode_record(request.records, position))
                position += records[-1].total_size
            stored = self.append_all(records, request.producer)
            ranges: dict[tuple[str, int], writer_pb2.QueueRange] = {}
            for record in stored:
                found = ranges.setdefault(
                    (record.topic, record.queue_id),
                    writer_pb2.QueueRange(
                        topic=record.topic,
                        queue_id=record.queue_id,
                        first_queue_offset=record.queue_offset,
                    ),
                )
                found.count += 1
            return writer_pb2.ProduceBatchResponse(
                commit_offset=first,
                end_commit_offset=self.commit_offset,
                record_count=len(stored),
                store_timestamp_ms=stored[-1].store_timestamp_ms if stored else 0,
                ranges=ranges.values(),
            )

    def bodies(self, topic: str, queue_id: int) -> list[bytes]:
        """Bodies of a queue in order."""
        with self.lock:
            return [decode_record(data).body for data in self.queues[topic, queue_id]]


class _GrpcStatus(grpc.Status):
    def __init__(self, status: status_pb2.Status) -> None:
        self.code = next(c for c in grpc.StatusCode if c.value[0] == status.code)
        self.details = status.message
        self.trailing_metadata = (("grpc-status-details-bin", status.SerializeToString()),)


class FakeWriter(writer_pb2_grpc.WriterServicer):
    def __init__(self, store: FakeStore) -> None:
        self.store = store

    def Produce(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("Produce", context)
        answer = self.store.once(request.producer, lambda: self._produce(request, context))
        self.store.lose_answer("Produce", context)
        return answer

    def _produce(self, request: Any, context: grpc.ServicerContext) -> Any:
        drafts = []
        for message in request.messages:
            self.store.check_topic(message.topic, context)
            block = f"KEYS\x01{' '.join(message.keys)}\x02" if message.keys else ""
            block += f"TAGS\x01{message.tag}\x02" if message.tag else ""
            block += f"UNIQ_KEY\x01{message.unique_key}\x02" if message.unique_key else ""
            block += "".join(f"{k}\x01{v}\x02" for k, v in message.properties.items())
            draft = encode_record(
                topic=message.topic,
                queue_id=message.queue_id,
                body=message.body,
                properties_block=block.encode(),
                flag=message.flag,
            )
            drafts.append(decode_record(draft))
        stored = self.store.append_all(drafts, request.producer)
        return writer_pb2.ProduceResponse(
            results=[
                writer_pb2.ProduceResult(
                    topic=record.topic,
                    queue_id=record.queue_id,
                    queue_offset=record.queue_offset,
                    commit_offset=record.commit_offset,
                    message_id=encode_message_id(STORE_HOST, record.commit_offset),
                    unique_key=message.unique_key,
                    store_timestamp_ms=record.store_timestamp_ms,
                )
                for message, record in zip(request.messages, stored, strict=True)
            ]
        )

    def ProduceBatch(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self.store.unanswered_batch():
            self.store.meet_fault("ProduceBatch", context)
            answer = self.store.once(request.producer, lambda: self.store.append_batch(request))
            self.store.lose_answer("ProduceBatch", context)
            return answer

    def CreateTopic(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("CreateTopic", context)
        if request.name in self.store.topics:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, f"topic {request.name!r} exists already")
        self.store.topics[request.name] = request.queue_count
        return self._topic(request.name)

    def CreateTopics(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("CreateTopics", context)
        created = [self.CreateTopic(topic, context) for topic in request.topics]
        return writer_pb2.CreateTopicsResponse(topics=created)

    def UpdateTopic(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("UpdateTopic", context)
        self.store.check_topic(request.name, context)
        if request.HasField("queue_count"):
            self.store.topics[request.name] = request.queue_count
        return self._topic(request.name)

    def DeleteTopic(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("DeleteTopic", context)
        self.store.check_topic(request.name, context)
        del self.store.topics[request.name]
        return writer_pb2.DeleteTopicResponse()

    def DescribeTopic(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("DescribeTopic", context)
        self.store.check_topic(request.name, context)
        queues = [
            writer_pb2.QueueState(
                queue_id=q, min_offset=0, max_offset=len(self.store.queues[request.name, q])
            )
            for q in range(self.store.topics[request.name])
        ]
        return writer_pb2.DescribeTopicResponse(topic=self._topic(request.name), queues=queues)

    def ListTopics(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("ListTopics", context)
        return writer_pb2.ListTopicsResponse(
            topics=[self._topic(name) for name in sorted(self.store.topics)]
        )

    def GetWriterStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
        return writer_pb2.WriterStatus(
            appended_offset=self.store.commit_offset, writable=True, flush_mode="sync"
        )

    def _topic(self, name: str) -> common_pb2.Topic:
        return self.store.described(name)


class FakeReader(reader_pb2_grpc.ReaderServicer):
    def __init__(self, store: FakeStore) -> None:
        self.store = store

    def Pull(self, request: Any, context: grpc.ServicerContext) -> Any:
        store = self.store
        store.meet_fault("Pull", context)
        store.check_topic(request.topic, context)
        queue = store.queues[request.topic, request.queue_id]
        begin = request.queue_offset
        with store.lock:
            if begin >= len(queue) and request.wait_ms and context.add_callback(store.wake):
                store.grown.wait_for(
                    lambda: begin < len(queue) or not context.is_active(), request.wait_ms / 1000
                )
            answer = reader_pb2.PullResponse(min_offset=0, max_offset=len(queue))
            if begin > len(queue):
                answer.status = reader_pb2.OFFSET_OVERFLOW_BADLY
                answer.next_offset = len(queue)
                return answer
            if begin == len(queue):
                answer.status = reader_pb2.OFFSET_OVERFLOW_ONE
                answer.next_offset = begin
                return answer
            count = min(request.max_messages or 32, store.pull_records_max)
            records, at = [], begin
            tags = [tag.strip() for tag in request.tag_expression.split("||") if tag.strip()]
            for at in range(begin, len(queue)):
                if len(records) == count:
                    break
                reason = store.damaged.get((request.topic, request.queue_id, at))
                if reason:
                    answer.damaged.add(queue_offset=at, size=len(queue[at]), reason=reason)
                    continue
                if tags and decode_record(queue[at]).properties.get("TAGS") not in tags:
                    continue
                records.append(queue[at])
            else:
                at = len(queue)
            answer.next_offset = at
            found = bool(records or answer.damaged)
            answer.status = reader_pb2.FOUND if found else reader_pb2.NO_MATCHED_MESSAGE
            answer.record_count = len(records)
            answer.records = b"".join(records)
            return answer

    def PullStream(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Send the queue a record a response; with ``follow`` stay at its end until the caller has gone."""
        pull = reader_pb2.PullRequest(
            topic=request.topic, queue_id=request.queue_id, max_messages=1
        )
        pull.queue_offset = request.queue_offset
        while context.is_active():
            pull.wait_ms = 100 if request.follow else 0
            answer = self.Pull(pull, context)
            if answer.status == reader_pb2.FOUND:
                yield answer
            elif not request.follow:
                return
            pull.queue_offset = answer.next_offset

    def QueryByKey(self, request: Any, context: grpc.ServicerContext) -> Any:
        store = self.store
        store.meet_fault("QueryByKey", context)
        newest = int(request.page_token or len(store.log) - 1)
        answer = reader_pb2.QueryByKeyResponse(indexed_offset=store.commit_offset)
        records: list[bytes] = []
        for number in range(newest, -1, -1):
            record = decode_record(store.log[number])
            name = "UNIQ_KEY" if request.unique else "KEYS"
            collides = record.properties.get("collides") == request.key
            if collides or request.key in record.properties.get(name, "").split(" "):
                if len(records) == request.max_messages:
                    answer.next_page_token = str(number)
                    break
                records.insert(0, store.log[number])
        answer.record_count = len(records)
        answer.records = b"".join(records)
        return answer

    def GetMessage(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("GetMessage", context)
        if request.WhichOneof("id") == "message_id":
            commit_offset = decode_message_id(request.message_id).commit_offset
        else:
            commit_offset = request.commit_offset
        for data in self.store.log:
            record = decode_record(data)
            if record.commit_offset == commit_offset:
                return reader_pb2.GetMessageResponse(
                    record=common_pb2.Record(
                        topic=record.topic,
                        queue_id=record.queue_id,
                        queue_offset=record.queue_offset,
                        commit_offset=record.commit_offset,
                        size=record.total_size,
                        body=record.body,
                        properties=record.properties,
                        store_host=record.store_host,
                        born_host=record.born_host,
                        store_timestamp_ms=record.store_timestamp_ms,
                        message_id=encode_message_id(STORE_HOST, commit_offset),
                    )
                )
        return context.abort(grpc.StatusCode.NOT_FOUND, "no record starts there")

    def ListQueues(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("ListQueues", context)
        topics = sorted(self.store.topics)
        return reader_pb2.ListQueuesResponse(
            topics=topics,
            described=[self.store.described(name) for name in topics if name in request.topics],
        )

    def QueryOffset(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("QueryOffset", context)
        queue = self.store.queues[request.topic, request.queue_id]
        offset = {reader_pb2.EARLIEST: 0, reader_pb2.LATEST: len(queue)}.get(request.position)
        if offset is None:
            times = [decode_record(data).store_timestamp_ms for data in queue]
            if request.position == reader_pb2.TIME_LOWER:
                offset = sum(time < request.timestamp_ms for time in times)
            else:
                offset = sum(time <= request.timestamp_ms for time in times) - 1
        return reader_pb2.QueryOffsetResponse(
            queue_offset=offset, min_offset=0, max_offset=len(queue)
        )

    def CommitOffset(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("CommitOffset", context)
        key = (request.group, request.topic, request.queue_id)
        self.store.groups[key] = request.queue_offset
        return reader_pb2.CommitOffsetResponse()

    def FetchOffsets(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("FetchOffsets", context)
        answer = reader_pb2.FetchOffsetsResponse()
        for (group, topic, queue_id), offset in sorted(self.store.groups.items()):
            if group == request.group and request.topic in ("", topic):
                end = len(self.store.queues[topic, queue_id])
                answer.offsets.add(
                    topic=topic,
                    queue_id=queue_id,
                    queue_offset=offset,
                    max_offset=end,
                    lag=end - offset,
                )
        return answer

    def ListGroups(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.store.meet_fault("ListGroups", context)
        return reader_pb2.ListGroupsResponse(
            groups=sorted({group for group, _, _ in self.store.groups})
        )

    def GetReaderStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
        return reader_pb2.ReaderStatus(visible_offset=self.store.commit_offset, writer_alive=True)


class FakeIndexer(indexer_pb2_grpc.IndexerServicer):
    def __init__(self, store: FakeStore) -> None:
        self.store = store

    def GetIndexerStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
        return indexer_pb2.IndexerStatus(indexed_offset=self.store.commit_offset)

    def WaitIndexed(self, request: Any, context: grpc.ServicerContext) -> Any:
        return indexer_pb2.IndexerStatus(indexed_offset=self.store.commit_offset)


class FakePenstock:
    """One gRPC server with all three services; every address of the client is the same."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.address = free_address()
        self.start()

    def start(self) -> None:
        """Serve, on the address of before after a `stop`."""
        self._server = grpc.server(futures.ThreadPoolExecutor(16))
        self.health = health.HealthServicer()
        for name in ("Writer", "Reader", "Indexer"):
            self.health.set(f"penstock.v1.{name}", health_pb2.HealthCheckResponse.SERVING)
        writer_pb2_grpc.add_WriterServicer_to_server(FakeWriter(self.store), self._server)
        reader_pb2_grpc.add_ReaderServicer_to_server(FakeReader(self.store), self._server)
        indexer_pb2_grpc.add_IndexerServicer_to_server(FakeIndexer(self.store), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        host, _, _ = self.address.partition(":")
        for _ in range(50):
            try:
                port = self._server.add_insecure_port(self.address)
                break
            except RuntimeError:
                time.sleep(0.05)
        self.address = f"{host}:{port}"
        self._server.start()

    def stop(self) -> None:
        """Cut every connection."""
        self._server.stop(None).wait()

    @property
    def addresses(self) -> dict[str, str]:
        """Arguments of a client."""
        return {"writer": self.address, "reader": self.address, "indexer": self.address}

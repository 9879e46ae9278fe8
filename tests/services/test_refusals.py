"""Bad input: the named status, a message that says what to change, and nothing stored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from frame_outcomes import outcomes_of
from three_services import ThreeServices, three_services

from penstock.v1 import common_pb2, indexer_pb2, reader_pb2, writer_pb2
from storage.format.properties import encode_properties
from storage.format.record import encode_for_batch

INVALID = grpc.StatusCode.INVALID_ARGUMENT


NOT_FOUND = grpc.StatusCode.NOT_FOUND


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    with three_services(tmp_path_factory.mktemp("refusals") / "store") as running:
        running.writer.CreateTopic(
            writer_pb2.CreateTopicRequest(name="orders", queue_count=4), timeout=20
        )
        running.writer.Produce(
            writer_pb2.ProduceRequest(
                messages=[common_pb2.Message(topic="orders", body=b"one", queue_id=0)]
            ),
            timeout=20,
        )
        yield running


@pytest.fixture(autouse=True)
def nothing_is_stored(services: ThreeServices) -> Iterator[None]:
    before = services.appended_offset()
    yield
    assert services.appended_offset() == before


def message(**changes: Any) -> common_pb2.Message:
    return common_pb2.Message(**{"topic": "orders", "body": b"x", **changes})


@pytest.mark.parametrize(
    ("bad", "code", "says"),
    [
        (message(topic="missing"), NOT_FOUND, "missing"),
        (message(topic=""), INVALID, "topic"),
        (message(topic="no/slash"), INVALID, "topic"),
        (message(topic="t" * 300), INVALID, "topic"),
        (message(queue_id=4), INVALID, "queues 0 to 3"),
        (message(queue_id=-1), INVALID, "queue"),
        (message(body=b"x" * ((4 << 20) + 1)), INVALID, "body"),
        (message(keys=["k" * 40_000]), INVALID, "keys"),
        (message(keys=[""]), INVALID, "key"),
        (message(keys=["two words"]), INVALID, "key"),
        (message(tag="a|b"), INVALID, "tag"),
        (message(properties={"p": "v" * 32_768}), INVALID, "propert"),
        (message(properties={"KEYS": "v"}), INVALID, "KEYS"),
        (message(properties={"": "v"}), INVALID, "propert"),
        (message(delay_level=3, delay_ms=1), INVALID, "delay_level"),
        (message(delay_ms=40 * 86_400_000 + 60_000), INVALID, "40 days"),
        (message(deliver_at_ms=-1), INVALID, "deliver_at_ms"),
    ],
    ids=lambda value: str(value)[:24] if isinstance(value, str) else None,
)
def test_a_bad_message_rejects_the_whole_request(
    services: ThreeServices, refusal: Any, bad: Any, code: Any, says: str
) -> None:
    request = writer_pb2.ProduceRequest(messages=[message(), bad])
    refused = refusal(services.writer.Produce, request)
    assert (refused.code, says in refused.message) == (code, True), refused.message
    if code is INVALID:
        assert refused.bad_request.field_violations


def record(**changes: Any) -> bytes:
    fields = {
        "topic": "orders",
        "queue_id": 0,
        "body": b"body",
        "properties_bytes": encode_properties({"KEYS": "k"}),
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp_ms": 1_700_000_000_000,
        "born_host": "127.0.0.1:1",
    }
    return bytes(encode_for_batch(**{**fields, **changes}))


def spoiled(position: int, data: bytes) -> bytes:
    whole = bytearray(record())
    whole[position : position + len(data)] = data
    return bytes(whole)


@pytest.mark.parametrize(
    ("bad", "code", "says"),
    [
        (record()[:-1], INVALID, "record 1"),
        (b"\x00" * 200, INVALID, "record 1"),
        (spoiled(4, b"\x00\x00\x00\x00"), INVALID, "record 1"),
        (spoiled(8, b"\x01\x02\x03\x04"), INVALID, "record 1"),
        (spoiled(0, b"\x7f\xff\xff\xff"), INVALID, "record 1"),
        (record(properties_bytes=encode_properties({"DELAY": "2s"})), INVALID, "record 1"),
        (
            record(properties_bytes=encode_properties({"DELAY": "2", "TIMER_DELAY_MS": "5"})),
            INVALID,
            "record 1",
        ),
        (record(queue_id=9), INVALID, "queues 0 to 3"),
        (record(topic="missing"), NOT_FOUND, "missing"),
        (record(body=b"x" * ((4 << 20) + 1)), INVALID, "record 1"),
    ],
    ids=["cut", "zeros", "magic", "crc", "size", "delay", "delays", "queue", "topic", "body"],
)
def test_a_bad_record_rejects_the_whole_batch(
    services: ThreeServices, refusal: Any, bad: bytes, code: Any, says: str
) -> None:
    request = writer_pb2.ProduceBatchRequest(records=record() + bad)
    refused = refusal(services.writer.ProduceBatch, request)
    assert refused.code is (code or refused.code)
    assert refused.code in (INVALID, NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED)
    assert says in refused.message.lower() or says in refused.message, refused.message
    (answer,) = outcomes_of(services.writer.ProduceStream(iter([request]), timeout=20))
    assert answer.failure.code == refused.code.value[0]
    assert answer.failure.message == refused.message
    if says == "record 1":
        assert refused.info.metadata["record_index"] == "1"
        assert answer.failure.record_index == 1


@pytest.mark.parametrize(
    ("request_", "code", "says"),
    [
        (writer_pb2.CreateTopicRequest(name="bad name!", queue_count=1), INVALID, "topic"),
        (writer_pb2.CreateTopicRequest(name="", queue_count=1), INVALID, "topic"),
        (writer_pb2.CreateTopicRequest(name="fine", queue_count=0), INVALID, "queue"),
        (
            writer_pb2.CreateTopicRequest(name="orders", queue_count=4),
            grpc.StatusCode.ALREADY_EXISTS,
            "orders",
        ),
    ],
    ids=["characters", "empty", "queues", "exists"],
)
def test_a_topic_that_cannot_be_made(
    services: ThreeServices, refusal: Any, request_: Any, code: Any, says: str
) -> None:
    refused = refusal(services.writer.CreateTopic, request_)
    assert (refused.code, says in refused.message) == (code, True), refused.message


def test_unknown_topics_are_not_found_everywhere(services: ThreeServices, refusal: Any) -> None:
    for call, request in (
        (services.writer.UpdateTopic, writer_pb2.UpdateTopicRequest(name="none", queue_count=2)),
        (services.writer.DeleteTopic, writer_pb2.DeleteTopicRequest(name="none")),
        (services.writer.DescribeTopic, writer_pb2.DescribeTopicRequest(name="none")),
        (services.reader.Pull, reader_pb2.PullRequest(topic="none")),
        (services.reader.PullStream, reader_pb2.PullStreamRequest(topic="none")),
        (services.reader.QueryByKey, reader_pb2.QueryByKeyRequest(topic="none", key="k")),
        (
            services.reader.QueryOffset,
            reader_pb2.QueryOffsetRequest(topic="none", position=reader_pb2.LATEST),
        ),
        (
            services.reader.CommitOffset,
            reader_pb2.CommitOffsetRequest(group="g", topic="none", queue_offset=0),
        ),
    ):
        refused = refusal(call, request)
        assert (refused.code, "none" in refused.message) == (NOT_FOUND, True), request


@pytest.mark.parametrize(
    ("method", "request_", "field"),
    [
        ("Pull", reader_pb2.PullRequest(topic="orders", max_messages=-1), "max_messages"),
        ("Pull", reader_pb2.PullRequest(topic="orders", max_bytes=-1), "max_bytes"),
        ("QueryByKey", reader_pb2.QueryByKeyRequest(topic="orders", key=""), "key"),
        (
            "QueryByKey",
            reader_pb2.QueryByKeyRequest(topic="orders", key="k", page_token="nonsense"),
            "page_token",
        ),
        ("GetMessage", reader_pb2.GetMessageRequest(message_id="zz"), "message_id"),
        ("GetMessage", reader_pb2.GetMessageRequest(), "id"),
        ("GetMessage", reader_pb2.GetMessageRequest(commit_offset=-5), "commit_offset"),
        ("QueryOffset", reader_pb2.QueryOffsetRequest(topic="orders"), "position"),
        (
            "CommitOffset",
            reader_pb2.CommitOffsetRequest(group="a b", topic="orders"),
            "group",
        ),
        (
            "CommitOffset",
            reader_pb2.CommitOffsetRequest(group="g", topic="orders", queue_offset=-1),
            "queue_offset",
        ),
        (
            "CommitOffset",
            reader_pb2.CommitOffsetRequest(group="g", topic="orders", queue_offset=50),
            "queue_offset",
        ),
        ("FetchOffsets", reader_pb2.FetchOffsetsRequest(group=""), "group"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_question_names_its_field(
    services: ThreeServices, refusal: Any, method: str, request_: Any, field: str
) -> None:
    refused = refusal(getattr(services.reader, method), request_)
    assert refused.code is INVALID, refused.message
    assert refused.bad_request.field_violations[0].field == field


def test_a_commit_offset_between_records_is_not_found(
    services: ThreeServices, refusal: Any
) -> None:
    refused = refusal(
        services.reader.GetMessage, reader_pb2.GetMessageRequest(commit_offset=10_000)
    )
    assert (refused.code, "10000" in refused.message) == (NOT_FOUND, True)


def test_waiting_for_the_index_ends_at_the_deadline(services: ThreeServices) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        services.indexer.WaitIndexed(
            indexer_pb2.WaitIndexedRequest(commit_offset=1 << 40), timeout=0.3
        )
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

"""Reading through the services: every status of a pull, waiting, streams, keys, offsets, damage."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from real_processes import until
from three_services import ThreeServices, in_time, three_services

from penstock.v1 import common_pb2, indexer_pb2, reader_pb2, writer_pb2
from storage.format.compression import compress
from storage.format.properties import encode_properties
from storage.format.record import decode_record, encode_for_batch

COUNT = 300  # messages in queue 0, tags A and B in turn


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    with three_services(tmp_path_factory.mktemp("reads") / "store") as running:
        create(running, "orders", 4)
        put(running, "orders", *(f"m{i}".encode() for i in range(COUNT)))
        settled(running)
        yield running


def create(services: ThreeServices, name: str, queues: int) -> None:
    services.writer.CreateTopic(
        writer_pb2.CreateTopicRequest(name=name, queue_count=queues), timeout=20
    )


def put(services: ThreeServices, topic: str, *bodies: bytes, queue_id: int = 0) -> Any:
    messages = [
        common_pb2.Message(
            topic=topic,
            body=body,
            queue_id=queue_id,
            tag="AB"[i % 2],
            keys=[f"key-{i % 10}"],
        )
        for i, body in enumerate(bodies)
    ]
    return services.writer.Produce(writer_pb2.ProduceRequest(messages=messages), timeout=20).results


def settled(services: ThreeServices) -> None:
    """Wait until everything is indexed, and so dispatched or about to be."""
    end = services.appended_offset()
    services.indexer.WaitIndexed(indexer_pb2.WaitIndexedRequest(commit_offset=end), timeout=20)
    asked = reader_pb2.GetReaderStatusRequest()
    until(lambda: services.reader.GetReaderStatus(asked, timeout=10).visible_offset >= end)


def pull(services: ThreeServices, **fields: Any) -> reader_pb2.PullResponse:
    request = reader_pb2.PullRequest(**{"topic": "orders", "max_messages": 1000, **fields})
    return services.reader.Pull(request, timeout=20)


def bodies(response: reader_pb2.PullResponse) -> list[bytes]:
    found, position = [], 0
    while position < len(response.records):
        record = decode_record(response.records, position)
        found.append(record.body)
        position += record.total_size
    assert len(found) == response.record_count
    return found


def test_found_records_come_raw_as_they_are_in_the_log(services: ThreeServices) -> None:
    response = pull(services)
    assert response.status == reader_pb2.FOUND
    assert bodies(response) == [f"m{i}".encode() for i in range(COUNT)]
    assert (response.next_offset, response.min_offset, response.max_offset) == (COUNT, 0, COUNT)


def test_decoded_records_have_all_fields(services: ThreeServices) -> None:
    response = pull(services, decode=True, queue_offset=2, max_messages=1)
    (record,) = response.decoded
    assert (record.body, record.queue_offset, record.tag, list(record.keys)) == (
        b"m2", 2, "A", ["key-2"],
    )  # fmt: skip
    assert record.message_id and record.unique_key and record.properties["TAGS"] == "A"
    assert not response.records


def test_bodies_that_decompress_to_much_come_in_more_answers(services: ThreeServices) -> None:
    """A small record may decompress to anything; no answer holds much more than was asked for."""
    create(services, "packed", 1)
    records = b"".join(
        encode_for_batch(
            "packed", 0, packed, encode_properties({"KEYS": "k"}), 0, sys_flag,
            1_700_000_000_000, "127.0.0.1:1",
        )
        for packed, sys_flag in [compress(bytes(300_000), "zlib")] * 5
        + [compress(bytes(33 << 20), "zlib")]
    )  # fmt: skip
    services.writer.ProduceBatch(writer_pb2.ProduceBatchRequest(records=records), timeout=20)
    settled(services)
    found, offset = [], 0
    stored = len(compress(bytes(33 << 20), "zlib")[0])
    while (answer := pull(services, topic="packed", queue_offset=offset, decode=True)).status == 1:
        found.append([len(record.body) for record in answer.decoded])
        offset, last = answer.next_offset, answer.decoded[-1]
        assert not answer.damaged
    assert found == [[300_000] * 3, [300_000] * 2 + [stored]]
    assert (last.queue_offset, "33554432" in last.body_problem) == (5, True)
    assert pull(services, topic="packed").record_count == 6  # raw: all of it
    stream = services.reader.PullStream(
        reader_pb2.PullStreamRequest(topic="packed", decode=True), timeout=20
    )
    assert [len(answer.decoded) for answer in stream] == [3, 3, 0]
    page = services.reader.QueryByKey(
        reader_pb2.QueryByKeyRequest(topic="packed", key="k", decode=True), timeout=20
    )
    assert sorted(bool(record.body_problem) for record in page.decoded) == [False] * 5 + [True]


def test_a_tag_filter_passes_only_its_tags(services: ThreeServices) -> None:
    only_b = pull(services, tag_expression="B || C")
    assert bodies(only_b) == [f"m{i}".encode() for i in range(1, COUNT, 2)]
    nothing = pull(services, tag_expression="C")
    assert nothing.status == reader_pb2.NO_MATCHED_MESSAGE
    assert nothing.next_offset > 0


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"queue_offset": COUNT}, reader_pb2.OFFSET_OVERFLOW_ONE),
        ({"queue_offset": COUNT + 5}, reader_pb2.OFFSET_OVERFLOW_BADLY),
        ({"queue_id": 3}, reader_pb2.NO_MESSAGE_IN_QUEUE),
        ({"queue_id": 99}, reader_pb2.NO_MATCHED_LOGIC_QUEUE),
        ({"queue_id": -1}, reader_pb2.NO_MATCHED_LOGIC_QUEUE),
    ],
    ids=["at the end", "beyond it", "empty", "no such queue", "negative queue"],
)
def test_a_pull_without_records_says_why(
    services: ThreeServices, fields: dict[str, Any], status: int
) -> None:
    assert pull(services, **fields).status == status


def test_a_waiting_pull_is_woken_by_the_message(services: ThreeServices) -> None:
    create(services, "waited", 1)
    answers: list[Any] = []

    def wait() -> None:
        started = time.monotonic()
        answers.append((pull(services, topic="waited", wait_ms=15_000), time.monotonic() - started))

    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(0.3)
    assert not answers
    put(services, "waited", b"at last")
    waiter.join(30)
    ((response, seconds),) = answers
    assert bodies(response) == [b"at last"]
    assert seconds < 15  # woken, and not the end of its wait


def test_a_wait_ends_in_time_and_before_the_callers_deadline(services: ThreeServices) -> None:
    started = time.monotonic()
    assert pull(services, queue_offset=COUNT, wait_ms=300).status == reader_pb2.OFFSET_OVERFLOW_ONE
    assert 0.25 < time.monotonic() - started < 15
    request = reader_pb2.PullRequest(topic="orders", queue_offset=COUNT, wait_ms=60_000)
    answer = in_time(lambda timeout_s: services.reader.Pull(request, timeout=timeout_s))
    assert answer.status == reader_pb2.OFFSET_OVERFLOW_ONE


def test_a_following_stream_goes_on_with_new_messages(services: ThreeServices) -> None:
    create(services, "followed", 1)
    put(services, "followed", b"1", b"2")
    request = reader_pb2.PullStreamRequest(topic="followed", follow=True)
    stream = services.reader.PullStream(request, timeout=20)
    found = iter(body for response in stream for body in bodies(response))
    assert [next(found), next(found)] == [b"1", b"2"]
    put(services, "followed", b"3")
    assert next(found) == b"3"
    stream.cancel()


def test_a_damaged_record_is_data_loss_of_itself_alone(services: ThreeServices) -> None:
    create(services, "damaged", 1)
    stored = put(services, "damaged", b"good 1", b"to be damaged", b"good 2")
    settled(services)
    log = services.store / "commitlog" / "00000000000000000000"
    position = log.read_bytes().index(b"to be damaged")
    with log.open("r+b") as file:
        file.seek(position)
        file.write(b"XX")
    response = pull(services, topic="damaged")
    assert response.status == reader_pb2.FOUND
    assert bodies(response) == [b"good 1", b"good 2"]
    (damage,) = response.damaged
    assert (damage.queue_offset, damage.commit_offset) == (1, stored[1].commit_offset)
    assert damage.reason
    with pytest.raises(grpc.RpcError) as caught:
        services.reader.GetMessage(
            reader_pb2.GetMessageRequest(commit_offset=stored[1].commit_offset), timeout=20
        )
    assert caught.value.code() is grpc.StatusCode.DATA_LOSS


def streamed(services: ThreeServices, **fields: Any) -> list[reader_pb2.PullResponse]:
    request = reader_pb2.PullStreamRequest(**{"topic": "orders", **fields})
    return list(services.reader.PullStream(request, timeout=20))


def test_a_stream_ends_at_its_end_offset(services: ThreeServices) -> None:
    answers = streamed(services, queue_offset=10, end_offset=200, max_bytes=2000)
    found = [body for answer in answers for body in bodies(answer)]
    assert found == [b"m%d" % number for number in range(10, 200)]
    assert len(answers) > 5
    assert {answer.status for answer in answers} == {reader_pb2.FOUND}
    assert (answers[-1].next_offset, answers[-1].max_offset) == (200, COUNT)


def test_a_follower_waits_until_its_end_is_there(services: ThreeServices) -> None:
    create(services, "grows", 1)
    found: list[bytes] = []

    def follow() -> None:
        for answer in streamed(services, topic="grows", follow=True, end_offset=3):
            found.extend(bodies(answer))

    follower = threading.Thread(target=follow)
    follower.start()
    for body in (b"a", b"b", b"c", b"d"):
        time.sleep(0.02)
        put(services, "grows", body)
    follower.join(20)
    assert found == [b"a", b"b", b"c"]


@pytest.mark.parametrize("end_offset", [-1, 0, 5])
def test_an_end_that_is_not_after_the_start_is_refused(
    services: ThreeServices, refusal: Any, end_offset: int
) -> None:
    request = reader_pb2.PullStreamRequest(topic="orders", queue_offset=5, end_offset=end_offset)
    refused = refusal(services.reader.PullStream, request)
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.bad_request.field_violations[0].field == "end_offset"


def test_a_tag_filter_examines_nothing_after_the_end(services: ThreeServices) -> None:
    answers = streamed(services, queue_offset=10, end_offset=13, tag_expression="A")
    assert [body for answer in answers for body in bodies(answer)] == [b"m10", b"m12"]
    assert answers[-1].next_offset == 13
    [nothing] = streamed(services, queue_offset=10, end_offset=13, tag_expression="C")
    assert (nothing.record_count, nothing.status, nothing.next_offset) == (
        0, reader_pb2.NO_MATCHED_MESSAGE, 13,
    )  # fmt: skip

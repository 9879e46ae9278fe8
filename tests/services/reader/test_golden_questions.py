"""A broker's questions about its own stores, asked through gRPC, get the broker's answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from golden import golden_answers, golden_copy
from service_settings import reader_settings

from penstock.v1 import reader_pb2, reader_pb2_grpc
from services.reader.__main__ import serve
from services.testing import BackgroundService
from storage.format.record import decode_record

BETTER = {  # a broker's status, and ours where it says more
    ("NO_MESSAGE_IN_QUEUE", "NO_MATCHED_LOGIC_QUEUE"),  # a queue that the topic does not have
    ("FOUND", "NO_MATCHED_MESSAGE"),  # found by the tags' hash alone; the tags differ
    ("NO_MATCHED_MESSAGE", "FOUND"),  # it stops after a stretch without a match, we go on
    ("OFFSET_FOUND_NULL", "OFFSET_TOO_SMALL"),  # we answer where the first kept message is
    ("MESSAGE_WAS_REMOVING", "OFFSET_TOO_SMALL"),  # likewise, at once
}


@pytest.fixture(scope="module", params=["basic", "cleaned"])
def asked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, list[dict[str, Any]]]]:
    """A reader of a broker's store that no writer of ours has opened, and the answers."""
    store = golden_copy(request.param, tmp_path_factory.mktemp("golden") / "store")
    with (
        BackgroundService(serve, reader_settings(store)) as service,
        grpc.insecure_channel(service.address) as channel,
    ):
        yield reader_pb2_grpc.ReaderStub(channel), golden_answers(request.param)


def of_kind(answers: list[dict[str, Any]], kind: str) -> list[tuple[Any, Any]]:
    found = [(a["question"], a["answer"]) for a in answers if a["question"]["kind"] == kind]
    assert found
    return found


def queue_offsets(response: reader_pb2.PullResponse) -> list[int]:
    found, position = [], 0
    while position < len(response.records):
        record = decode_record(response.records, position)
        found.append(record.queue_offset)
        position += record.total_size
    return found


def test_pulls(asked: tuple[Any, list[dict[str, Any]]]) -> None:
    reader, answers = asked
    statuses = set()
    for question, expected in of_kind(answers, "get"):
        request = reader_pb2.PullRequest(
            topic=question["topic"],
            queue_id=question["queue"],
            queue_offset=question["offset"],
            max_messages=question["max"],
            max_bytes=question.get("maxBytes", 0),
            tag_expression=question.get("filter") or "",
        )
        try:
            answer = reader.Pull(request, timeout=20)
        except grpc.RpcError as error:
            # What the contract has instead of a status of a topic that does not exist.
            assert error.code() is grpc.StatusCode.NOT_FOUND, (question, error)
            assert expected["status"] == "NO_MESSAGE_IN_QUEUE", question
            continue
        status = reader_pb2.PullStatus.Name(answer.status)
        statuses.add(status)
        offsets = expected["queueOffsets"]
        if status == expected["status"]:
            found = [o for o in queue_offsets(answer) if not offsets or o <= offsets[-1]]
            if question.get("filter"):  # a broker compares hashes and leaves tags to its client
                assert set(found) <= set(offsets), question
            else:
                shared = min(len(offsets), len(found))
                assert found[:shared] == offsets[:shared], question
            assert answer.max_offset == expected["maxOffset"], question
        else:
            assert (expected["status"], status) in BETTER, question
    assert {"FOUND", "OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY"} <= statuses


def test_earliest_and_latest(asked: tuple[Any, list[dict[str, Any]]]) -> None:
    reader, answers = asked
    for kind, position in (("minOffset", reader_pb2.EARLIEST), ("maxOffset", reader_pb2.LATEST)):
        for question, expected in of_kind(answers, kind):
            request = reader_pb2.QueryOffsetRequest(
                topic=question["topic"], queue_id=question["queue"], position=position
            )
            try:
                answer = reader.QueryOffset(request, timeout=20)
            except grpc.RpcError as error:
                assert error.code() in (
                    grpc.StatusCode.NOT_FOUND,
                    grpc.StatusCode.INVALID_ARGUMENT,
                )
                continue
            if kind == "minOffset":  # a broker's may still count messages that are gone
                assert answer.queue_offset >= expected["offset"], question
            else:
                assert answer.queue_offset == expected["offset"], question

"""Every status becomes its exception, as the services write it."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from faulty_penstock import FaultyPenstock, rich_status

import penstock
from penstock import Client, errors
from penstock.calls.call import produce_error
from services.rpc import status as service_status
from storage import errors as store_errors

CASES = {
    store_errors.StoreFailed("sync failed"): errors.FailedPrecondition,
    store_errors.StoreFull("no space"): errors.ResourceExhausted,
    store_errors.StoreBusy("busy", retry_delay_ms=30): errors.ResourceExhausted,
    store_errors.StoreClosed("closing"): errors.Unavailable,
    store_errors.TopicNotFound("t"): errors.TopicNotFound,
    store_errors.TopicExists("t"): errors.TopicExists,
    store_errors.QueueNotFound("t", 9, 4): errors.QueueNotFound,
    store_errors.InvalidMessage("keys", "empty"): errors.InvalidArgument,
    store_errors.InvalidBatch(3, "body CRC"): errors.InvalidArgument,
    store_errors.RecordNotFound(5): errors.MessageNotFound,
    store_errors.DamagedRecord(5, 100, "body CRC"): errors.DataLoss,
    service_status.NotServed("delay levels"): errors.Unimplemented,
}


@pytest.mark.parametrize("error", CASES, ids=lambda error: type(error).__name__)
def test_what_the_services_refuse_with_arrives_as_the_right_exception(
    faulty: FaultyPenstock, error: store_errors.StoreError
) -> None:
    """Class, code, message, reason, field, index and delay survive the wire."""
    status = service_status.status_of(error, "request-1")
    faulty.fail_next("CreateTopic", status)

    with Client(**faulty.addresses) as client, pytest.raises(errors.PenstockError) as caught:
        client.create_topic("t")

    assert type(caught.value) is CASES[error]
    assert caught.value.code is service_status.code_of(error)
    assert str(error) in caught.value.message
    assert caught.value.reason
    assert isinstance(caught.value.__cause__, grpc.RpcError)
    if isinstance(error, store_errors.InvalidMessage):
        assert caught.value.field == error.field
    if isinstance(error, store_errors.InvalidBatch):
        assert caught.value.record_index == error.record_index
    if isinstance(error, store_errors.StoreBusy):
        assert caught.value.retry_delay_ms == error.retry_delay_ms


@pytest.mark.parametrize("code", list(grpc.StatusCode)[1:], ids=lambda code: code.name)
def test_every_status_without_details_has_an_exception(
    faulty: FaultyPenstock, code: grpc.StatusCode
) -> None:
    """As a proxy or the transport itself would send it."""
    faulty.fail_next("CreateTopic", rich_status(code, "why"))

    with Client(**faulty.addresses) as client, pytest.raises(errors.PenstockError) as caught:
        client.create_topic("t")

    assert caught.value.code is code
    assert "why" in caught.value.message
    assert type(caught.value) is not errors.PenstockError


@pytest.mark.parametrize("is_safe", [True, False])
def test_a_call_that_the_service_cancels_is_made_again(
    faulty: FaultyPenstock, is_safe: bool
) -> None:
    """gRPC cancels new calls of a server while too many wait there."""
    name = "ListTopics" if is_safe else "Produce"
    faulty.fail_next(name, rich_status(grpc.StatusCode.CANCELLED, "CANCELLED"), times=2)
    with Client(**faulty.addresses) as client:
        client.create_topic("t", queues=1)
        if is_safe:
            assert [topic.name for topic in client.topics()] == ["orders", "t"]
        else:
            assert client.produce("t", b"once", queue_id=0).queue_offset == 0
    assert faulty.stored_count() == (not is_safe)


def test_what_this_side_gives_up_is_cancelled_and_what_the_service_cancels_is_unavailable() -> None:
    def failed(details: str) -> errors.PenstockError:
        metadata = grpc.aio.Metadata()
        code = grpc.StatusCode.CANCELLED
        return errors.from_rpc_error(grpc.aio.AioRpcError(code, metadata, metadata, details))

    for details in errors.CANCELLED_HERE:
        assert type(failed(details)) is errors.Cancelled
    refused = failed("CANCELLED")
    assert isinstance(refused, errors.Unavailable) and not refused.never_taken
    assert refused.code is grpc.StatusCode.CANCELLED


@pytest.mark.parametrize(
    ("error", "is_unknown"),
    [
        (errors.Unavailable("x"), True),
        (errors.DeadlineExceeded("x"), True),
        (errors.Cancelled("x"), True),
        (errors.ServiceFailed("x"), True),
        (errors.InvalidArgument("x"), False),
        (errors.TopicNotFound("x"), False),
        (errors.ResourceExhausted("x"), False),
        (errors.FailedPrecondition("x"), False),
        (errors.Unimplemented("x"), False),
    ],
)
def test_a_produce_is_of_unknown_outcome_unless_the_writer_said_what_happened(
    error: errors.PenstockError, is_unknown: bool
) -> None:
    """The table of what may have been stored."""
    assert isinstance(produce_error(error), errors.UnknownOutcome) is is_unknown


def test_every_exception_is_public_and_in_the_docs() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.PenstockError)
    ]

    page = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    for each in classes:
        assert f"`{each.__name__}`" in page
        assert each.__name__ in penstock.__all__


@pytest.mark.parametrize(("file_name", "is_made_again"), [("20260101000000000", True), ("", False)])
def test_what_a_query_lacks_is_said_to_come_where_a_file_of_the_index_lacks_it(
    file_name: str, is_made_again: bool
) -> None:
    uncovered = penstock.UncoveredRange(
        begin_commit_offset=0, end_commit_offset=9, file_name=file_name, reason="is gone"
    )
    assert ("rebuilt" in str(errors.IndexDamaged(uncovered))) == is_made_again

"""Every error of the store has a status of its own in the table."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2

from services.rpc import status
from services.wire import failure_of
from storage import errors


def all_errors(kind: type[errors.StoreError] = errors.StoreError) -> list[type[errors.StoreError]]:
    found = []
    for child in kind.__subclasses__():
        if child.__module__ == "storage.errors":
            found += [child, *all_errors(child)]
    return found


@pytest.mark.parametrize("kind", all_errors())
def test_every_store_error_is_in_the_table(kind: type[errors.StoreError]) -> None:
    assert kind in status.STATUS_OF


def test_unknown_store_errors_are_internal() -> None:
    assert status.code_of(errors.StoreError("x")) is grpc.StatusCode.INTERNAL


def details_of(error: errors.StoreError) -> dict[str, object]:
    found = {}
    for detail in status.status_of(error, "request-7").details:
        for kind in ("BadRequest", "RetryInfo", "ErrorInfo"):
            message = getattr(error_details_pb2, kind)()
            if detail.Is(message.DESCRIPTOR):
                detail.Unpack(message)
                found[kind] = message
    return found


def test_busy_and_full_say_when_to_try_again() -> None:
    busy = errors.StoreBusy("pool full", retry_delay_ms=40)
    assert details_of(busy)["RetryInfo"].retry_delay.ToMilliseconds() == 40
    assert details_of(errors.StoreFull("no space"))["RetryInfo"].retry_delay.ToMilliseconds() > 0
    assert failure_of(busy).retry_delay_ms == 40
    assert "RetryInfo" not in details_of(errors.StoreFailed("fsync failed"))

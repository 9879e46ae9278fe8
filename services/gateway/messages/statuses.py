"""Outcomes as RocketMQ's clients read them: in the answer, with a code of five digits."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status as RpcStatus

from services.gateway.v2 import definition_pb2 as v2
from services.rpc.calls import CalledMethod, InBandRefusal
from services.rpc.status import (
    STATUS_DETAILS_KEY,
    LimitExceeded,
    PermissionDenied,
    Unauthenticated,
)

OK: Final = v2.Status(code=v2.OK, message="OK")
_TOPIC_REASONS: Final = frozenset({"TOPIC_NOT_FOUND", "QUEUE_NOT_FOUND"})
_CODE_OF: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: v2.BAD_REQUEST,
    grpc.StatusCode.NOT_FOUND: v2.TOPIC_NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED: v2.TOO_MANY_REQUESTS,
    grpc.StatusCode.DEADLINE_EXCEEDED: v2.PROXY_TIMEOUT,
    grpc.StatusCode.UNIMPLEMENTED: v2.NOT_IMPLEMENTED,
}
_CODE_OF_FIELD: Final = {
    "topic": v2.ILLEGAL_TOPIC,
    "group": v2.ILLEGAL_CONSUMER_GROUP,
    "lease_ms": v2.ILLEGAL_INVISIBLE_TIME,
    "duration_ms": v2.ILLEGAL_INVISIBLE_TIME,
    "tag_expression": v2.ILLEGAL_FILTER_EXPRESSION,
    "sql_expression": v2.ILLEGAL_FILTER_EXPRESSION,
    "receipt_handles": v2.INVALID_RECEIPT_HANDLE,
}
_CODE_OF_REFUSAL: Final[dict[type[BaseException], v2.Code]] = {
    Unauthenticated: v2.UNAUTHORIZED,
    PermissionDenied: v2.FORBIDDEN,
    LimitExceeded: v2.TOO_MANY_REQUESTS,
}
_HANDLE: Final = "receipt_handle"  # clients keep an answer's before they look at its status
_HANDLE_REQUEST_BYTES_MAX: Final = (
    16 << 10
)  # of longer requests, which no client sends, none is read


class CallRefused(InBandRefusal):
    """A call, or one entry of it, is answered with this status."""

    def __init__(self, code: v2.Code, problem: str) -> None:
        super().__init__(problem)
        self.code = code

    @property
    def status(self) -> v2.Status:
        """The status of the answer."""
        return v2.Status(code=self.code, message=str(self))


def refusal_answer(
    method: CalledMethod, request: bytes | None, error: BaseException
) -> bytes | None:
    """Return the answer whose status is a refusal; None for an error that is a status of gRPC's."""
    code = error.code if isinstance(error, CallRefused) else _CODE_OF_REFUSAL.get(type(error))
    if code is None:
        return None
    answer: Any = method.parse_answer(b"")
    answer.status.code, answer.status.message = code, str(error)
    has_handle = _HANDLE in answer.DESCRIPTOR.fields_by_name
    if has_handle and request is not None and len(request) <= _HANDLE_REQUEST_BYTES_MAX:
        with suppress(DecodeError):
            setattr(answer, _HANDLE, getattr(method.parse(request), _HANDLE))
    data: bytes = answer.SerializeToString()
    return data


def refusal_of(error: grpc.aio.AioRpcError) -> CallRefused:
    """Return what a refusal by the writer or the reader is to a client."""
    message = error.details() or error.code().name
    trailing: Any = error.trailing_metadata() or ()
    packed = dict(trailing).get(STATUS_DETAILS_KEY, b"")
    field, reason = _details(packed) if isinstance(packed, bytes) else ("", "")
    if error.code() is grpc.StatusCode.FAILED_PRECONDITION and reason == "GROUP_PAUSED":
        return CallRefused(v2.FORBIDDEN, message)
    if error.code() is grpc.StatusCode.NOT_FOUND and reason not in _TOPIC_REASONS:
        return CallRefused(v2.CONSUMER_GROUP_NOT_FOUND, message)
    if error.code() is grpc.StatusCode.INVALID_ARGUMENT and field in _CODE_OF_FIELD:
        return CallRefused(_CODE_OF_FIELD[field], message)
    return CallRefused(code_of(error.code()), message)


def code_of(code: grpc.StatusCode) -> v2.Code:
    """Return the code for a refusal of which nothing else is known."""
    return _CODE_OF.get(code, v2.INTERNAL_SERVER_ERROR)


def _details(packed: bytes) -> tuple[str, str]:
    """Return the field at fault and the reason that a status names."""
    field = reason = ""
    about, request = ErrorInfo(), BadRequest()
    for detail in RpcStatus.FromString(packed).details:
        if detail.Unpack(about):
            reason = about.reason
        elif detail.Unpack(request) and request.field_violations:
            field = request.field_violations[0].field
    return field, reason

"""Errors of the store as gRPC statuses with google.rpc details: one table.

Details of a refusal: ``ErrorInfo`` always (reason = the error's class, domain = penstock, the
request id in its metadata), ``BadRequest`` where one field is at fault, ``RetryInfo`` where waiting
helps.
"""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from services import logs
from storage import errors
from storage.files.system.os_errors import check_room

ERROR_DOMAIN: Final = "penstock"
STATUS_DETAILS_KEY: Final = "grpc-status-details-bin"
FULL_DISK_RETRY_MS: Final = 1_000
_WANTED_MAX: Final = 300  # of a right's text, whose names nobody has checked


class NotServed(errors.StoreError):
    """The request is well-formed and asks for something this version does not do."""


class InvalidArgument(errors.InvalidMessage):
    """A field of a request other than a message's breaks a rule."""


class Unauthenticated(errors.StoreError):
    """The call says of no user, or not credibly, that it is its."""

    def __init__(self) -> None:
        super().__init__(
            "no user is known by what the call carries: sign it with an access key and its secret key, or use the"
            " user's certificate"
        )


class PermissionDenied(errors.StoreError):
    """No policy allows the user what it asks for; nothing is said about what exists."""

    def __init__(self, user: str, wanted: str) -> None:
        shown = wanted if len(wanted) <= _WANTED_MAX else f"{wanted[:_WANTED_MAX]}..."
        super().__init__(f"user {user!r} lacks the right: {shown}")


class LimitExceeded(errors.StoreBusy):
    """A caller has taken as much as it may."""


class ServiceNotFound(errors.StoreError):
    """A health check names a service that is not served here."""

    def __init__(self, service: str) -> None:
        super().__init__(f"there is no service {service!r} here")


STATUS_OF: Final[dict[type[errors.StoreError], grpc.StatusCode]] = {
    errors.StoreLocked: grpc.StatusCode.FAILED_PRECONDITION,
    errors.NotAStore: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UnsupportedFormat: grpc.StatusCode.FAILED_PRECONDITION,
    errors.StoreClosed: grpc.StatusCode.UNAVAILABLE,
    errors.StoreFailed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.DeviceFailed: grpc.StatusCode.FAILED_PRECONDITION,
    errors.StoreFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StoreBusy: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.TopicNotFound: grpc.StatusCode.NOT_FOUND,
    errors.TopicExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.QueueNotFound: grpc.StatusCode.INVALID_ARGUMENT,
    errors.QueuesInUse: grpc.StatusCode.FAILED_PRECONDITION,
    errors.GroupInUse: grpc.StatusCode.FAILED_PRECONDITION,
    errors.GroupNotFound: grpc.StatusCode.NOT_FOUND,
    errors.GroupExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.GroupPaused: grpc.StatusCode.FAILED_PRECONDITION,
    errors.InvalidMessage: grpc.StatusCode.INVALID_ARGUMENT,
    errors.TooLateToRecall: grpc.StatusCode.FAILED_PRECONDITION,
    errors.InvalidBatch: grpc.StatusCode.INVALID_ARGUMENT,
    errors.OutcomeForgotten: grpc.StatusCode.ABORTED,
    errors.StageNotFound: grpc.StatusCode.NOT_FOUND,
    errors.StageExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.TransactionExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.CommitDecided: grpc.StatusCode.FAILED_PRECONDITION,
    errors.VersionTooOld: grpc.StatusCode.FAILED_PRECONDITION,
    errors.QueueRebuilding: grpc.StatusCode.UNAVAILABLE,
    errors.RecordNotFound: grpc.StatusCode.NOT_FOUND,
    errors.DamagedRecord: grpc.StatusCode.DATA_LOSS,
    errors.UnreadableBody: grpc.StatusCode.FAILED_PRECONDITION,
    errors.StoreChanged: grpc.StatusCode.UNAVAILABLE,
    errors.DamagedStage: grpc.StatusCode.DATA_LOSS,
    errors.DamagedLedger: grpc.StatusCode.DATA_LOSS,
    errors.BrokenAccounts: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UserExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.UserNotFound: grpc.StatusCode.NOT_FOUND,
    errors.PolicyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.PolicyNotFound: grpc.StatusCode.NOT_FOUND,
    Unauthenticated: grpc.StatusCode.UNAUTHENTICATED,
    PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    NotServed: grpc.StatusCode.UNIMPLEMENTED,
    ServiceNotFound: grpc.StatusCode.NOT_FOUND,
}


def code_of(error: errors.StoreError) -> grpc.StatusCode:
    """Return the status of an error, by the nearest class of it in the table."""
    for kind in type(error).__mro__:
        if kind in STATUS_OF:
            return STATUS_OF[kind]
    return grpc.StatusCode.INTERNAL


def store_error(error: Exception) -> Exception:
    """Return what an error of the operating system means to a caller; any other stays what it is."""
    if not isinstance(error, OSError):
        return error
    try:
        check_room(error, error.filename or "a file")
    except errors.StoreError as refused:
        return refused
    return errors.DeviceFailed(str(error))


def refusal_of_frame(error: Exception, peer: str | None) -> Exception:
    """Return what one frame of a stream that goes on is refused with; what is no caller's fault is logged."""
    refusal = store_error(error)
    if isinstance(refusal, errors.DeviceFailed):
        log, code = logs.get_logger(), code_of(refusal).name
        log.error("frame refused", code=code, peer=peer, problem=str(refusal))
    return refusal


def retry_delay_ms(error: errors.StoreError) -> int:
    """Return after how long trying again makes sense; 0 if it does not."""
    if isinstance(error, errors.StoreBusy | errors.QueueRebuilding):
        return max(1, error.retry_delay_ms)
    if isinstance(error, errors.StoreFull):
        return FULL_DISK_RETRY_MS
    return 0


def status_of(error: errors.StoreError, request_id: str = "") -> Status:
    """Return the whole status of an error: code, message and details."""
    status = Status(code=code_of(error).value[0], message=str(error))
    metadata = {"request_id": request_id} if request_id else {}
    for name in ("topic", "group", "queue_id", "queue_count", "record_index", "commit_offset"):
        value = getattr(error, name, None)
        if value is not None:
            metadata[name] = str(value)
    _add(status, ErrorInfo(reason=reason_of(error), domain=ERROR_DOMAIN, metadata=metadata))
    violation = _violation(error)
    if violation is not None:
        _add(status, BadRequest(field_violations=[violation]))
    delay_ms = retry_delay_ms(error)
    if delay_ms:
        duration = Duration()
        duration.FromMilliseconds(delay_ms)
        _add(status, RetryInfo(retry_delay=duration))
    return status


def internal(message: str, request_id: str) -> Status:
    """Return the status of an error that is a fault of this program."""
    status = Status(code=grpc.StatusCode.INTERNAL.value[0], message=message)
    info = ErrorInfo(reason="INTERNAL", domain=ERROR_DOMAIN, metadata={"request_id": request_id})
    _add(status, info)
    return status


def reason_of(error: errors.StoreError) -> str:
    """Return what a refusal names an error by."""
    name = type(error).__name__
    return "".join("_" + c if c.isupper() and i else c for i, c in enumerate(name)).upper()


def _violation(error: errors.StoreError) -> BadRequest.FieldViolation | None:
    if isinstance(error, errors.InvalidMessage):
        return BadRequest.FieldViolation(field=error.field, description=error.problem)
    if isinstance(error, errors.InvalidBatch):
        return BadRequest.FieldViolation(
            field=f"records[{error.record_index}]", description=error.problem
        )
    if isinstance(error, errors.QueueNotFound):
        return BadRequest.FieldViolation(field="queue_id", description=str(error))
    return None


def _add(status: Status, detail: ErrorInfo | BadRequest | RetryInfo) -> None:
    packed = AnyMessage()
    packed.Pack(detail)
    status.details.append(packed)

"""Exceptions of client calls; docs/client.md lists them.

Each carries ``code`` (the gRPC status), ``message``, ``reason`` (a machine-readable word, if the
service gave one) and, as ``__cause__``, the error of the transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import grpc
from google.rpc import error_details_pb2, status_pb2

from storage.errors import PicklableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from storage.message import Damage, UncoveredRange

_DETAILS_KEY: Final = "grpc-status-details-bin"
_TURNED_AWAY: Final = ("DRAINING", "STORE_CLOSED")  # reasons of a service that stops
_NO_CONNECTION: Final = (  # grpc's words before anything is sent
    "failed to connect to all addresses",
    "errors resolving ",
    "DNS resolution failed",
)


class PenstockError(PicklableError):
    """Base of everything the client raises about a call."""

    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        code: grpc.StatusCode | None = None,
        reason: str = "",
        field: str = "",
        record_index: int = -1,
        retry_delay_ms: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        self.reason = reason
        self.field = field
        self.record_index = record_index
        self.retry_delay_ms = retry_delay_ms


class InvalidArgument(PenstockError):
    """The request breaks a rule; ``field`` or ``record_index`` names the place."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class QueueNotFound(InvalidArgument):
    """The topic has no such queue."""


class NotFound(PenstockError):
    """There is no such topic, queue, group, message or attempt."""

    code = grpc.StatusCode.NOT_FOUND


class TopicNotFound(NotFound):
    """The topic does not exist."""


class GroupNotFound(NotFound):
    """The consumer group does not exist."""


class MessageNotFound(NotFound):
    """No message is stored under that id."""


class TopicExists(PenstockError):
    """A topic of that name exists already."""

    code = grpc.StatusCode.ALREADY_EXISTS


class GroupExists(PenstockError):
    """A consumer group of that name exists already."""

    code = grpc.StatusCode.ALREADY_EXISTS


class StageNotFound(NotFound):
    """A commit names an attempt that is not staged: never acknowledged, aborted, or expired."""


class StageExists(PenstockError):
    """An attempt of that id is staged or being staged; take another id."""

    code = grpc.StatusCode.ALREADY_EXISTS


class TransactionExists(PenstockError):
    """Messages of another run of the producer are pending under the transaction id; end it, or take another
    id.
    """

    code = grpc.StatusCode.ALREADY_EXISTS


class ResourceExhausted(PenstockError):
    """The store is full or busy; if ``retry_delay_ms`` is above 0, try again after it."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class FailedPrecondition(PenstockError):
    """The service cannot do this in its state, such as writing after a failed sync.

    Messages in flight when a sync failed were not acknowledged, but may be there after a restart.
    """

    code = grpc.StatusCode.FAILED_PRECONDITION


class OffsetOutOfRange(PenstockError):
    """A consumer is beyond the end of its queue; ``next_offset`` is the next to read."""

    code = grpc.StatusCode.OUT_OF_RANGE

    def __init__(self, *, topic: str, queue_id: int, queue_offset: int, next_offset: int) -> None:
        super().__init__(
            f"offset {queue_offset} lies beyond the end of queue {queue_id} of topic {topic!r};"
            f" the next to read is {next_offset}"
        )
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.next_offset = next_offset


class Unauthenticated(PenstockError):
    """The service knows no user by what the call carries: a wrong key, a disabled user, or none at all."""

    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(PenstockError):
    """No policy allows the user what it asked for."""

    code = grpc.StatusCode.PERMISSION_DENIED


class UserNotFound(NotFound):
    """There is no such account."""


class PolicyNotFound(NotFound):
    """The account has no such policy."""


class UserExists(PenstockError):
    """An account of that name exists already."""

    code = grpc.StatusCode.ALREADY_EXISTS


class PolicyExists(PenstockError):
    """The account has such a policy already."""

    code = grpc.StatusCode.ALREADY_EXISTS


class Unimplemented(PenstockError):
    """The service does not do this (yet)."""

    code = grpc.StatusCode.UNIMPLEMENTED


class Unavailable(PenstockError):
    """The service cannot be reached, shuts down, or cancelled the call as too many wait."""

    code = grpc.StatusCode.UNAVAILABLE

    @property
    def never_taken(self) -> bool:
        """Whether the request certainly did nothing: it never left, or the service refused it at its stop."""
        return self.reason in _TURNED_AWAY or self.never_left

    @property
    def never_left(self) -> bool:
        """Whether there was no connection to send the request over."""
        return self.message.startswith(_NO_CONNECTION)


class DeadlineExceeded(PenstockError):
    """No answer came in time."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class Cancelled(PenstockError):
    """This side cancelled the call."""

    code = grpc.StatusCode.CANCELLED


class UnknownOutcome(PenstockError):
    """A produce was sent and got no answer in time: stored or not.

    The same call with ``token=error.token`` returns where the messages are, and stores them only if they are
    not stored. The token is empty if the writer has forgotten the request. The message ends with ``advice``,
    which names the token.
    """

    def __init__(self, message: str, *, token: str = "", **fields: Any) -> None:
        self.advice = f"; the same call with token={token!r} finds out" if token else ""
        super().__init__(message + self.advice, **fields)
        self.token = token


class TableNotStored(PenstockError):
    """``produce_arrow`` failed half-way; ``__cause__`` is why.

    The rows before ``stored_rows`` are stored. The same call with ``token=error.token`` goes on there, and
    stores none twice. The token is empty if nobody can say any more whether the request after them is stored.
    """

    def __init__(self, error: Exception, *, stored_rows: int, token: str) -> None:
        advice = f"; the same call with token={token!r} goes on" if token else ""
        known = error if isinstance(error, PenstockError) else None
        super().__init__(
            f"{stored_rows} rows are stored, then: {known.message if known else error}{advice}",
            code=known.code if known else None,
            reason=known.reason if known else "",
            retry_delay_ms=known.retry_delay_ms if known else 0,
        )
        self.stored_rows = stored_rows
        self.token = token


class TransactionRefused(PenstockError):
    """A transaction did not end as asked; ``state`` is what it is, such as ``"rolled back"``."""

    code = grpc.StatusCode.FAILED_PRECONDITION

    def __init__(self, message: str, *, state: str) -> None:
        super().__init__(message)
        self.state = state


class DataLoss(PenstockError):
    """A stored record, or a file of a staged commit, is damaged.

    An iterator raises it for the record in ``damage``; its next iteration, or a pull at ``next_offset``, goes
    on after the record.
    """

    code = grpc.StatusCode.DATA_LOSS

    def __init__(
        self,
        message: str,
        *,
        reason: str = "",
        topic: str = "",
        queue_id: int = -1,
        damage: Damage | None = None,
        next_offset: int = -1,
    ) -> None:
        super().__init__(message, reason=reason)
        self.topic = topic
        self.queue_id = queue_id
        self.damage = damage
        self.next_offset = next_offset


class UnreadableBody(PenstockError):
    """The body of one message cannot be decompressed, or has too many bytes then.

    ``problem`` has the reason. The record is whole: skip or settle it like any other; its ``stored_body`` has
    the bytes.
    """

    code = grpc.StatusCode.FAILED_PRECONDITION

    def __init__(
        self,
        message: str,
        *,
        problem: str = "",
        topic: str = "",
        queue_id: int = -1,
        queue_offset: int = -1,
    ) -> None:
        super().__init__(message)
        self.problem = problem
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset


class IndexDamaged(PenstockError):
    """The answer to a query by key may lack records of a range, ``uncovered``.

    If the range names a file of the index, the indexer rebuilds it: ask again later.
    """

    code = grpc.StatusCode.UNAVAILABLE

    def __init__(self, uncovered: UncoveredRange) -> None:
        advice = "; it is being rebuilt" if uncovered.file_name else ""
        super().__init__(f"{uncovered}{advice}")
        self.uncovered = uncovered


class BatchFull(PenstockError):
    """The record does not fit into the batch; send the batch and start another one."""

    code = grpc.StatusCode.OUT_OF_RANGE


class DeliveryFailed(PenstockError):
    """Some messages sent through a producer were not acknowledged."""

    def __init__(self, errors: Sequence[PenstockError], message_count: int) -> None:
        first = errors[0]
        super().__init__(
            f"{message_count} messages were not acknowledged; first: {first.message}",
            code=first.code,
            reason=first.reason,
        )
        self.errors = tuple(errors)
        self.message_count = message_count


class ServiceFailed(PenstockError):
    """The service failed for a reason it does not name; its log has the request id."""

    code = grpc.StatusCode.INTERNAL


class UsedElsewhere(PenstockError):
    """An asyncio client was used in another event loop, or an open iterator or producer after a fork.

    Make one there.
    """

    code = grpc.StatusCode.FAILED_PRECONDITION


class ClientClosed(PenstockError):
    """The client or producer was used after it had been closed."""

    code = grpc.StatusCode.FAILED_PRECONDITION


CANCELLED_HERE: Final = ("Locally cancelled by application!", "Channel closed!")  # gRPC's words
_BY_CODE: Final[dict[grpc.StatusCode, type[PenstockError]]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgument,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: TopicExists,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.CANCELLED: Cancelled,
}

_BY_REASON: Final[dict[str, type[PenstockError]]] = {
    "TOPIC_NOT_FOUND": TopicNotFound,
    "GROUP_EXISTS": GroupExists,
    "GROUP_NOT_FOUND": GroupNotFound,
    "QUEUE_NOT_FOUND": QueueNotFound,
    "RECORD_NOT_FOUND": MessageNotFound,
    "STAGE_NOT_FOUND": StageNotFound,
    "STAGE_EXISTS": StageExists,
    "TRANSACTION_EXISTS": TransactionExists,
    "USER_EXISTS": UserExists,
    "USER_NOT_FOUND": UserNotFound,
    "POLICY_EXISTS": PolicyExists,
    "POLICY_NOT_FOUND": PolicyNotFound,
}


class RpcError(Protocol):
    """What is read of an error of grpc."""

    def code(self) -> grpc.StatusCode:
        """Return the status."""

    def details(self) -> str | None:
        """Return the status message."""

    def trailing_metadata(self) -> Iterable[Any] | None:
        """Return what came with the status."""


def from_rpc_error(error: RpcError) -> PenstockError:
    """Return the exception for a failed call."""
    status = status_pb2.Status()
    for key, value in error.trailing_metadata() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            status.MergeFromString(value)
    return _build(error.code(), error.details() or "", status)


def _build(code: grpc.StatusCode, message: str, status: status_pb2.Status) -> PenstockError:
    reason, field, record_index, retry_delay_ms = "", "", -1, 0
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        retry = error_details_pb2.RetryInfo()
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(info):
            reason = info.reason
            record_index = int(info.metadata.get("record_index", record_index))
            field = info.metadata.get("field", field)
        elif detail.Unpack(retry):
            retry_delay_ms = retry.retry_delay.ToMilliseconds()
        elif detail.Unpack(bad) and bad.field_violations:
            field = bad.field_violations[0].field
    if code is grpc.StatusCode.DATA_LOSS:
        return DataLoss(message, reason=reason)
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code, ServiceFailed)
    if kind is Cancelled and message not in CANCELLED_HERE:
        kind = Unavailable  # too many calls wait there
    return kind(
        message,
        code=code,
        reason=reason,
        field=field,
        record_index=record_index,
        retry_delay_ms=retry_delay_ms,
    )

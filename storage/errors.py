"""What can go wrong, as a tree::

    StoreError
    ├── opening
    │   ├── StoreLocked         another process (ours or a broker) holds the directory
    │   ├── NotAStore           the path is not a store directory, or cannot be read
    │   ├── BrokenAccounts      the file of accounts cannot be used
    │   └── UnsupportedFormat   written by a newer version than this code
    ├── operating
    │   ├── StoreClosed         used after close
    │   ├── StoreFailed         an earlier write or sync failed; read only until reopened
    │   ├── DeviceFailed        a call of the operating system failed; nothing was acknowledged
    │   ├── StoreFull           no space left; writable again when space returns
    │   └── StoreBusy           a queue or the pool is full, or no more files can be opened now;
    │                           retry after ``retry_delay_ms``
    ├── asking
    │   ├── TopicNotFound       the topic is not in the topic table
    │   ├── TopicExists         a topic of that name exists
    │   ├── QueuesInUse         read queues that are to go have messages for a group, or get new ones
    │   ├── QueueNotFound       the queue id is not one of the topic's
    │   ├── GroupNotFound       the consumer group has no settings
    │   ├── GroupExists         a consumer group of that name has settings
    │   ├── GroupPaused         the consumer group's settings forbid to receive
    │   ├── GroupInUse          a commit would set a group back whose members have leases
    │   ├── InvalidMessage      a message breaks a limit or rule; ``field`` names it
    │   ├── InvalidBatch        one record of a batch is not valid; ``record_index`` names it
    │   ├── StageNotFound       a commit names an attempt that nobody has staged
    │   ├── StageExists         an attempt of that id is staged already
    │   ├── OutcomeForgotten    whether a producer's repeated request is stored is not known any more
    │   ├── TransactionExists   a transaction has pending messages of another run of its producer
    │   ├── UserExists          an account of that name exists
    │   ├── UserNotFound        there is no such account
    │   ├── PolicyNotFound      the account has no policy for the resource
    │   ├── CommitDecided       a staged commit is decided and cannot be aborted
    │   └── VersionTooOld       whether a version was committed is not known any more
    └── reading
        ├── QueueRebuilding     the writer rebuilds units of the queue; retry after ``retry_delay_ms``
        ├── RecordNotFound      no record starts at that commit offset
        ├── DamagedRecord       the bytes on disk are not the record that was stored
        ├── UnreadableBody      the body of a record that is whole cannot be unpacked
        ├── StoreChanged        a file is shorter than it was when the store was listed
        ├── DamagedStage        the bytes on disk are not what was staged
        └── DamagedLedger       the bytes on disk are not what an application has committed or decided

Running off the end of the log is a verdict of the scan, never an exception.
"""

from __future__ import annotations

import copyreg
from typing import Any


class PicklableError(Exception):
    """An exception whose copies, also pickled ones, have its text and attributes, whatever its constructor
    takes.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # The constructor makes the text of what it is given: a copy is made without it.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class StoreError(PicklableError):
    """Base of everything the store raises about itself."""


class StoreLocked(StoreError):
    """Another process holds the store directory."""


class NotAStore(StoreError):
    """The directory is missing, unreadable or holds something that is no store."""


class UnsupportedFormat(StoreError):
    """A file was written by a newer version of the format than this code reads."""


class BrokenAccounts(StoreError):
    """The file of accounts is damaged, or says what it cannot mean."""


class UserExists(StoreError):
    """An account of that name exists already."""

    def __init__(self, user: str) -> None:
        super().__init__(f"user {user!r} exists already")


class UserNotFound(StoreError):
    """There is no account of that name."""

    def __init__(self, user: str) -> None:
        super().__init__(f"there is no user {user!r}")


class PolicyExists(StoreError):
    """The account has a policy for the resource with that decision."""

    def __init__(self, user: str, resource: str, decision: str) -> None:
        super().__init__(
            f"user {user!r} has a policy for {resource} that says {decision}; update it"
        )


class PolicyNotFound(StoreError):
    """The account has no policy for the resource."""

    def __init__(self, user: str, resource: str, decision: str = "") -> None:
        of_resource = f" for {resource}" if resource else ""
        says = f" that says {decision}" if decision else ""
        super().__init__(f"user {user!r} has no policy{of_resource}{says}")


class StoreClosed(StoreError):
    """The store was used after it had been closed."""


class StoreFailed(StoreError):
    """An earlier write or sync failed, so nothing more is acknowledged; reopen the store."""


class DeviceFailed(StoreError):
    """A call of the operating system failed, such as a read from a broken device."""


class StoreFull(StoreError):
    """There is no space left on the device; the store is writable again when space returns."""


class StoreBusy(StoreError):
    """A bounded buffer is full, or no more files can be opened now; nothing was stored."""

    def __init__(self, message: str, *, retry_delay_ms: int) -> None:
        super().__init__(message)
        self.retry_delay_ms = retry_delay_ms


class TopicNotFound(StoreError):
    """The topic is not in the topic table; ``to_send`` when a message was to go there."""

    def __init__(self, topic: str, *, to_send: bool = False) -> None:
        super().__init__(f"there is no topic {topic!r}{'; create it first' if to_send else ''}")
        self.topic = topic


class TopicExists(StoreError):
    """A topic of that name exists already."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} exists already")
        self.topic = topic


class QueueNotFound(StoreError):
    """The queue id lies outside the topic's queues."""

    def __init__(self, topic: str, queue_id: int, queue_count: int) -> None:
        super().__init__(f"topic {topic!r} has queues 0 to {queue_count - 1}, not {queue_id}")
        self.topic = topic
        self.queue_id = queue_id
        self.queue_count = queue_count


class QueuesInUse(StoreError):
    """Read queues that are to go have messages that a group has not read, or producers write to them."""

    def __init__(self, topic: str, problem: str) -> None:
        super().__init__(f"topic {topic!r}: {problem}")
        self.topic = topic


class GroupInUse(StoreError):
    """A commit would set a group back while its members have messages under a lease, or to come again."""

    def __init__(self, group: str, topic: str, queue_id: int, *, group_offset: int) -> None:
        super().__init__(
            f"group {group!r} is at offset {group_offset} in queue {queue_id} of topic {topic!r}, and its members"
            " have messages of the topic: a commit below that would hand them out again. Let a group either commit"
            " or lease; a reset sets it back"
        )
        self.group = group


class GroupNotFound(StoreError):
    """The consumer group has no settings."""

    def __init__(self, group: str) -> None:
        super().__init__(f"there is no consumer group {group!r}")
        self.group = group


class GroupExists(StoreError):
    """A consumer group of that name has settings already."""

    def __init__(self, group: str) -> None:
        super().__init__(f"consumer group {group!r} exists already")
        self.group = group


class GroupPaused(StoreError):
    """The consumer group is paused: its settings forbid to receive."""

    def __init__(self, group: str) -> None:
        super().__init__(f"consumer group {group!r} is paused")
        self.group = group


class InvalidMessage(StoreError):
    """A message breaks a limit or a rule of the format; nothing was stored."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class TooLateToRecall(StoreError):
    """The time of a delayed message has come: it is delivered, or just about to be, or was recalled in time."""

    def __init__(self, unique_key: str) -> None:
        super().__init__(f"the time of message {unique_key!r} has come: it can be recalled no more")
        self.unique_key = unique_key


class InvalidBatch(StoreError):
    """One record of a record batch is not valid, so none of the batch was stored."""

    def __init__(self, record_index: int, problem: str) -> None:
        super().__init__(f"record {record_index}: {problem}")
        self.record_index = record_index
        self.problem = problem


class OutcomeForgotten(StoreError):
    """Whether a repeated request of a producer is stored is not known any more; it was not stored now."""

    def __init__(self, producer_id: int, sequence: int, reason: str) -> None:
        super().__init__(
            f"whether request {sequence} of producer {producer_id:016x} is stored is"
            f" not known any more: {reason}"
        )


class StageNotFound(StoreError):
    """An attempt that a commit names is not staged; nothing was committed."""

    def __init__(self, app_id: str, version: int, attempt: str) -> None:
        super().__init__(
            f"attempt {attempt!r} of version {version} of {app_id!r} is not staged: it was never"
            " acknowledged, was aborted, or has expired; stage it again"
        )
        self.app_id = app_id
        self.version = version
        self.attempt = attempt


class StageExists(StoreError):
    """An attempt of that id is staged already, or being staged; take another id."""

    def __init__(self, app_id: str, version: int, attempt: str) -> None:
        super().__init__(
            f"attempt {attempt!r} of version {version} of {app_id!r} exists; every attempt needs an"
            " id of its own"
        )
        self.app_id = app_id
        self.version = version
        self.attempt = attempt


class TransactionExists(StoreError):
    """A transaction has pending messages of another run of its producer, or of another producer."""

    def __init__(self, transaction_id: str) -> None:
        super().__init__(
            f"transaction {transaction_id!r} has pending messages of another run of its producer;"
            " end it, or take another id"
        )


class CommitDecided(StoreError):
    """The staged commit is committed, or certain to be, and cannot be aborted."""

    def __init__(self, app_id: str, version: int) -> None:
        super().__init__(f"version {version} of {app_id!r} is committed and cannot be aborted")
        self.app_id = app_id
        self.version = version


class VersionTooOld(StoreError):
    """So many versions with gaps were committed since that this one is not remembered."""

    def __init__(self, app_id: str, version: int, floor: int) -> None:
        super().__init__(
            f"whether version {version} of {app_id!r} was committed is not known any more: versions"
            f" below {floor} are forgotten. Use a higher version, or another application id"
        )
        self.app_id = app_id
        self.version = version


class QueueRebuilding(StoreError):
    """The writer rebuilds units of a queue that their records do not confirm; try again later."""

    def __init__(self, topic: str, queue_id: int) -> None:
        super().__init__(f"queue {queue_id} of {topic} is being rebuilt")
        self.topic = topic
        self.queue_id = queue_id
        self.retry_delay_ms = 500


class RecordNotFound(StoreError):
    """No record starts at the commit offset asked for."""

    def __init__(self, commit_offset: int) -> None:
        super().__init__(f"no record starts at commit offset {commit_offset}")
        self.commit_offset = commit_offset


class DamagedRecord(StoreError):
    """The bytes on disk are not the record that was stored there."""

    def __init__(self, commit_offset: int, size: int, reason: str) -> None:
        super().__init__(
            f"record at commit offset {commit_offset} ({size} bytes) is damaged: {reason}"
        )
        self.commit_offset = commit_offset
        self.size = size
        self.reason = reason


class UnreadableBody(StoreError):
    """The body of a record that is whole cannot be unpacked: it is not what its system flag says, or too
    long.
    """


class StoreChanged(StoreError):
    """A file of a store behind a URL has changed while it was read."""


class DamagedStage(StoreError):
    """The bytes of a stage file are not what was staged."""

    def __init__(self, attempt: str, problem: str) -> None:
        super().__init__(f"stage of attempt {attempt!r}: {problem}")
        self.attempt = attempt


class DamagedLedger(StoreError):
    """The bytes on disk are not what an application has committed or decided; other applications go on."""

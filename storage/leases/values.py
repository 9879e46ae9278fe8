"""What is asked of leases and answered, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from storage.files.filesystem import ByteArray
from storage.message import Damage


class RecordPredicate(Protocol):
    """Says which of a batch of records are to be handed out.

    ``cost`` counts its parts: a receive looks at the fewer records, the more there are.
    """

    cost: int

    def matching(self, data: ByteArray, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each record, which begin at ``positions`` of ``data``, whether it is."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveQuestion:
    """What a consumer asks for. ``client_id`` names an owner that renews the lease, "" for none.

    ``attempt_id``: the same question asked again. ``queue_ids``: none for all.
    """

    max_messages: int = 32
    max_bytes: int = 1 << 20
    lease_ms: int = 0
    tag_expression: str = ""
    predicate: RecordPredicate | None = None
    client_id: str = ""
    attempt_id: str = ""
    queue_ids: tuple[int, ...] = ()


class DeadMessages(NamedTuple):
    """Records of one queue that are to be copied to the group's dead letters."""

    topic: str
    """Where they were received from: the group's topic, or its retry topic."""
    queue_id: int
    queue_offsets: npt.NDArray[np.int64]
    commit_offsets: npt.NDArray[np.int64]
    reconsume_times: npt.NDArray[np.int64]
    """Of the copies, as a broker counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedBatch:
    """Records that were handed out, those of one queue together.

    ``slices`` hold ``record_count`` whole records; ``attempts`` (int32) and the receipt handles,
    HANDLE_SIZE bytes each, are in the same order. What is ``damaged`` counts as acknowledged. ``dead`` is to
    be copied and then confirmed; it is asked for again if it is not.
    """

    record_count: int = 0
    attempts: npt.NDArray[np.int32]
    receipt_handles: bytes = b""
    lease_end_ms: int
    slices: tuple[memoryview, ...] = ()
    damaged: tuple[Damage, ...] = ()
    dead: tuple[DeadMessages, ...] = ()
    has_more: bool = False
    """Whether there may be more that can be handed out now: it is full, or a filter has dropped so much."""


class OffsetCommit(NamedTuple):
    """A group's offset in one queue: everything before ``queue_offset`` is done."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int


class HandleProblem(IntEnum):
    """Why a receipt handle is refused."""

    FORGED = 1
    EXPIRED = 2
    ACKNOWLEDGED = 3


class Refusal(NamedTuple):
    """A receipt handle that is refused, by its number among those given."""

    handle_index: int
    problem: HandleProblem


class QueueLeases(NamedTuple):
    """Where a group is in one queue; queue offsets."""

    topic: str
    """The group's topic, or its retry topic."""
    queue_id: int
    group_offset: int
    """Everything before it is acknowledged."""
    next_offset: int
    """Nothing from here on was handed out."""
    leased_count: int
    waiting_count: int
    """Handed out, and not under a lease now; or waiting for their message group."""


class TrackState(Enum):
    """What a group did with one message."""

    READY = "not handed out yet, or handed out and its time has come again"
    IN_FLIGHT = "under a lease"
    WAITING = (
        "handed out, and waits for its next attempt or for an earlier one of its message group"
    )
    DONE = "acknowledged, or passed over by a filter, a reset or a commit"
    BEFORE_BEGIN = "stored before the group began, at what was stored from then on"
    DEAD = "given up: it is a dead letter, or is about to be"


class LeaseTrack(NamedTuple):
    """What a group did with one message."""

    group: str
    state: TrackState
    attempts: int = 0
    """How often it was handed out; 0 of a message that is done."""
    until_ms: int = 0
    """Of IN_FLIGHT the end of the lease, of WAITING when it is handed out again; 0 if no time says that."""
    client_id: str = ""
    """Of IN_FLIGHT the client that renews the lease, if one does."""

"""All leases of a store: messages handed to groups for a time, acknowledged, changed, given back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from storage.clock import Clock, SteadyClock, SystemClock
from storage.config import LeaseConfig
from storage.errors import InvalidMessage, StoreClosed, StoreFailed
from storage.files.filesystem import FileSystem, OsFileSystem
from storage.format.leases.journal import LEASE_DIRECTORY
from storage.format.leases.receipt_handle import HANDLE_SIZE
from storage.kernels.leases import columns
from storage.leases.open_leases import OpenLeases, commit_all, open_leases
from storage.leases.owners import NO_OWNER
from storage.leases.queues import StoreQueues, retry_topics
from storage.leases.values import (
    NO_BACKOFF,
    DeadMessages,
    GroupCounts,
    HandleProblem,
    LeaseTrack,
    OffsetCommit,
    QueueLeases,
    ReceivedBatch,
    ReceiveQuestion,
    Refusal,
    TrackState,
)
from storage.reader import StoreReader
from storage.tables.groups import GroupConfig

Longs = npt.NDArray[np.int64]
Listener = Callable[[str, str], None]


class Leases:
    """Safe to use from several threads.

    Nothing is opened before the first call: then this process takes the right to keep groups' progress, and
    the journal is read. What a call has returned for survives the process; what has happened up to
    ``sync_interval_ms`` before a power cut may be forgotten, and messages of that time are handed out again.
    Times are those of ``clock``: who sets the wall clock ends no lease and makes none longer.
    Every call may raise StoreLocked (another process keeps groups' progress), StoreFull with nothing done,
    and StoreFailed.
    """

    def __init__(
        self,
        reader: StoreReader,
        *,
        config: LeaseConfig | None = None,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config or LeaseConfig()
        self.clock = SteadyClock(clock or SystemClock())
        self._queues = StoreQueues(reader)
        self._groups = reader.groups
        self._filesystem = filesystem or OsFileSystem()
        self._directory = reader.directory / LEASE_DIRECTORY
        self._guard = threading.Lock()  # of opening and closing
        self._open: OpenLeases | None = None
        self._closed = False
        self._listeners: list[Listener] = []
        self.on_begin: Callable[[], None] = lambda: None
        """Called while groups have begun in queues of which consumerOffset.json says nothing of theirs."""

    def _opened(self) -> OpenLeases:
        opened = self._open
        if opened is None:
            with self._guard:
                if self._closed:
                    raise StoreClosed("leases are closed")
                opened = self._open
                if opened is None:
                    opened = self._open = open_leases(
                        self._filesystem, self._directory, self._queues, self.config, self.clock
                    )
        return opened

    # ---- what consumers do

    def receive(
        self, group: GroupConfig, topic: str, question: ReceiveQuestion | None = None
    ) -> ReceivedBatch:
        """Lease messages of a topic to a consumer of a group; none where nothing can be handed out now.

        First those whose time has come, the oldest first, then new ones. What the filter drops counts as
        acknowledged. The same ``group`` each time is the fastest. Raises TopicNotFound, InvalidMessage.
        """
        question = question or ReceiveQuestion()
        opened = self._opened()
        held, rules = opened.ready(group, topic)
        if opened.has_begun:
            self.on_begin()
        lease_ms = question.lease_ms or self.config.lease_ms
        now_ms = self.clock.now_ms()
        owner = NO_OWNER
        if question.client_id:
            owner = opened.renewals.number_of(question.client_id, lease_ms, now_ms)
        batch = held.receive(
            rules, question, now_ms, lease_ms=lease_ms, owner=owner,
            takes_new=opened.row_count < self.config.rows_max,
        )  # fmt: skip
        self._settled(opened)
        return batch

    def acknowledge(self, group: str, topic: str, receipt_handles: bytes) -> list[Refusal]:
        """End leases: their messages are done; return which handles are refused, by their numbers.

        Raises InvalidMessage if the handles are cut.
        """
        return self._settle(group, topic, receipt_handles, columns.GONE, 0)[1]

    def change(
        self, group: str, topic: str, receipt_handles: bytes, duration_ms: int
    ) -> list[Refusal]:
        """Let leases end after a time from now, or at once; handles stay good until then.

        An owner renews them no more. Returns which handles are refused. Raises InvalidMessage.
        """
        if duration_ms < 0:
            raise InvalidMessage("duration_ms", f"must not be negative, and is {duration_ms}")
        return self._settle(group, topic, receipt_handles, columns.LEASED, duration_ms)[1]

    def give_back(self, group: GroupConfig, topic: str, receipt_handles: bytes) -> list[Refusal]:
        """Have messages handed out again by the group's backoff; return which handles are refused.

        Raises InvalidMessage.
        """
        opened, backoff = self._opened(), NO_BACKOFF
        if (
            opened.find(group.name, topic) is not None
        ):  # what is kept of a group is of one that there is
            backoff = opened.rules_of(group).backoff
        return self._settle(group.name, topic, receipt_handles, columns.WAITING, 0, backoff)[1]

    def dead_letter(
        self, group: str, topic: str, receipt_handles: bytes
    ) -> tuple[list[DeadMessages], list[Refusal]]:
        """Name messages as dead letters, to be copied and then confirmed by ``end_dead_letters``.

        Until then nobody gets them, and their handles are no good; what is not confirmed comes again after
        ``dead_letter_retry_ms``, named by a receive. Also returns which handles are refused.
        """
        return self._settle(
            group, topic, receipt_handles, columns.DEAD, self.config.dead_letter_retry_ms
        )

    def end_dead_letters(self, group: str, topic: str, dead: Iterable[DeadMessages]) -> None:
        """Take dead letters that were copied for acknowledged."""
        opened = self._opened()
        held = opened.find(group, topic)
        if held is None:  # forgotten meanwhile
            return
        is_sooner = held.end_dead_letters(dead, self.clock.now_ms())
        self._settled(opened)
        if is_sooner:
            self._announce(group, topic)

    def _settle(
        self, group: str, topic: str, receipt_handles: bytes, state: int, duration_ms: int,
        backoff: Longs = NO_BACKOFF,
    ) -> tuple[list[DeadMessages], list[Refusal]]:  # fmt: skip
        if len(receipt_handles) % HANDLE_SIZE:
            raise InvalidMessage(
                "receipt_handles",
                f"have {HANDLE_SIZE} letters each, and these are {len(receipt_handles)}",
            )
        opened = self._opened()
        held = opened.find(group, topic)
        if held is None:  # nothing of it was ever handed out
            count = len(receipt_handles) // HANDLE_SIZE
            return [], [Refusal(index, HandleProblem.FORGED) for index in range(count)]
        now_ms = self.clock.now_ms()
        settled, refused, is_sooner = held.settle(
            receipt_handles, state, now_ms + duration_ms, now_ms, backoff
        )
        self._settled(opened)
        if is_sooner:
            self._announce(group, topic)
        return held.dead_letters_of(settled) if state == columns.DEAD else [], refused

    def renew(self, client_ids: Iterable[str]) -> int:
        """Let all leases of clients last from now as long as they were taken for.

        Returns how many of the clients are known to have taken any.
        """
        opened = self._opened()
        count = opened.renewals.renew(client_ids, self.clock.now_ms())
        self._settled(opened)
        return count

    def release(self, client_ids: Iterable[str], group: str = "") -> int:
        """Let the leases of clients that have gone, of one group or all, end a moment from now; return how many."""
        opened = self._opened()
        visible_at = self.clock.now_ms() + self.config.released_ms
        count = 0
        for owner in opened.renewals.owners.known(client_ids):
            if not group:
                opened.renewals.end(owner)
            for held in opened.all():
                if group in ("", held.group):
                    released = held.release(owner, visible_at)
                    count += released
                    if released:
                        self._announce(held.group, held.topic)
        self._settled(opened)
        return count

    # ---- what a service asks

    def check_topic(self, topic: str) -> None:
        """Raise TopicNotFound if there is no such topic."""
        self._queues.queue_ids(topic)

    def add_listener(self, listener: Listener) -> None:
        """Call ``listener(group, topic)`` when messages may be visible sooner than ``nearest_ms`` said.

        It is called in the thread whose call has made them so.
        """
        self._listeners.append(listener)

    def _announce(self, group: str, topic: str) -> None:
        for listener in self._listeners:
            listener(group, topic)

    def nearest_ms(self, group: str, topic: str, queue_ids: Collection[int] = ()) -> int | None:
        """Return when a message that was handed out is visible again, by ``clock``; None if none is out.

        With ``queue_ids`` a receive from these queues alone. It may be too early, never too late; a receive makes it
        right.
        """
        held = None if self._open is None else self._open.find(group, topic)
        nearest = columns.NEVER if held is None else held.nearest_ms_of(queue_ids)
        return None if nearest == columns.NEVER else nearest

    def progress(self, group: GroupConfig, topic: str) -> list[QueueLeases]:
        """Return where a group is in the queues of a topic, and of its retry topics. Raises TopicNotFound."""
        held, _ = self._opened().ready(group, topic)
        return held.progress(self.clock.now_ms())

    def tracks(self, topic: str, queue_id: int, queue_offset: int) -> list[LeaseTrack]:
        """Return what each group that was handed messages of a topic did with one of them, by group.

        The topic may be a retry topic. Times are those of ``clock``.
        """
        incarnation, now_ms = self._queues.incarnation_of(topic), self.clock.now_ms()
        found = []
        for held in self._opened().all():
            if topic in (held.topic, *retry_topics(held.group, held.topic)):
                track = held.track(topic, queue_id, incarnation, queue_offset, now_ms)
                found.append(track or LeaseTrack(held.group, TrackState.READY))
        return sorted(found, key=lambda track: track.group)

    def group_counts(self) -> list[GroupCounts]:
        """Return what each group that was handed messages has under lease and waiting, by name."""
        now_ms = self.clock.now_ms()
        found: dict[str, GroupCounts] = {}
        for held in self._opened().all():
            counts = found.get(held.group, GroupCounts(held.group, 0, 0))
            for queue in held.progress(now_ms):
                counts = GroupCounts(
                    held.group,
                    counts.leased_count + queue.leased_count,
                    counts.waiting_count + queue.waiting_count,
                )
            found[held.group] = counts
        return [counts for _, counts in sorted(found.items())]

    def all_progress(self) -> Iterator[tuple[str, str, list[QueueLeases]]]:
        """Yield group, topic, and where it is in the queues; nothing before the first call that opens the journal."""
        opened = self._open
        for held in () if opened is None else opened.all():
            yield held.group, held.topic, held.progress(self.clock.now_ms())

    def topics_of(self, group: str) -> list[str]:
        """Return the topics of which a group was handed messages, sorted."""
        return sorted(held.topic for held in self._opened().all() if held.group == group)

    def reset(
        self,
        group: GroupConfig,
        topic: str,
        next_offsets: Mapping[int, int],
        *,
        drops_retries: bool = False,
    ) -> None:
        """Let a group go on at queue offsets, by queue id; the leases of those queues are no more.

        With ``drops_retries`` what waits in retry topics of a broker's is passed over. Raises TopicNotFound.
        """
        opened = self._opened()
        opened.reset(group, topic, next_offsets, drops_retries=drops_retries)
        self._settled(opened)
        self._announce(group.name, topic)

    def commit(self, offsets: Sequence[OffsetCommit]) -> list[Exception | None]:
        """Set groups' offsets, with one save for all; return what was wrong with each. Durable on return.

        What precedes an offset is acknowledged. An offset below the group's own sets the group back; it is refused
        with GroupInUse while members have messages of the topic. Raises if the save failed.
        """
        if not self.is_used:
            with self._guard:  # a group that begins to receive meanwhile reads the table after this
                if not self.is_used:
                    return commit_all(self._queues.offsets, offsets)
        opened = self._opened()
        outcomes = opened.commit(offsets, self._groups.settings_of)
        self._settled(opened)
        for group, topic in {(offset.group, offset.topic) for offset in offsets}:
            if opened.find(group, topic) is not None:
                self._announce(group, topic)
        return outcomes

    @property
    def is_used(self) -> bool:
        """Whether any group of this store was ever handed messages under a lease."""
        return self._open is not None or self._filesystem.exists(self._directory)

    def forget(self, group: str, topic: str = "") -> None:
        """Forget a group that is deleted with its offsets, or its leases in one topic."""
        opened = self._opened()
        opened.forget(group, topic)
        self._settled(opened)

    # ---- upkeep

    def _settled(self, opened: OpenLeases) -> None:
        if self.config.sync_interval_ms == 0:
            opened.journal.sync()

    @property
    def journal_bytes(self) -> int:
        """Bytes of the journal's blocks, 0 before it is opened."""
        return 0 if self._open is None else self._open.journal.size

    @property
    def failure(self) -> StoreFailed | None:
        """Why nothing is written any more, or None."""
        return None if self._open is None else self._open.journal.failure

    def sync(self) -> None:
        """Make everything that was answered durable. Raises StoreFailed."""
        if self._open is not None:
            self._open.journal.sync()

    @property
    def may_wait(self) -> bool:
        """Whether a call may wait for the disk now: the journal is being written anew."""
        return self._open is not None and self._open.journal.is_replaced

    @property
    def has_begun(self) -> bool:
        """Whether a group has begun in queues of which consumerOffset.json says nothing of its own."""
        return self._open is not None and self._open.has_begun

    def save_offsets(self) -> None:
        """Write groups' offsets to consumerOffset.json, for a broker that opens the store; durable on return."""
        if self._open is not None:
            self._open.save_offsets()

    def compact(self, *, always: bool = False) -> bool:
        """Write a new journal if this one has grown long; return whether it was written."""
        return self._open is not None and self._open.compact(always=always)

    def close(self) -> None:
        """Save groups' offsets and the journal. Raises StoreFailed, StoreFull, OSError."""
        with self._guard:
            self._closed = True
        if self._open is None:
            return
        try:
            if self._open.journal.failure is None:
                self._open.save_offsets()
        finally:
            self._open.journal.close()

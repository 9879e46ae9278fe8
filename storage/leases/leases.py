"""All leases of a store: messages handed to groups for a time, acknowledged, changed, given back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from storage.clock import Clock, SteadyClock, SystemClock
from storage.config import LeaseConfig
from storage.errors import (
    InvalidMessage,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreLocked,
    TopicNotFound,
)
from storage.files.filesystem import FileSystem
from storage.format.lease_journal import (
    EVENT,
    FORGOTTEN,
    HEAD,
    HEAD_PAYLOAD,
    LEASE_DIRECTORY,
    VERSION,
)
from storage.format.names import RETRY_PREFIX, consumer_group_problem
from storage.format.receipt_handle import HANDLE_SIZE
from storage.journal.journal import Journal, JournalEnd, generations, remove_others
from storage.leases.broker_orders import BrokerOrders
from storage.leases.group_topic import Become, GroupTopic
from storage.leases.journal import Changes, load_journal
from storage.leases.leased_queue import LeasedQueue
from storage.leases.owners import Owners
from storage.leases.queue_sets import QueueSets
from storage.leases.queues import StoreQueues, retry_topics
from storage.leases.ranges import DEAD, LEASED, NEVER, NO_OWNER, WAITING, State
from storage.leases.receive_answer import ReceiveAnswer
from storage.leases.values import (
    DeadMessages,
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
from storage.view.layout import StorePaths

_LOG: Final = logging.getLogger(__name__)
_HEAD_BLOCK: Final = (HEAD, HEAD_PAYLOAD.pack(VERSION))
Listener = Callable[[str, str], None]


class Leases:
    """Safe to use from several threads.

    Nothing is opened before the first call: then this process takes the right to keep groups' progress, and
    the journal is read. What a call has returned for survives the process; what has happened up to
    ``sync_interval_ms`` before a power cut may be forgotten, and messages of that time are handed out again.
    Times are those of ``clock``: who sets the wall clock ends no lease and makes none longer.
    Every call may raise StoreLocked (another process keeps groups' progress), UnsupportedFormat (another version
    wrote the journal), StoreFull with nothing done, and StoreFailed.
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
        self.may_wait = False
        """Whether a call may wait for the disk now: the journal is being written anew."""
        self._groups = reader.groups
        self._filesystem = filesystem or FileSystem()
        self._directory = reader.directory / LEASE_DIRECTORY
        self.queues = StoreQueues(reader)
        tables = StorePaths(reader.directory).config
        self._sets = QueueSets(self.queues, BrokerOrders(self._filesystem, tables))
        self._owners = Owners(self.config.renewed_max_ms)
        self._guard = threading.Lock()  # of all that follows
        self._saving = threading.Lock()  # of groups' offsets; it is taken before the other one
        self._journal: Journal | None = None
        self._topics: dict[tuple[str, str], GroupTopic] = {}
        self._live_count = 0  # of messages, as of the last save of offsets
        self._closed = False
        self._listeners: list[Listener] = []

    # ---- opening and closing

    def _opened(self) -> Journal:
        """Return the journal; the lock is held."""
        if self._journal is None:
            if self._closed:
                raise StoreClosed("leases are closed")
            self._journal = self._open()
        return self._journal

    def _open(self) -> Journal:
        """Take the right to keep groups' progress, and go on with the journal, or with a new one.

        A journal that cannot be read is left out: groups go on at their offsets in consumerOffset.json.
        """
        self.queues.offsets.own()
        tables = StorePaths(self._directory.parent).config
        if self._filesystem.exists(tables):
            # What a killed process has replaced and not synced counts in the journal from here on.
            self._filesystem.sync_directory(tables)
        now_ms = self.clock.now_ms()
        loaded, problems = load_journal(self._filesystem, self._directory, now_ms)
        for name, problem in problems:
            _LOG.warning("%s/%s: %s", self._directory.name, name, problem)
        if loaded is None:
            files = generations(self._filesystem, self._directory)
            journal = Journal(
                self._filesystem, self._directory, JournalEnd(max(files)[0] if files else 0)
            )
            journal.replace([_HEAD_BLOCK])
            return journal
        self._owners, self._topics = Owners(self.config.renewed_max_ms), {}
        for number, (client_id, until_ms) in loaded.owners.items():
            self._owners.restore(number, client_id, until_ms)
        if loaded.was_set_back:  # nobody knows how much of a renewal is left
            self._owners.limit(now_ms + self.config.lease_ms)
        journal = Journal(self._filesystem, self._directory, loaded.end)
        try:
            remove_others(self._filesystem, self._directory, loaded.end.generation)
            changes = Changes()
            queues: dict[tuple[str, str], list[LeasedQueue]] = {}
            for kept in loaded.queues.values():
                queue = self._sets.restored(kept, changes, now_ms)
                queues.setdefault(kept.name[:2], []).append(queue)
                for _, _, state in queue.ranges.all():
                    self._owners.skip(state.owner)
            for (group, topic), known in queues.items():
                self._topics[group, topic] = self._new(group, topic)
                self._topics[group, topic].set_queues(known)
            self._live_count = sum(held.live_count for held in self._topics.values())
            journal.append(changes.blocks())
            if loaded.problem:
                with suppress(StoreFull):  # what is not whole goes with the file
                    self._replace(journal)
        except BaseException:
            journal.close()
            raise
        return journal

    def _new(self, group: str, topic: str) -> GroupTopic:
        return GroupTopic(
            group, topic, store=self.queues, owners=self._owners, config=self.config
        )  # fmt: skip

    @contextmanager
    def _changing(self, event_count: int = 64) -> Iterator[Changes]:
        """Keep all others out; what is changed then survives the process on return, after an error too.

        There is room for so many events in the journal.
        """
        changes = Changes()
        with self._guard:
            journal = self._opened()
            journal.reserve(event_count * EVENT.size)
            try:
                yield changes
            finally:
                if blocks := changes.blocks():
                    journal.append(blocks)
        if self.config.sync_interval_ms == 0:
            journal.sync()
        for group, topic in changes.sooner:
            for listener in self._listeners:
                listener(group, topic)

    def close(self) -> None:
        """Save groups' offsets and the journal. Raises StoreFailed, StoreFull, OSError."""
        with self._guard:
            self._closed = True
        if self._journal is None:
            return
        try:
            if self._journal.failure is None:
                self.save_offsets()
        finally:
            self._journal.close()

    # ---- what consumers do

    def _ready(self, group: GroupConfig, topic: str, changes: Changes) -> GroupTopic:
        """Return a group's leases with the queues that the topic has now. Raises TopicNotFound, InvalidMessage."""
        held = self._topics.get((group.name, topic))
        if held is None and (problem := consumer_group_problem(group.name)):
            raise InvalidMessage("group", problem)
        held = held or self._new(group.name, topic)
        self._sets.bring_up(held, group, changes, self.clock.now_ms())
        self._topics[group.name, topic] = held
        return held

    def receive(
        self, group: GroupConfig, topic: str, question: ReceiveQuestion | None = None
    ) -> ReceivedBatch:
        """Lease messages of a topic to a consumer of a group; none where nothing can be handed out now.

        First those whose time has come, the oldest first, then new ones. What the filter drops counts as
        acknowledged. Raises TopicNotFound, InvalidMessage.
        """
        question = question or ReceiveQuestion()
        lease_ms = question.lease_ms or self.config.lease_ms
        rows = question.max_messages + self.config.blocked_max * group.orderly
        with self._changing(2 * rows + 128) as changes:
            held = self._ready(group, topic, changes)
            now_ms = self.clock.now_ms()
            owner = NO_OWNER
            if question.client_id:
                owner, is_new = self._owners.number_of(question.client_id, lease_ms, now_ms)
                if is_new:
                    changes.own(self._owners.names([question.client_id]))
            answer = ReceiveAnswer(question, now_ms, now_ms + lease_ms, owner, changes)
            takes_new = self._live_count < self.config.rows_max
            return held.receive(group, question, answer, takes_new=takes_new)

    def acknowledge(self, group: str, topic: str, receipt_handles: bytes) -> list[Refusal]:
        """End leases: their messages are done; return which handles are refused, by their numbers.

        Raises InvalidMessage if the handles are cut.
        """
        return self._settle(group, topic, receipt_handles, lambda _: None)[1]

    def change(
        self, group: str, topic: str, receipt_handles: bytes, duration_ms: int
    ) -> list[Refusal]:
        """Let leases end after a time from now, or at once; handles stay good until then.

        An owner renews them no more. Returns which handles are refused. Raises InvalidMessage.
        """
        if duration_ms < 0:
            raise InvalidMessage("duration_ms", f"must not be negative, and is {duration_ms}")
        visible_at = self.clock.now_ms() + duration_ms

        def changed(state: State) -> State:
            kind = LEASED if state.owner == NO_OWNER else WAITING
            return State(kind, state.attempts, visible_at, state.leased_at)

        return self._settle(group, topic, receipt_handles, changed)[1]

    def give_back(self, group: GroupConfig, topic: str, receipt_handles: bytes) -> list[Refusal]:
        """Have messages handed out again by the group's backoff; return which handles are refused.

        Raises InvalidMessage.
        """
        backoff, now_ms = group.backoff, self.clock.now_ms()

        def given_back(state: State) -> State:
            visible_at = now_ms + backoff.delay_ms(state.attempts)
            return State(WAITING, state.attempts, visible_at, state.leased_at)

        return self._settle(group.name, topic, receipt_handles, given_back)[1]

    def dead_letter(
        self, group: str, topic: str, receipt_handles: bytes
    ) -> tuple[list[DeadMessages], list[Refusal]]:
        """Name messages as dead letters, to be copied and then confirmed by ``end_dead_letters``.

        Until then nobody gets them, and their handles are no good; what is not confirmed comes again after
        ``dead_letter_retry_ms``, named by a receive. Also returns which handles are refused.
        """
        retry_at = self.clock.now_ms() + self.config.dead_letter_retry_ms
        return self._settle(
            group, topic, receipt_handles,
            lambda state: State(DEAD, state.attempts, retry_at, state.leased_at), is_dead=True,
        )  # fmt: skip

    def end_dead_letters(self, group: str, topic: str, dead: Iterable[DeadMessages]) -> None:
        """Take dead letters that were copied for acknowledged."""
        with self._changing() as changes:
            held = self._topics.get((group, topic))
            if held is not None:
                held.end_dead_letters(dead, self.clock.now_ms(), changes)

    def _settle(
        self, group: str, topic: str, receipt_handles: bytes, become: Become, *, is_dead: bool = False
    ) -> tuple[list[DeadMessages], list[Refusal]]:  # fmt: skip
        count, rest = divmod(len(receipt_handles), HANDLE_SIZE)
        if rest:
            raise InvalidMessage(
                "receipt_handles",
                f"have {HANDLE_SIZE} letters each, and these are {len(receipt_handles)}",
            )
        with self._changing(count + 64) as changes:
            held = self._topics.get((group, topic))
            if held is None:  # nothing of it was ever handed out
                return [], [Refusal(index, HandleProblem.FORGED) for index in range(count)]
            refused, settled = held.settle(receipt_handles, become, self.clock.now_ms(), changes)
            return held.dead_letters_of(settled) if is_dead else [], refused

    def renew(self, client_ids: Iterable[str]) -> int:
        """Let all leases of clients last from now as long as they were taken for.

        Returns how many of the clients are known to have taken any.
        """
        with self._changing() as changes:
            known = self._owners.known(client_ids)
            for owner in known.values():
                self._owners.renew(owner, self.clock.now_ms(), self.config.lease_ms)
            changes.own(self._owners.names(known))
        return len(known)

    def release(self, client_ids: Iterable[str], group: str = "") -> int:
        """Let the leases of clients that have gone, of one group or all, end a moment from now; return how many."""
        count = 0
        with self._changing() as changes:
            visible_at = self.clock.now_ms() + self.config.released_ms
            known = self._owners.known(client_ids)
            if not group:
                for owner in known.values():
                    self._owners.end(owner)
                changes.own(self._owners.names(known))
            for held in self._topics.values() if known else ():
                if group in ("", held.group):
                    count += held.release(set(known.values()), visible_at, changes)
        return count

    # ---- what a service asks

    def add_listener(self, listener: Listener) -> None:
        """Call ``listener(group, topic)`` when messages may be visible sooner than ``nearest_ms`` said.

        It is called in the thread whose call has made them so.
        """
        self._listeners.append(listener)

    def nearest_ms(self, group: str, topic: str, queue_ids: Collection[int] = ()) -> int | None:
        """Return when a message that was handed out is visible again, by ``clock``; None if none is out.

        With ``queue_ids`` a receive from these queues alone. It may be too early, never too late; a receive makes it
        right. It waits for no lock.
        """
        held = self._topics.get((group, topic))
        nearest = NEVER if held is None else held.nearest_ms(queue_ids)
        return None if nearest == NEVER else nearest

    def progress(self, group: GroupConfig, topic: str) -> list[QueueLeases]:
        """Return where a group is in the queues of a topic, and of its retry topics. Raises TopicNotFound."""
        with self._changing() as changes:
            return self._ready(group, topic, changes).progress(self.clock.now_ms())

    def tracks(self, topic: str, queue_id: int, queue_offset: int) -> list[LeaseTrack]:
        """Return what each group that was handed messages of a topic did with one of them, by group.

        The topic may be a retry topic. Times are Unix ms. None where another process leases.
        """
        incarnation, now_ms = self.queues.reader.incarnation_of(topic), self.clock.now_ms()
        found = []
        topics = self._known()
        with self._guard:
            for held in topics:
                if topic in (held.topic, *retry_topics(held.group, held.topic)):
                    queue = held.queue_of(topic, queue_id)
                    if queue is None or queue.name.incarnation != incarnation:
                        found.append(LeaseTrack(held.group, TrackState.READY))
                    else:
                        found.append(queue.track(queue_offset, now_ms, self._owners))
        unix_ms = self.clock.unix_ms
        return [
            track._replace(until_ms=unix_ms(track.until_ms)) if track.until_ms else track
            for track in sorted(found, key=lambda track: track.group)
        ]

    def _known(self) -> list[GroupTopic]:
        """Return all leases; none of a store of which nothing was leased, or of which another process leases.

        Once opened it waits for no lock.
        """
        if self._journal is None:
            if not self.is_used:
                return []
            try:
                with self._guard:
                    self._opened()
            except StoreLocked:
                return []
        return list(self._topics.values())

    def group_counts(self) -> list[tuple[str, int, int]]:
        """Return each group that was handed messages, by name, with how many it has under lease and waiting."""
        self._known()
        found: dict[str, list[int]] = {}
        for group, _, queues in self.all_progress():
            counts = found.setdefault(group, [0, 0])
            counts[0] += sum(queue.leased_count for queue in queues)
            counts[1] += sum(queue.waiting_count for queue in queues)
        return [(group, leased, waiting) for group, (leased, waiting) in sorted(found.items())]

    def all_progress(self) -> Iterator[tuple[str, str, list[QueueLeases]]]:
        """Yield group, topic, and where it is in the queues; nothing before the first call that opens the journal."""
        for (group, topic), held in list(self._topics.items()):
            with self._guard:
                queues = held.progress(self.clock.now_ms())
            yield group, topic, queues

    def topics_of(self, group: str) -> list[str]:
        """Return the topics of which a group was handed messages here, sorted. Once opened it waits for no lock."""
        return sorted(held.topic for held in self._known() if held.group == group)

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
        with self._saving:
            with self._changing() as changes:
                held = self._ready(group, topic, changes)
                held.reset(next_offsets, changes, drops_retries=drops_retries)
            self._save_offsets()

    def commit(self, offsets: Sequence[OffsetCommit]) -> list[Exception | None]:
        """Set groups' offsets, with one save for all; return what was wrong with each. Durable on return.

        What precedes an offset is acknowledged. An offset below the group's own sets the group back; it is refused
        with GroupInUse while members have messages of the topic. Raises if the save failed.
        """
        table = self.queues.offsets
        with self._saving:  # else a save of leases could write an older offset in between
            if not self.is_used:
                with (
                    self._guard
                ):  # a group that begins to receive meanwhile reads the table after this
                    if not self.is_used:
                        outcomes = [self._commit_one(offset) for offset in offsets]
                        table.save()
                        return outcomes
            with self._changing() as changes:
                outcomes = [self._commit_one(offset, changes) for offset in offsets]
            table.save()
            with self._changing() as changes:
                for offset, outcome in zip(offsets, outcomes, strict=True):
                    for held in self._held_by(offset) if outcome is None else ():
                        held.commit(offset, self.clock.now_ms(), changes)
            self.sync()  # else a power cut may leave a set-back that looks like a step forward
            return outcomes

    def _commit_one(self, offset: OffsetCommit, changes: Changes | None = None) -> Exception | None:
        """Commit an offset to consumerOffset.json, unless members keep it from that; return what is wrong with it."""
        try:
            for held in self._held_by(offset):
                if changes is not None:
                    with suppress(
                        TopicNotFound
                    ):  # with the queues of a topic that was created again
                        group = self._groups.settings_of(held.group)
                        self._ready(group, held.topic, changes)
                held.check_commit(offset)
            self.queues.offsets.commit(*offset)
        except (StoreError, OSError) as error:
            return error
        return None

    def _held_by(self, offset: OffsetCommit) -> list[GroupTopic]:
        """Return the leases of a group that may have a queue of a topic, which may be a retry topic."""
        group, topic = offset.group, offset.topic
        if not topic.startswith(RETRY_PREFIX):
            held = self._topics.get((group, topic))
            return [] if held is None else [held]
        return [
            each for each in self._topics.values()
            if each.group == group and topic in (each.topic, *retry_topics(group, each.topic))
        ]  # fmt: skip

    @property
    def is_used(self) -> bool:
        """Whether any group of this store was ever handed messages under a lease."""
        return self._journal is not None or self._filesystem.exists(self._directory)

    def forget(self, group: str) -> None:
        """Forget a group that is deleted, with its offsets."""
        with self._saving:
            with self._changing() as changes:
                for key in [key for key in self._topics if key[0] == group]:
                    for queue in self._topics.pop(key).queues:
                        changes.note(FORGOTTEN, queue, 0)
            self.queues.offsets.forget(group)
            self.queues.offsets.save()

    # ---- upkeep

    @property
    def journal_bytes(self) -> int:
        """Bytes of the journal's blocks, 0 before it is opened."""
        return 0 if self._journal is None else self._journal.size

    @property
    def failure(self) -> StoreFailed | None:
        """Why nothing is written any more, or None."""
        return None if self._journal is None else self._journal.failure

    def sync(self) -> None:
        """Make everything that was answered durable. Raises StoreFailed."""
        if self._journal is not None:
            self._journal.sync()

    def save_offsets(self) -> None:
        """Write groups' offsets to consumerOffset.json, for a broker that opens the store; durable on return."""
        if self._journal is not None:
            with self._saving:
                self._save_offsets()

    def _save_offsets(self) -> None:
        table, moved = self.queues.offsets, []
        topics, live_count = list(self._topics.values()), 0
        sources = {queue.name.source for held in topics for queue in held.queues}
        incarnations = {each: self.queues.reader.incarnation_of(each) for each in sources}
        for held in topics:  # calls go on between them
            with self._changing() as changes:
                if self._topics.get((held.group, held.topic)) is not held:
                    continue
                held.end_gone(incarnations, changes)
                live_count += held.live_count
                for queue in held.queues:
                    offset = queue.ranges.group_offset
                    if offset != queue.committed_offset:
                        moved.append((held, queue, offset))
        self._live_count = live_count
        if moved:
            self.sync()  # a power cut must not leave offsets that the journal knows nothing of
        for _, queue, offset in moved:
            table.commit(queue.name.group, queue.name.source, queue.name.queue_id, offset)
        table.save()
        with self._changing(len(moved)) as changes:
            for held, queue, offset in moved:
                is_held = self._topics.get(queue.name[:2]) is held
                if is_held and queue in held.queues:
                    queue.note_committed(offset, changes)

    def compact(self, *, always: bool = False) -> bool:
        """Write a new journal if this one has grown long; return whether it was written."""
        journal = self._journal
        if journal is None:
            return False
        size_max = max(self.config.journal_bytes_max, 4 * journal.begin_size)
        if not always and journal.size < size_max:
            return False
        self.may_wait = True
        try:
            with self._guard:
                self._replace(journal)
        finally:
            self.may_wait = False
        return True

    def _replace(self, journal: Journal) -> None:
        """Begin a journal with what is in memory; clients without leases that have not renewed of late are forgotten."""
        changes = Changes()
        owners: set[int] = set()
        for held in self._topics.values():
            for queue in held.queues:
                changes.keep(queue)
                owners.update(state.owner for _, _, state in queue.ranges.all())
        self._owners.keep(owners, self.clock.now_ms())
        changes.own(self._owners.names())
        journal.replace([_HEAD_BLOCK, *changes.blocks()])

"""The leases of a store once they are open: the journal, and which groups have leases in which topics."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.config import LeaseConfig
from storage.errors import InvalidMessage, StoreError, StoreFull, TopicNotFound
from storage.format.leases.journal import KEY, encode_key
from storage.format.names import RETRY_PREFIX, consumer_group_problem
from storage.journal.journal import Journal
from storage.journal.journal_file import generations, remove_others
from storage.kernels.leases.siphash import hash_of
from storage.leases.broker_orders import BrokerOrders
from storage.leases.group_topic import GroupTopic
from storage.leases.leased_queue import Events, LeasedQueue
from storage.leases.loading import LoadedJournal, load_journal
from storage.leases.owner_renewals import OwnerRenewals
from storage.leases.queue_sets import QueueSets
from storage.leases.queues import retry_topics
from storage.leases.snapshot import write_generation
from storage.leases.values import GroupRules, OffsetCommit
from storage.view.layout import StorePaths

if TYPE_CHECKING:
    from pathlib import Path

    from storage.clock import Clock
    from storage.files.filesystem import FileSystem
    from storage.leases.queues import StoreQueues
    from storage.tables.consumer_offsets import ConsumerOffsets
    from storage.tables.groups import GroupConfig

_LOG: Final = logging.getLogger(__name__)
KEY_SIZE: Final = 16


class OpenLeases:
    """Made by ``open_leases``. Safe to use from several threads."""

    def __init__(
        self, queues: StoreQueues, journal: Journal, key: bytes, config: LeaseConfig, clock: Clock,
        orders: BrokerOrders,
    ) -> None:  # fmt: skip
        """``key`` is that of receipt handles."""
        self.journal = journal
        self._key = key
        self.renewals = OwnerRenewals(journal, config)
        self.row_count = 0  # as of the last save of offsets
        self.has_begun = False  # a group, in a topic or in new queues of it, since that save
        self._sets = QueueSets(queues, journal, orders)
        self._queues = queues
        self._config = config
        self._clock = clock
        self._saving = threading.Lock()  # of groups' offsets; it is taken before the next one
        self._guard = threading.Lock()  # of which topics there are
        self._topics: dict[tuple[str, str], GroupTopic] = {}
        self._rules: dict[str, tuple[GroupConfig, GroupRules]] = {}
        self._compacting = threading.Lock()
        self._all_listed = False  # of a new generation: topics from here on are not in it

    def restore(self, loaded: LoadedJournal, now_ms: int) -> None:
        """Go on with what a journal says."""
        self.renewals.owners = loaded.owners
        if loaded.was_set_back:  # nobody knows how much of a renewal is left
            loaded.owners.limit(now_ms + self._config.lease_ms)
        for number, queue in loaded.queues.items():
            held = self.held(queue.name.group, queue.name.topic)
            self._sets.go_on(held, number, queue, now_ms)

    # ---- groups' topics

    def held(self, group: str, topic: str) -> GroupTopic:
        """Return a group's leases in a topic, made if need be."""
        held = self._topics.get((group, topic))
        if held is not None:
            return held
        with self._guard:
            held = self._topics.get((group, topic))
            if held is None:
                held = GroupTopic(
                    group, topic, key=_key_of(self._key, group, topic),
                    queues=self._queues, journal=self.journal, owners=self.renewals.owners,
                    config=self._config,
                )  # fmt: skip
                if self._all_listed:
                    self.journal.has_moved(held)
                self._topics[group, topic] = held
            return held

    def ready(self, group: GroupConfig, topic: str) -> tuple[GroupTopic, GroupRules]:
        """Return a group's leases with the queues that the topic has now. Raises TopicNotFound, InvalidMessage."""
        rules = self.rules_of(group)
        shape = self._sets.shape(group.name, topic)
        while True:
            held = self.held(group.name, topic)
            if self._sets.fits(held, shape, rules):
                return held, rules
            if self._sets.bring_up(held, shape, rules, self._clock.now_ms()):
                self.has_begun = True
                return held, rules

    def rules_of(self, group: GroupConfig) -> GroupRules:
        """Return what of a group's settings counts here. Raises InvalidMessage for a name that cannot be one."""
        known = self._rules.get(group.name)
        if known is None or known[0] is not group:
            problem = consumer_group_problem(group.name)
            if problem:
                raise InvalidMessage("group", problem)
            known = self._rules[group.name] = (group, GroupRules.of(group))
        return known[1]

    def find(self, group: str, topic: str) -> GroupTopic | None:
        """Return a group's leases in a topic if there are any."""
        return self._topics.get((group, topic))

    def all(self) -> list[GroupTopic]:
        """Return all groups' leases in all topics."""
        with self._guard:
            return list(self._topics.values())

    def reset(
        self,
        group: GroupConfig,
        topic: str,
        next_offsets: Mapping[int, int],
        *,
        drops_retries: bool,
    ) -> None:
        """Let a group go on at queue offsets, and write them to consumerOffset.json. Raises TopicNotFound."""
        with self._saving:
            held, _ = self.ready(group, topic)
            held.reset(next_offsets, drops_retries=drops_retries)
            self._save_offsets()

    def commit(
        self, offsets: Sequence[OffsetCommit], settings_of: Callable[[str], GroupConfig]
    ) -> list[Exception | None]:
        """Set groups' offsets; return what was wrong with each. Raises if the save failed."""
        with self._saving:  # else a save of leases could write an older offset in between
            outcomes = commit_all(
                self._queues.offsets, offsets, lambda offset: self._check(offset, settings_of)
            )
            for offset, outcome in zip(offsets, outcomes, strict=True):
                if outcome is None:
                    for each in self._held_by(offset):
                        each.commit(offset, self._clock.now_ms())
            return outcomes

    def _check(self, offset: OffsetCommit, settings_of: Callable[[str], GroupConfig]) -> None:
        for each in self._held_by(offset):
            with suppress(TopicNotFound):  # with the queues of a topic that was created again
                self.ready(settings_of(each.group), each.topic)
            each.check_commit(offset)

    def _held_by(self, offset: OffsetCommit) -> list[GroupTopic]:
        """Return the leases of a group that may have a queue of a topic, which may be a retry topic."""
        group, topic = offset.group, offset.topic
        if not topic.startswith(RETRY_PREFIX):
            held = self.find(group, topic)
            return [] if held is None else [held]
        return [
            each for each in self.all()
            if each.group == group and topic in (each.topic, *retry_topics(group, each.topic))
        ]  # fmt: skip

    def forget(self, group: str, topic: str) -> None:
        """Forget a group with its offsets in consumerOffset.json, or its leases in one topic."""
        with self._saving:
            with self._guard:
                gone = [key for key in self._topics if key[0] == group and topic in ("", key[1])]
                for key in gone:
                    self._sets.forget(self._topics.pop(key))
            if not topic:
                self._rules.pop(group, None)
                self._queues.offsets.forget(group)
                self._queues.offsets.save()

    # ---- upkeep

    def save_offsets(self) -> None:
        """Write groups' offsets to consumerOffset.json; durable on return."""
        with self._saving:
            self._save_offsets()

    def _save_offsets(self) -> None:
        has_begun, self.has_begun = self.has_begun, False  # before the look at who there is
        try:
            self._write_offsets()
        except BaseException:
            self.has_begun |= has_begun
            raise

    def _write_offsets(self) -> None:
        topics = self.all()
        for held in topics:
            self._sets.end_gone(held)
        self.row_count = sum(held.row_count for held in topics)
        changed = [(held, held.uncommitted_offsets()) for held in topics]
        if any(offsets for _, offsets in changed):
            self.journal.sync()  # a power cut must not leave offsets that the journal knows nothing of
        for held, offsets in changed:
            for queue, offset in offsets:
                self._queues.offsets.commit(
                    held.group, queue.name.source, queue.name.queue_id, offset
                )
        self._queues.offsets.save()
        for held, offsets in changed:
            if offsets:
                held.each(_note_committed({queue.number: offset for queue, offset in offsets}))

    def compact(self, *, always: bool) -> bool:
        """Write a new journal if this one has grown long; return whether it was written."""
        journal = self.journal
        if not always and journal.size < max(
            self._config.journal_bytes_max, 4 * journal.begin_size
        ):
            return False
        with self._compacting:
            journal.begin_generation()
            try:
                with self._guard:
                    topics = list(self._topics.values())
                    self._all_listed = True
                write_generation(journal, self.renewals, topics, self._clock.now_ms())
                journal.switch()
            except BaseException:
                journal.abandon()
                raise
            finally:
                self._all_listed = False
        return True


def open_leases(
    filesystem: FileSystem, directory: Path, queues: StoreQueues, config: LeaseConfig, clock: Clock
) -> OpenLeases:
    """Take the right to keep groups' progress, and go on with the journal, or with a new one.

    A journal that cannot be read is left out: groups go on at their offsets in consumerOffset.json. Raises
    StoreLocked, StoreFull, OSError.
    """
    queues.offsets.own()
    tables = StorePaths(directory.parent).config
    if filesystem.exists(tables):
        # What a killed process has replaced and not synced counts in the journal from here on.
        filesystem.sync_directory(tables)
    now_ms = clock.now_ms()
    orders = BrokerOrders(filesystem, tables)
    loaded, problems = load_journal(filesystem, directory, now_ms)
    above = max((number for number, _ in generations(filesystem, directory)), default=0)
    for name, problem in problems:
        _LOG.warning("%s/%s: %s", directory.name, name, problem)
    key = secrets.token_bytes(KEY_SIZE) if loaded is None else loaded.key
    journal = Journal(filesystem, directory, [(KEY, encode_key(key))])
    opened = OpenLeases(queues, journal, key, config, clock, orders)
    if loaded is None:
        journal.begin(above)
        return opened
    journal.go_on(loaded.end)
    remove_others(filesystem, directory, loaded.end.generation)
    try:
        opened.restore(loaded, now_ms)
        if loaded.problem:
            with suppress(StoreFull):  # what is not whole goes with the file
                opened.compact(always=True)
    except BaseException:
        journal.close()
        raise
    return opened


def commit_all(
    table: ConsumerOffsets,
    offsets: Sequence[OffsetCommit],
    check: Callable[[OffsetCommit], None] = lambda _: None,
) -> list[Exception | None]:
    """Commit offsets to consumerOffset.json with one save; return what was wrong with each."""
    outcomes: list[Exception | None] = []
    for offset in offsets:
        try:
            check(offset)
            table.commit(*offset)
            outcomes.append(None)
        except (StoreError, OSError) as error:
            outcomes.append(error)
    table.save()
    return outcomes


def _note_committed(offsets: Mapping[int, int]) -> Callable[[LeasedQueue, Events], None]:
    def note(queue: LeasedQueue, events: Events) -> None:
        if queue.number in offsets:
            queue.note_committed(offsets[queue.number], events)

    return note


def _key_of(key: bytes, group: str, topic: str) -> tuple[int, int]:
    """Return the two halves of the key for receipt handles of a group and topic."""
    low, high = np.frombuffer(key, "<i8").tolist()
    name = f"{group}\0{topic}\0".encode()
    return (
        int(hash_of(np.frombuffer(name + b"\0", np.uint8), low, high)),
        int(hash_of(np.frombuffer(name + b"\1", np.uint8), low, high)),
    )

"""Stores whose messages are leased, with a clock that a test moves."""

from contextlib import suppress
from pathlib import Path

from engine_store import bodies_in, small_config
from hand_clock import FIRST_MS as FIRST_MS
from hand_clock import HandClock

from storage import Message, MessageStore
from storage.clock import Clock
from storage.config import LeaseConfig
from storage.errors import TopicExists
from storage.files.filesystem import FileSystem
from storage.format.backoff import CustomizedBackoff
from storage.leases.leases import Leases
from storage.leases.values import ReceivedBatch, ReceiveQuestion
from storage.reader import StoreReader
from storage.tables.groups import GroupConfig

TOPIC = "orders"
GROUP = GroupConfig(name="billing")
ORDERLY = GroupConfig(name="billing", orderly=True)


def put(
    directory: Path, count: int, *, queues: int = 1, topic: str = TOPIC, clock: Clock | None = None,
    **fields,
) -> None:  # fmt: skip
    """Add messages to a topic of so many queues, one queue after the other; bodies are numbers."""
    messages = [
        Message(topic=topic, body=b"%d" % number, queue_id=number % queues, **fields)
        for number in range(count)
    ]
    put_messages(directory, messages, queues=queues, clock=clock)


def put_messages(
    directory: Path, messages: list[Message], *, queues: int = 1, clock: Clock | None = None
) -> None:
    """Add messages of one topic, which is made if need be."""
    with MessageStore.open(directory, small_config(), clock=clock) as store:
        with suppress(TopicExists):
            store.create_topic(messages[0].topic, queues)
        store.put_all(messages)


class LeaseStore:
    """A store's leases, opened again as often as a test wants."""

    def __init__(
        self, directory: Path, *, filesystem: FileSystem | None = None, **config: int
    ) -> None:
        self.directory = directory
        self.clock = HandClock()
        self._filesystem = filesystem
        self._config = LeaseConfig(**config)
        self.open()

    def open(self) -> None:
        self.reader = StoreReader.open(self.directory, filesystem=self._filesystem)
        self.leases = Leases(
            self.reader, config=self._config, filesystem=self._filesystem, clock=self.clock
        )

    def kill(self) -> None:
        """Open again without a stop in order."""
        if self.leases._journal is not None:
            self.leases._journal._file.close()
            self.reader.consumer_offsets._lock.release()
            self.reader.consumer_offsets._lock = None
        self.reader.close()
        self.open()

    def reopen(self) -> None:
        self.leases.close()
        self.reader.close()
        self.open()

    def receive(self, count: int = 32, group: GroupConfig = GROUP, **question) -> ReceivedBatch:
        return self.leases.receive(group, TOPIC, ReceiveQuestion(max_messages=count, **question))

    def acknowledge(self, handles: bytes) -> list:
        return self.leases.acknowledge(GROUP.name, TOPIC, handles)

    def change(self, handles: bytes, ms: int) -> list:
        return self.leases.change(GROUP.name, TOPIC, handles, ms)


def bodies(batch: ReceivedBatch) -> list[int]:
    """Return the numbers in the bodies of what was received."""
    found = [int(body) for body in bodies_in(batch.slices)]
    assert len(found) == batch.record_count == len(batch.attempts)
    assert len(batch.receipt_handles) == 40 * len(found)
    return found


def with_retries(times: int, *steps_ms: int) -> GroupConfig:
    """Return the group with other rules of giving up."""
    group = GROUP.changed(retry_max_times=times)
    return group.changed(backoff=CustomizedBackoff(steps_ms)) if steps_ms else group

"""Where things lie in a store directory."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.errors import NotAStore
from storage.format.names import LIGHT_QUEUE_PREFIX, parse_file_name, topic_name_problem

if TYPE_CHECKING:
    from storage.files.filesystem import ReadFileSystem

LOG_DIRECTORY: Final = "commitlog"
QUEUE_DIRECTORY: Final = "consumequeue"
INDEX_DIRECTORY: Final = "index"
INDEX_CHECKSUMS_DIRECTORY: Final = "index-checksums"
JOURNAL_DIRECTORY: Final = "journal"  # of the writer
TIMERS_DIRECTORY: Final = "timers"
REBUILDS_DIRECTORY: Final = "rebuilds"
SETTINGS_FILE: Final = "penstock.json"
_STORE_NAMES: Final = frozenset(
    {LOG_DIRECTORY, QUEUE_DIRECTORY, INDEX_DIRECTORY, "config", "checkpoint", "lock", "abort"}
)


class StorePaths:
    """Paths inside one store directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commit_log = root / LOG_DIRECTORY
        self.consume_queue = root / QUEUE_DIRECTORY
        self.index = root / INDEX_DIRECTORY
        self.index_checksums = root / INDEX_CHECKSUMS_DIRECTORY
        self.journal = root / JOURNAL_DIRECTORY
        self.timers = root / TIMERS_DIRECTORY
        self.rebuilds = root / REBUILDS_DIRECTORY
        self.config = root / "config"
        self.settings = root / "config" / SETTINGS_FILE
        self.checkpoint = root / "checkpoint"
        self.abort = root / "abort"


def check_is_store(filesystem: ReadFileSystem, root: Path) -> None:
    """Raise NotAStore if the directory holds things, but nothing that a store has."""
    try:
        names = {entry.name for entry in filesystem.list_directory(root)}
    except OSError as error:
        raise NotAStore(f"{root} cannot be read: {error.strerror or error}") from error
    if names and not names & _STORE_NAMES:
        raise NotAStore(f"{root} is not a store: it has no commitlog, and it is not empty")


def queues_on_disk(
    filesystem: ReadFileSystem, directory: Path, topics: Container[str] | None = None
) -> Iterator[tuple[str, int]]:
    """Yield topic and id of every queue that has a directory below ``consumequeue/``, of all topics or of some."""
    for topic in filesystem.list_directory(directory):
        if topic.is_directory and (topics is None or topic.name in topics):
            for queue_id in queues_of_topic(filesystem, directory, topic.name):
                yield topic.name, queue_id


def queues_of_topic(filesystem: ReadFileSystem, directory: Path, topic: str) -> Iterator[int]:
    """Yield the ids of one topic's queues that have a directory below ``consumequeue/``.

    Each once: a directory ``01`` is not that of queue 1, in which its files are looked for.
    """
    for queue in filesystem.list_directory(directory / topic):
        queue_id = parse_file_name(queue.name)
        if queue.is_directory and queue_id is not None and queue.name == str(queue_id):
            yield queue_id


def topics_without_entry(
    filesystem: ReadFileSystem, directory: Path, topics: Container[str]
) -> dict[str, int]:
    """Return the topics that have queues below ``consumequeue/`` and are not among ``topics``.

    Each with how many queues it has at least.
    """
    counts = {}
    for topic in filesystem.list_directory(directory):
        if topic.is_directory and needs_entry(topic.name, topics):
            queue_ids = list(queues_of_topic(filesystem, directory, topic.name))
            if queue_ids:
                counts[topic.name] = max(queue_ids) + 1
    return counts


def needs_entry(topic: str, topics: Container[str]) -> bool:
    """Return whether a topic that has records should be among ``topics`` and is not.

    Light queues have no entry, nor has a name that no topic can have: a bit flipped in a record where no
    checksum covers it.
    """
    return (
        topic not in topics
        and not topic.startswith(LIGHT_QUEUE_PREFIX)
        and not topic_name_problem(topic)
    )

"""What the tables in ``config/`` of a store say, read once: topics, groups, and where these are."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from storage.tables.consumer_offsets import offsets_in, topic_and_group
from storage.tables.table_files import (
    BACKUP,
    DELAYS_FILE,
    GROUPS_FILE,
    LIGHT_OFFSETS_FILE,
    OFFSETS_FILE,
    TABLE_FILES,
    TOPICS_FILE,
    Document,
    delays_in,
    groups_in,
    is_readable,
    read_table,
)
from storage.tables.topics import TopicConfig as TopicConfig
from storage.tables.topics import topics_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from storage.files.filesystem import ReadFileSystem

T = TypeVar("T")
Offsets = Mapping[tuple[str, str], Mapping[int, int]]
"""By topic and group: queue id to queue offset."""


@dataclass(frozen=True)
class ConfigTables:
    """The tables of one store in a broker's shape; one that cannot be read is empty.

    ``light``: the offsets stand in a broker's file for light queues.
    """

    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    delays: Mapping[int, int] = field(default_factory=dict)
    light: bool = False


def read_config_tables(filesystem: ReadFileSystem, directory: Path) -> ConfigTables:
    """Read the tables in ``directory``, or their ``.bak``."""

    def table(name: str, parse: Callable[[Document], dict[T, Any]]) -> dict[T, Any]:
        return read_table(filesystem, directory, name, parse) or {}

    offsets = table(OFFSETS_FILE, offsets_in)
    light_offsets = {} if offsets else table(LIGHT_OFFSETS_FILE, offsets_in)
    return ConfigTables(
        topics=table(TOPICS_FILE, topics_in),
        groups=table(GROUPS_FILE, groups_in),
        offsets={topic_and_group(key): at for key, at in (offsets or light_offsets).items()},
        delays=table(DELAYS_FILE, delays_in),
        light=bool(light_offsets),
    )


def topic_names(filesystem: ReadFileSystem, directory: Path) -> set[str]:
    """Return the topics that the table in ``directory``, or its ``.bak``, names."""
    return set(read_table(filesystem, directory, TOPICS_FILE, topics_in) or ())


def unreadable_tables(filesystem: ReadFileSystem, directory: Path) -> dict[str, bool]:
    """Return the tables that are there and cannot be read, each with whether its ``.bak`` can."""
    there: set[str] = set()
    with suppress(NotADirectoryError):
        there |= {entry.name for entry in filesystem.list_directory(directory)}
    found = {}
    for name in TABLE_FILES:
        files = [directory / each for each in (name, name + BACKUP) if each in there]
        readable = [is_readable(filesystem, path) for path in files]
        if readable and not readable[0]:
            found[name] = any(readable)
    return found


def has_topic_table(filesystem: ReadFileSystem, directory: Path) -> bool:
    """Return whether a topic table or its ``.bak`` is there, readable or not."""
    return any(filesystem.exists(directory / name) for name in (TOPICS_FILE, TOPICS_FILE + BACKUP))

"""What the tables in ``config/`` of a store say, read once: topics, groups, and where these are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from storage.tables.consumer_offsets import offsets_in, topic_and_group
from storage.tables.table_files import (
    BACKUP,
    DELAYS_FILE,
    GROUPS_FILE,
    LIGHT_OFFSETS_FILE,
    OFFSETS_FILE,
    TOPICS_FILE,
    Document,
    delays_in,
    groups_in,
    read_files,
    read_table,
)
from storage.tables.topic_table import read_topics
from storage.tables.topics import TopicConfig as TopicConfig
from storage.tables.topics import topics_in

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import ReadFileSystem
    from storage.view.layout import StorePaths

T = TypeVar("T")
_PARSE: Final[Mapping[str, Callable[[Document], object]]] = {
    TOPICS_FILE: topics_in,
    OFFSETS_FILE: offsets_in,
    LIGHT_OFFSETS_FILE: offsets_in,
    DELAYS_FILE: delays_in,
    GROUPS_FILE: groups_in,
}
Offsets = Mapping[tuple[str, str], Mapping[int, int]]
"""By topic and group: queue id to queue offset."""


class TableProblem(NamedTuple):
    """What is wrong with the files of one table; ``is_lost``: none of them can be read."""

    problem: str
    is_lost: bool


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


def read_config_tables(filesystem: ReadFileSystem, paths: StorePaths) -> ConfigTables:
    """Read the files that count of the tables in ``config/``."""

    def table(name: str, parse: Callable[[Document], dict[T, Any]]) -> dict[T, Any]:
        return read_table(filesystem, paths.config, name, parse) or {}

    offsets = table(OFFSETS_FILE, offsets_in)
    light_offsets = {} if offsets else table(LIGHT_OFFSETS_FILE, offsets_in)
    return ConfigTables(
        topics=read_topics(filesystem, paths.config, paths.journal),
        groups=table(GROUPS_FILE, groups_in),
        offsets={topic_and_group(key): at for key, at in (offsets or light_offsets).items()},
        delays=table(DELAYS_FILE, delays_in),
        light=bool(light_offsets),
    )


def topic_names(filesystem: ReadFileSystem, paths: StorePaths) -> set[str]:
    """Return the topics that the table names."""
    return set(read_topics(filesystem, paths.config, paths.journal))


def table_problems(filesystem: ReadFileSystem, directory: Path) -> dict[str, TableProblem]:
    """Return what is wrong with the files of each table, of those that have something."""
    found = {}
    for name, parse in _PARSE.items():
        read = read_files(filesystem, directory / name, parse)
        if read.problem:
            found[name] = TableProblem(read.problem, read.content is None)
    return found


def has_topic_table(filesystem: ReadFileSystem, directory: Path) -> bool:
    """Return whether any file of the topic table is there, readable or not."""
    return any(filesystem.exists(directory / f"{TOPICS_FILE}{ending}") for ending in ("", BACKUP))

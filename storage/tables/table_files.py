"""The JSON tables in ``config/``: which there are, and one rule for reading them.

Which of a table's files counts is decided by ``storage.tables.table_copies``. A broker's spelling of JSON
is in ``storage.format.config_json``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from storage.format.config_json import MALFORMED, decode_config, integer_keyed
from storage.tables.table_copies import read_copies

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import ReadFileSystem

TOPICS_FILE: Final = "topics.json"
OFFSETS_FILE: Final = "consumerOffset.json"
LIGHT_OFFSETS_FILE: Final = "lmqConsumerOffset.json"  # of a broker with light queues, instead
GROUPS_FILE: Final = "subscriptionGroup.json"
DELAYS_FILE: Final = "delayOffset.json"
GROUP_MAP: Final = "subscriptionGroupTable"
DELAY_MAP: Final = "offsetTable"

T = TypeVar("T")
Document = dict[str, Any]


def document_in(data: bytes) -> Document:
    """Return the document that a table's file holds. Raises ValueError if it is not one."""
    document = decode_config(data)
    if not isinstance(document, dict):
        raise ValueError(f"a map expected, not {document!r}")
    return document


def readable_by(parse: Callable[[Document], object]) -> Callable[[bytes], bool]:
    """Return a function that says whether ``parse`` can make something of a file's bytes."""

    def is_readable(data: bytes) -> bool:
        with suppress(*MALFORMED):
            parse(document_in(data))
            return True
        return False

    return is_readable


def read_table(
    filesystem: ReadFileSystem, directory: Path, name: str, parse: Callable[[Document], T]
) -> T | None:
    """Return what ``parse`` makes of the copy of a table that counts; None if there is none."""
    chosen = read_copies(filesystem, directory / name, readable_by(parse))
    if chosen.ending is not None:
        with suppress(*MALFORMED):
            return parse(document_in(chosen.data))
    return None


def table_in(document: Mapping[str, Any], name: str) -> dict[Any, Any]:
    """Return one of a document's maps, empty without it. Raises ValueError if it is not a map."""
    table = document.get(name) or {}
    if not isinstance(table, Mapping):
        raise ValueError(f"{name} is not a map")
    return dict(table)


def groups_in(document: Mapping[str, Any]) -> dict[Any, Any]:
    """Return the subscription groups of a ``subscriptionGroup.json``, by name."""
    return table_in(document, GROUP_MAP)


def delays_in(document: Mapping[str, Any]) -> dict[int, int]:
    """Return how far each delay level was delivered, of a ``delayOffset.json``: queue offsets."""
    return integer_keyed(table_in(document, DELAY_MAP))


def data_version(counter: int, state_version: int, now_ms: int) -> dict[str, int]:
    """Return the version that a broker keeps in each table."""
    return {"counter": counter, "stateVersion": state_version, "timestamp": now_ms}


def group_fields(groups: Mapping[str, Any], version: Mapping[str, int]) -> Document:
    """Return the fields of a ``subscriptionGroup.json``."""
    return {"dataVersion": version, "forbiddenTable": {}, GROUP_MAP: groups}


def delay_fields(delays: Mapping[int, int], version: Mapping[str, int]) -> Document:
    """Return the fields of a ``delayOffset.json``."""
    return {"dataVersion": version, DELAY_MAP: dict(delays)}

"""The JSON tables in ``config/``: which there are, and one rule for reading and replacing them.

A table has two files, as a broker leaves them: ``topics.json``, and ``topics.json.bak``, the version before.
Ours alone is ``topics.json.checksum``: fingerprints of the table that we wrote last and of its ``.bak`` then.
Where the table has another one and ``.bak`` is what we left, the table is damaged and its ``.bak`` counts.
Whoever else replaces a table, a broker say, makes what we wrote its ``.bak``: the table counts. A broker's
spelling of JSON is in ``storage.format.config_json``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from zlib import crc32

from storage.errors import StoreFull
from storage.format.config_json import MALFORMED, decode_config, integer_keyed

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem, ReadFileSystem

_LOG: Final = logging.getLogger(__name__)
TOPICS_FILE: Final = "topics.json"
OFFSETS_FILE: Final = "consumerOffset.json"
LIGHT_OFFSETS_FILE: Final = "lmqConsumerOffset.json"  # of a broker with light queues, instead
GROUPS_FILE: Final = "subscriptionGroup.json"
DELAYS_FILE: Final = "delayOffset.json"
GROUP_MAP: Final = "subscriptionGroupTable"
DELAY_MAP: Final = "offsetTable"
BACKUP: Final = ".bak"
CHECKSUM: Final = ".checksum"

T = TypeVar("T")
Document = dict[str, Any]


class ReadTable(NamedTuple, Generic[T]):
    """A table as it was read: ``data`` is what its file has, b"" for none.

    ``problem`` says what is wrong with its files, empty if nothing is. ``content`` is None where no file can be read.
    """

    content: T | None
    data: bytes
    problem: str = ""
    from_backup: bool = False


def read_files(
    filesystem: ReadFileSystem,
    path: Path,
    parse: Callable[[Document], T],
    known: ReadTable[T] | None = None,
) -> ReadTable[T]:
    """Read the file of a table that counts; nothing is changed. Raises OSError.

    A table that is as ``known`` is not parsed again.
    """
    written = _fingerprints(filesystem, path)  # first: it is replaced before the table, .bak second
    table = _read(filesystem, path)
    if written is not None and _fingerprint(table) in written:
        backup, is_damaged = None, False
    else:
        backup = _read(filesystem, _with(path, BACKUP))
        is_damaged = written is not None and _fingerprint(backup) == written[1]
    if known is not None and table == known.data and not (is_damaged or known.problem):
        return known
    content = None if is_damaged else _parsed(table, parse)
    if content is not None and table is not None:
        return ReadTable(content, table)
    backup = backup or _read(filesystem, _with(path, BACKUP))
    if table is None and backup is None:
        return ReadTable(None, b"")
    problem = "is missing" if table is None else "is damaged" if is_damaged else "cannot be read"
    content = _parsed(backup, parse)
    if content is None or backup is None:
        return ReadTable(None, b"", f"{problem}; there is no .bak to use")
    return ReadTable(content, backup, f"{problem}; its .bak is used", from_backup=True)


def read_table(
    filesystem: ReadFileSystem, directory: Path, name: str, parse: Callable[[Document], T]
) -> T | None:
    """Return what ``parse`` makes of the file of a table that counts; None if there is none."""
    return read_files(filesystem, directory / name, parse).content


def replace_table(filesystem: FileSystem, path: Path, data: bytes) -> None:
    """Replace a table, whose file becomes its ``.bak``; durable on return. Its owner alone calls it.

    Raises StoreFull with nothing changed, OSError.
    """
    before = _read(filesystem, path)
    if before == data:
        return
    if before is None:
        before = _read(filesystem, _with(path, BACKUP))  # stays the .bak
    written = f"{_fingerprint(data)} {_fingerprint(before)}"
    checksum = f"{written} {crc32(written.encode()):08x}\n".encode()
    filesystem.write_atomically(path, data, copy=(CHECKSUM, checksum), syncs_copy=False)


def settle_table(filesystem: FileSystem, path: Path, parse: Callable[[Document], object]) -> None:
    """Make a damaged table hold what counts, and its ``.bak`` what was damaged; log what was wrong.

    Durable on return; on a full disk the next write does it. Its owner alone calls it. Raises OSError.
    """
    read = read_files(filesystem, path, parse)
    if read.problem:
        _LOG.warning("config/%s: %s", path.name, read.problem)
    if read.from_backup:
        with suppress(StoreFull):
            replace_table(filesystem, path, read.data)


def document_in(data: bytes) -> Document:
    """Return the document that a table's file holds. Raises ValueError if it is not one."""
    document = decode_config(data)
    if not isinstance(document, dict):
        raise ValueError(f"a map expected, not {document!r}")
    return document


def _parsed(data: bytes | None, parse: Callable[[Document], T]) -> T | None:
    with suppress(*MALFORMED):
        return None if data is None else parse(document_in(data))
    return None


def _fingerprints(filesystem: ReadFileSystem, path: Path) -> tuple[str, str] | None:
    """Return the fingerprints of the table that we wrote last and of its ``.bak`` then; None if nobody knows."""
    words = (_read(filesystem, _with(path, CHECKSUM)) or b"").decode("ascii", "replace").split()
    if len(words) != 3 or words[2] != f"{crc32(' '.join(words[:2]).encode()):08x}":
        return None  # a power cut may leave a part of it
    return words[0], words[1]


def _fingerprint(data: bytes | None) -> str:
    """Return a word that differs for each content of a file, and for no file."""
    return "none" if data is None else f"{crc32(data):08x}-{len(data)}"


def _read(filesystem: ReadFileSystem, path: Path) -> bytes | None:
    try:
        return filesystem.read_bytes(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _with(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


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

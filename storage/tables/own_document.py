"""A JSON document that is ours alone, in two files that hold the same: ``NAME`` and ``NAME.bak``.

Each carries a checksum. The first counts where it is whole, else the second; after a power cut one of
them may be older, which ``settle_document`` ends at the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from storage.tables.checked_json import decode_checked, encode_checked, has_checksum

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem, ReadFileSystem

BACKUP: Final = ".bak"
_MISSING: Final = (FileNotFoundError, NotADirectoryError)
_DAMAGED: Final = (OSError, ValueError, KeyError, TypeError, AttributeError)

T = TypeVar("T")


def save_document(
    filesystem: FileSystem, path: Path, document: Mapping[str, object], *, indent: int | None = None
) -> None:
    """Replace both files; durable on return. Raises StoreFull with nothing changed, OSError."""
    data = encode_checked(document, indent=indent)
    filesystem.write_atomically(path, data, backup=False, copy=(BACKUP, data))


def load_document(
    filesystem: ReadFileSystem, path: Path, parse: Callable[[dict[str, Any]], T]
) -> T | None:
    """Return what ``parse`` makes of the document, None if there is no file of it.

    Raises ValueError where there are files and none is whole, OSError where none can be read, and what
    ``parse`` raises but for ValueError, KeyError, TypeError and AttributeError.
    """
    problem: Exception | None = None
    for candidate in (path, path.with_name(path.name + BACKUP)):
        try:
            return parse(decode_checked(filesystem.read_bytes(candidate)))
        except _MISSING:
            continue
        except _DAMAGED as error:
            problem = problem or error
    if isinstance(problem, OSError):
        raise problem
    if problem is not None:
        raise ValueError(str(problem)) from problem
    return None


def damaged_files(
    filesystem: ReadFileSystem, path: Path, parse: Callable[[dict[str, Any]], object]
) -> dict[str, str]:
    """Return which of the two files are there and not whole, and what is wrong with each."""
    found = {}
    for candidate in (path, path.with_name(path.name + BACKUP)):
        try:
            parse(decode_checked(filesystem.read_bytes(candidate)))
        except _MISSING:
            continue
        except _DAMAGED as error:
            found[candidate.name] = str(error)
    return found


def settle_document(
    filesystem: FileSystem,
    path: Path,
    parse: Callable[[dict[str, Any]], object],
    *,
    indent: int | None = None,
) -> str:
    """Make both files hold the document that counts; return what was wrong, empty if nothing was.

    Does nothing where no file is whole. Durable on return. Raises StoreFull, OSError.
    """
    contents: list[bytes | None] = []
    problem = ""
    for candidate in (path, path.with_name(path.name + BACKUP)):
        content: bytes | None = None
        try:
            content = filesystem.read_bytes(candidate)
            parse(decode_checked(content))
        except _MISSING:
            contents.append(None)
        except _DAMAGED as error:
            problem = problem or f"{candidate.name} is damaged: {error}"
            contents.append(None)
        else:
            contents.append(content)
    whole = next((content for content in contents if content is not None), None)
    if whole is not None and (contents[0] != contents[1] or not has_checksum(whole)):
        save_document(filesystem, path, decode_checked(whole), indent=indent)
    return problem

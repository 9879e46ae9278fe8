"""A JSON document that is ours alone, in two files that hold the same: ``NAME`` and ``NAME.bak``.

Each carries a checksum. A reader takes the first where it is whole, else the second. After a power cut they
may differ: ``settle_document`` makes both the same at the next start of their owner. A file that cannot be
read now may be whole: nothing is written over it then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from storage.errors import StoreBusy
from storage.tables.checked_json import decode_checked, encode_checked

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem, ReadFileSystem

BACKUP: Final = ".bak"
_MISSING: Final = (FileNotFoundError, NotADirectoryError)
_UNREAD: Final = (OSError, StoreBusy)
_DAMAGED: Final = (ValueError, KeyError, TypeError, AttributeError)

T = TypeVar("T")


def save_document(
    filesystem: FileSystem, path: Path, document: Mapping[str, object], *, indent: int | None = None
) -> None:
    """Replace both files; durable on return. Raises StoreFull with nothing changed, OSError."""
    data = encode_checked(document, indent=indent)
    filesystem.write_atomically(path, data, backup=False, copy=(BACKUP, data))


def load_document(
    filesystem: ReadFileSystem,
    path: Path,
    parse: Callable[[dict[str, Any]], T],
    *,
    maybe_older: bool = False,
) -> T | None:
    """Return what ``parse`` makes of the document, None if there is no file of it.

    Raises ValueError where there are files and none is whole, OSError and StoreBusy where a file before the
    whole one cannot be read now, and what ``parse`` raises but for ValueError, KeyError, TypeError and
    AttributeError. With ``maybe_older`` a second file that is whole counts although the first cannot be read.
    """
    problem: Exception | None = None
    for candidate in (path, path.with_name(path.name + BACKUP)):
        try:
            return parse(decode_checked(filesystem.read_bytes(candidate)))
        except _MISSING:
            continue
        except _UNREAD as error:
            problem = error
            if not maybe_older:
                break
        except _DAMAGED as error:
            problem = problem or error
    if isinstance(problem, _UNREAD):
        raise problem
    if problem is not None:
        raise ValueError(str(problem)) from problem
    return None


def damaged_files(
    filesystem: ReadFileSystem, path: Path, parse: Callable[[dict[str, Any]], object]
) -> dict[str, str]:
    """Return which of the two files are there and not whole, and what is wrong with each: "is damaged", say."""
    found = {}
    for candidate in (path, path.with_name(path.name + BACKUP)):
        try:
            parse(decode_checked(filesystem.read_bytes(candidate)))
        except _MISSING:
            continue
        except (*_UNREAD, *_DAMAGED) as error:
            found[candidate.name] = file_problem(error)
    return found


def file_problem(error: Exception) -> str:
    """Return what an error of reading a file says of it: what cannot be read now may be whole."""
    return f"{'cannot be read' if isinstance(error, _UNREAD) else 'is damaged'}: {error}"


def settle_document(
    filesystem: FileSystem,
    path: Path,
    parse: Callable[[dict[str, Any]], object],
    *,
    indent: int | None = None,
) -> str:
    """Make both files hold the document that counts; return what was wrong, empty if nothing was.

    Does nothing where no file is whole. Durable on return. Raises OSError and StoreBusy with nothing changed where
    one of the two cannot be read now, StoreFull, and what ``parse`` raises.
    """
    problem = "; ".join(
        f"{name} {problem}" for name, problem in damaged_files(filesystem, path, parse).items()
    )
    contents: list[bytes | None] = []
    for candidate in (path, path.with_name(path.name + BACKUP)):
        try:
            contents.append(filesystem.read_bytes(candidate))
            parse(decode_checked(contents[-1] or b""))
        except _MISSING:
            contents.append(None)
        except _DAMAGED:
            contents[-1] = None
    counts = contents[0] or contents[1]
    if counts is not None and contents != [counts, counts]:
        save_document(filesystem, path, decode_checked(counts), indent=indent)
        return problem or f"{path.name} and its .bak were not the same"
    return problem

"""Small JSON files that are ours alone: the document says what it should be.

    {"formatVersion": 1, "storeId": "...", "checksum": "9ae1f0c2"}

``checksum`` is the CRC-32, as 8 hexadecimal digits, of the other fields as compact JSON, names in order. A
document without it, which somebody wrote by hand, is taken as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from zlib import crc32

from storage.errors import StoreBusy

CHECKSUM: Final = "checksum"
MISSING: Final = (FileNotFoundError, NotADirectoryError)
NOT_WHOLE: Final = (ValueError, KeyError, TypeError, AttributeError)
"""What a document that is not what it should be raises when it is parsed."""


def encode_checked(document: Mapping[str, object], *, indent: int | None = None) -> bytes:
    """Return the document with its checksum."""
    checked = {**document, CHECKSUM: _checksum(document)}
    return json.dumps(checked, indent=indent).encode()


def decode_checked(data: bytes) -> dict[str, Any]:
    """Return a document without its checksum. Raises ValueError where it does not match, or for no document."""
    document = json.loads(data.decode())
    if not isinstance(document, dict):
        raise ValueError(f"a document expected, not {document!r}")
    given = document.pop(CHECKSUM, None)
    if given is not None and given != _checksum(document):
        raise ValueError("its checksum does not match")
    return document


def file_problem(error: Exception) -> str:
    """Return what an error of reading a file says of it: what cannot be read now may be whole."""
    is_unread = isinstance(error, OSError | StoreBusy)
    return f"{'cannot be read' if is_unread else 'is damaged'}: {error}"


def _checksum(document: Mapping[str, object]) -> str:
    return f"{crc32(json.dumps(document, sort_keys=True, separators=(',', ':')).encode()):08x}"

"""Configuration files in a broker's dialect of JSON, which is not quite JSON.

Maps with integer keys are written with the keys bare, on one line, and closed on the next:
``{0:12,1:7⏎}``. All else is indented by tabs. Readers are lenient: white space, single quotes,
names without quotes, integer keys bare or quoted.

Fields of objects are in alphabetical order, entries of maps in no order. Encoding keeps the order
it is given.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

_NOT_JSON: Final = re.compile(
    r"""
        (?P<double>"(?:[^"\\]|\\.)*")
      | (?P<single>'(?:[^'\\]|\\.)*')
      | (?P<integer>-?\d+)(?=\s*:)
      | (?!-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\s*:)(?P<name>[\w$%|.@-]+)(?=\s*:)
      | (?<=[^\s\[{,])\s*(?P<last>,)(?=\s*[}\]])
    """,
    re.VERBOSE | re.DOTALL,
)
"""What stands in a document: texts, keys without quotes, and a comma after the last entry."""
_INTEGER: Final = "\ue000an integer: "  # begins a key that was bare
_ESCAPED_QUOTE: Final = re.compile(r"""\\(.)|(")""", re.DOTALL)


MALFORMED: Final = (ValueError, TypeError, AttributeError, OverflowError)
"""What reading a document raises whose values are not of the kinds that they should be."""


def decode_config(data: bytes | str) -> Any:
    """Decode a document; bare integer keys become int keys, quoted ones stay text.

    Raises ValueError for what a lenient reader cannot read either, an empty file included.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error}") from None
    with suppress(ValueError, RecursionError):  # most are JSON, which is read ten times as fast
        return json.loads(text, strict=False, parse_constant=_no_constant)
    try:
        return json.loads(
            _NOT_JSON.sub(_as_json, text), strict=False, parse_constant=_no_constant,
            object_pairs_hook=_with_integer_keys,
        )  # fmt: skip
    except RecursionError:
        raise ValueError("nested too deep") from None


def _as_json(found: re.Match[str]) -> str:
    """Return what stands for a part of a document in JSON."""
    text = found[0]
    if found["double"]:
        return text
    if found["single"]:
        return _quote(_unquote(text))
    if found["integer"]:
        return _quote(_INTEGER + text)
    return _quote(text) if found["name"] else ""


def _with_integer_keys(pairs: list[tuple[str, Any]]) -> dict[Any, Any]:
    return {
        int(key.removeprefix(_INTEGER)) if key.startswith(_INTEGER) else key: value
        for key, value in pairs
    }


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no value")


def encode_config(document: Mapping[Any, Any]) -> bytes:
    """Encode a document as a broker's pretty form; entries whose value is None are left out."""
    return _encode(document, 0).encode()


class Encoded(str):
    """A value as it stands in the document, made by ``encoded``."""

    __slots__ = ()


def encoded(value: object, depth: int) -> Encoded:
    """Encode a value ``depth`` maps deep in a document, for whoever encodes documents with it again and again."""
    return Encoded(_encode(value, depth))


def integer_keyed(table: Mapping[Any, Any]) -> dict[int, int]:
    """Return a map of integers to integers whose keys were bare or quoted; ValueError otherwise."""
    return {int(key): int(value) for key, value in table.items()}


def _encode(value: object, depth: int) -> str:
    if type(value) is Encoded:
        return value
    if isinstance(value, Mapping):
        pairs = [(key, entry) for key, entry in value.items() if entry is not None]
        if not pairs:
            return "{}"
        indent = "\n" + "\t" * depth
        if all(type(key) is int for key, _ in pairs):
            entries = ",".join(f"{key}:{_encode(entry, depth + 1)}" for key, entry in pairs)
            return f"{{{entries}{indent}}}"
        lines = (
            f"{indent}\t{_quote(str(key))}:{_encode(entry, depth + 1)}" for key, entry in pairs
        )
        return f"{{{','.join(lines)}{indent}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(_encode(entry, depth + 1) for entry in value)}]"
    if isinstance(value, str):
        return _quote(value)
    return json.dumps(value, allow_nan=False)


_quote: Final = json.JSONEncoder(ensure_ascii=False).encode  # of a text


def _unquote(token: str) -> str:
    """Return the text that stands between single quotes."""
    inner = _ESCAPED_QUOTE.sub(
        lambda match: '\\"' if match[2] else "'" if match[1] == "'" else match[0], token[1:-1]
    )
    return str(json.loads(f'"{inner}"', strict=False))

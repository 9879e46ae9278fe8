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

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<mark>[{}\[\]:,])
      | (?P<double>"(?:[^"\\]|\\.)*")
      | (?P<single>'(?:[^'\\]|\\.)*')
      | (?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w$%|.@-]))
      | (?P<word>[\w$%|.@-]+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: Final[Mapping[str, object]] = {"true": True, "false": False, "null": None}
_DEPTH_MAX: Final = 64
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
    parser = _Parser(text)
    value = parser.value(0)
    parser.end()
    return value


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


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._kind = ""
        self._token = ""
        self._next()

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match:
            self._kind = str(match.lastgroup)
            self._token = match[self._kind]
            self._at = match.end()
        elif self._text[self._at :].strip():
            raise ValueError(f"cannot read {self._text[self._at : self._at + 20]!r}")
        else:
            self._kind = self._token = ""

    def _expect(self, mark: str) -> None:
        if self._kind != "mark" or self._token != mark:
            raise ValueError(f"{mark!r} expected before {self._token!r}, character {self._at}")
        self._next()

    def _is(self, mark: str) -> bool:
        return self._kind == "mark" and self._token == mark

    def end(self) -> None:
        if self._kind:
            raise ValueError(f"text after the end: {self._token!r}")

    def value(self, depth: int) -> Any:
        if depth > _DEPTH_MAX:
            raise ValueError(f"nested deeper than {_DEPTH_MAX}")
        if self._is("{"):
            return self._map(depth)
        if self._is("["):
            return self._list(depth)
        kind, token = self._kind, self._token
        if kind in ("double", "single"):
            result: Any = _unquote(token)
        elif kind == "number":
            result = json.loads(token)
        elif kind == "word" and token in _WORDS:
            result = _WORDS[token]
        else:
            raise ValueError(f"a value expected before {token!r}, character {self._at}")
        self._next()
        return result

    def _map(self, depth: int) -> dict[Any, Any]:
        self._expect("{")
        result: dict[Any, Any] = {}
        while not self._is("}"):
            key = self._key()
            self._expect(":")
            result[key] = self.value(depth + 1)
            if not self._is("}"):
                self._expect(",")
        self._expect("}")
        return result

    def _key(self) -> int | str:
        kind, token = self._kind, self._token
        if kind in ("double", "single"):
            key: int | str = _unquote(token)
        elif kind == "number":
            key = int(token)
        elif kind == "word":
            key = token
        else:
            raise ValueError(f"a name expected before {token!r}, character {self._at}")
        self._next()
        return key

    def _list(self, depth: int) -> list[Any]:
        self._expect("[")
        result = []
        while not self._is("]"):
            result.append(self.value(depth + 1))
            if not self._is("]"):
                self._expect(",")
        self._expect("]")
        return result


def _unquote(token: str) -> str:
    if token[0] == "'":
        inner = _ESCAPED_QUOTE.sub(
            lambda match: '\\"' if match[2] else "'" if match[1] == "'" else match[0], token[1:-1]
        )
        token = f'"{inner}"'
    return str(json.loads(token, strict=False))

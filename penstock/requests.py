"""Messages of the contract made of values, and values made of messages.

What no message holds is refused before it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, MutableSequence, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.message import Message as ProtoMessage

from penstock.errors import InvalidArgument

REQUEST_BYTES_MAX: Final = 16 << 20
"""What the services take by default; above it a stream would break."""

FRAME_OVERHEAD_MAX: Final = 6
"""Bytes of a serialized record batch that are not records: a tag and a length."""

_SCALARS: Final = (int, str, bytes, float)
_R = TypeVar("_R", bound=ProtoMessage)
_V = TypeVar("_V")


def build(kind: type[_R], /, **fields: Any) -> _R:
    """Return a message; InvalidArgument names the field whose value does not fit. None: absent."""
    try:
        return kind(**fields)
    except ValueError as error:
        field, problem = _at_fault(kind, fields) or ("", str(error))
        raise InvalidArgument(f"{field}: {problem}" if field else problem, field=field) from error


def value_of(kind: type[_V], message: Any, /, **given: Any) -> _V:
    """Return a dataclass's value with a message's fields of the same names; ``given`` are those that differ."""
    fields: Any = kind.__dataclass_fields__  # type: ignore[attr-defined]
    for name in fields:
        if name not in given:
            value = getattr(message, name)
            if isinstance(
                value, _SCALARS
            ):  # nearly all are, and abstract classes take ten times as long
                pass
            elif isinstance(value, MutableSequence):
                value = tuple(value)
            elif isinstance(value, MutableMapping):
                value = dict(value)
            given[name] = value
    return kind(**given)


def value(kind: type[_V]) -> Callable[[Any], _V]:
    """Return a reader of answers that are one value, as `value_of` has it."""
    return partial(value_of, kind)


def each(kind: type[_V], field: str) -> Callable[[Any], list[_V]]:
    """Return a reader of answers whose ``field`` repeats a value, as `value_of` has it."""
    return lambda answer: [value_of(kind, message) for message in getattr(answer, field)]


def nothing(_: object) -> None:
    """Read an answer that says nothing more than that the call was made."""


def key_tuple(keys: Sequence[str]) -> tuple[str, ...]:
    """Return the keys; one text would be taken for a key a letter."""
    if isinstance(keys, str):
        raise InvalidArgument("keys: give a sequence of keys, not one text", field="keys")
    return tuple(keys)


def check_size(field: str, byte_count: int, bytes_max: int) -> None:
    """Refuse a request that the service would refuse unread."""
    if byte_count > bytes_max:
        raise InvalidArgument(
            f"{field}: {byte_count} bytes in one request; the most is {bytes_max}."
            " Send less at a time",
            field=field,
        )


def _at_fault(kind: type[ProtoMessage], fields: dict[str, Any]) -> tuple[str, str] | None:
    for name, value in fields.items():
        try:
            kind(**{name: value})
        except ValueError as error:
            if isinstance(error, UnicodeError):
                return name, f"{value!r:.100} is not text that UTF-8 can hold"
            return name, f"{value!r:.100} does not fit: {error}"
    return None

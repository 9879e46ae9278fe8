"""A record as a message of the contract."""

from __future__ import annotations

import pytest
from engine_store import record

from services.reader.records import record_message
from storage.format.record import decode_record


@pytest.mark.parametrize(
    ("stored", "keys"),
    [("a b", ["a", "b"]), ("a\tb  c", ["a\tb", "c"]), ("a\u00a0b", ["a\u00a0b"]), ("", [])],
)
def test_keys_are_separated_by_spaces_and_no_other_white_space(
    stored: str, keys: list[str]
) -> None:
    """Else keys that are found by key come out as others."""
    assert list(record_message(decode_record(record(keys=stored))).keys) == keys

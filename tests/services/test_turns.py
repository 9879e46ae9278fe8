"""Turns of threads are short for as long as a large call is under way, and no longer."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from services.turns import SHORT_TURN_S, ShortTurns
from services.writer.servicer import WriterServicer


def interval_s() -> float:
    return round(sys.getswitchinterval(), 6)


def test_turns_are_short_until_the_last_one_leaves() -> None:
    usual_s, turns = interval_s(), ShortTurns()
    with turns:
        with pytest.raises(ZeroDivisionError), turns:
            assert interval_s() == SHORT_TURN_S
            raise ZeroDivisionError
        assert interval_s() == SHORT_TURN_S
    assert interval_s() == usual_s


@pytest.mark.parametrize("method", ["_append", "_put"])
def test_a_large_call_has_short_turns(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual_s, seen = interval_s(), []

    class Store:
        def append_batch(self, *_: object, **__: object) -> None:
            seen.append(interval_s())

    servicer: Any = WriterServicer.__new__(WriterServicer)
    servicer._store = Store()
    monkeypatch.setattr(servicer, "_put_parsed", lambda *_: seen.append(interval_s()))
    getattr(servicer, method)(b"", None if method == "_append" else "127.0.0.1")
    assert seen == [SHORT_TURN_S]
    assert interval_s() == usual_s

"""Turns of threads are short for as long as a large call is under way, and no longer."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from penstock.v1 import common_pb2, writer_pb2
from services.writer.large_calls import SHORT_TURN_S, ShortTurns
from services.writer.servicer import FEW_BYTES, WriterServicer
from storage.message import BatchResult, QueueRange


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


@pytest.mark.parametrize("method", ["produce_batch", "produce"])
async def test_a_large_call_has_short_turns(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual_s, seen = interval_s(), []
    stored = BatchResult(0, 1, 1, 0, (QueueRange("t", 0, 0, 1),))

    class Store:
        def append_batch(self, *_: object, **__: object) -> BatchResult:
            seen.append(interval_s())
            return stored

    class Acks:
        def has(self, _end: int) -> bool:
            return True

        async def wait(self, _end: int) -> None:
            pass

    class Caller:
        def peer(self) -> str:
            return "ipv4:127.0.0.1:1"

    def put_parsed(*_: object) -> tuple[bytes, int]:
        seen.append(interval_s())
        return b"", 1

    servicer: Any = WriterServicer.__new__(WriterServicer)
    servicer._store, servicer._acks = Store(), Acks()
    monkeypatch.setattr(servicer, "_put_plain", lambda *_: None)
    monkeypatch.setattr(servicer, "_append_few", lambda *_: None)
    monkeypatch.setattr(servicer, "_put_parsed", put_parsed)
    large = writer_pb2.ProduceRequest(messages=[common_pb2.Message(body=bytes(FEW_BYTES))])
    request = large.SerializeToString() if method == "produce" else b""
    await getattr(servicer, method)(request, Caller())
    assert seen == [SHORT_TURN_S]
    assert interval_s() == usual_s

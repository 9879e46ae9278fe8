"""Answers of a stream gather in messages, which stay small."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from services.rpc.frame_stream import FrameStream


class Caller:
    """A call that brings frames, and keeps the messages it is answered."""

    def __init__(self, frames: Iterable[bytes]) -> None:
        self.frames = frames
        self.messages: list[bytes] = []

    async def read_each(self, take: Callable[[bytes], Awaitable[None] | None]) -> None:
        for frame in self.frames:
            assert take(frame) is None

    async def write_all(self, answers: Iterable[bytes]) -> None:
        self.messages += answers


class Echo(FrameStream[bytes]):
    """Answers each frame with itself, once all have come."""

    def _take(self, frame: bytes) -> None:
        self._put(frame)

    async def _known(self, outcome: bytes) -> None:
        await asyncio.sleep(0)

    def _answer_of(self, outcome: bytes) -> bytes:
        return outcome


@pytest.mark.parametrize(
    ("limits", "messages"),
    [({}, [b"aaaa", b"bbbb", b"cc"]), ({"message_bytes": 6}, [b"aaaabbbb", b"cc"])],
)
async def test_answers_are_one_message_until_it_has_its_bytes(
    limits: dict[str, Any], messages: list[bytes]
) -> None:
    caller: Any = Caller([b"aaaa", b"bbbb", b"cc"])
    await Echo(caller, asyncio.Event(), in_flight_max=9, **limits).serve()

    assert caller.messages == messages

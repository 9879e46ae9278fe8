"""Calls of a consumer: answers are taken in the order of the calls, whichever thread brings them."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import grpc

from penstock import ClientClosed
from penstock.background import WakeUp
from penstock.calls.call import Call
from penstock.channel import Home
from penstock.consuming.in_flight import Answered, InFlightCalls


def answered_at_once(request: Any, **_: Any) -> Future[Any]:
    """Return a future that is done before a callback can be added: an answer that another thread has brought."""
    future: Future[Any] = Future()
    if isinstance(request, Exception):
        future.set_exception(request)
    else:
        future.set_result(request)
    return future


def channels_of(stub: Any, *, is_closed: bool) -> Any:
    return SimpleNamespace(
        check_open=lambda: None,
        is_closed=is_closed,
        call_thread=SimpleNamespace(do=lambda work: work()),
        stub=lambda _method, _lane: stub,
    )


def test_a_call_whose_channel_is_closed_before_it_begins_is_of_a_closed_client() -> None:
    """Its consumer would wait for its answer for ever."""
    channel = grpc.insecure_channel("127.0.0.1:1")
    stub = channel.unary_unary("/s/m")
    channel.close()
    taken: list[Answered] = []
    calls = InFlightCalls(channels_of(stub, is_closed=True), taken.append, Home(), WakeUp())
    calls.start("purpose", Call(None, b"", lambda answer: answer), 5)  # type: ignore[arg-type]

    assert [type(answered.outcome) for answered in taken] == [ClientClosed]


def test_an_answer_is_taken_before_that_of_its_successor() -> None:
    channels = channels_of(SimpleNamespace(future=answered_at_once), is_closed=False)
    away = OSError("away")
    following = {1: 2, 2: away}
    taken: list[Answered] = []
    calls = InFlightCalls(channels, taken.append, Home(), WakeUp())

    def successor(_purpose: Any, response: Any) -> Call[Any]:
        return Call("method", following[response], lambda answer: answer)

    calls.start("queue", Call("method", 1, lambda answer: answer), 1.0, successor)

    assert [each.outcome for each in taken] == [1, 2, away]
    assert [each.is_followed for each in taken] == [True, True, False]

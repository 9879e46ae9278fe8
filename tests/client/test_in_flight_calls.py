"""Calls of a consumer: answers are taken in the order of the calls, whichever thread brings them."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from penstock.calls.call import Call
from penstock.consuming.in_flight import Answered, InFlightCalls


def answered_at_once(request: Any, **_: Any) -> Future[Any]:
    """Return a future that is done before a callback can be added: an answer that another thread has brought."""
    future: Future[Any] = Future()
    if isinstance(request, Exception):
        future.set_exception(request)
    else:
        future.set_result(request)
    return future


def test_an_answer_is_taken_before_that_of_its_successor() -> None:
    channels: Any = SimpleNamespace(
        check_open=lambda: None,
        call_thread=SimpleNamespace(do=lambda work: work()),
        stub=lambda _method, _lane: SimpleNamespace(future=answered_at_once),
    )
    away = OSError("away")
    following = {1: 2, 2: away}
    taken: list[Answered] = []
    calls = InFlightCalls(channels, taken.append)

    def successor(_purpose: Any, response: Any) -> Call[Any]:
        return Call("method", following[response], lambda answer: answer)

    calls.start("queue", Call("method", 1, lambda answer: answer), 1.0, successor)

    assert [each.outcome for each in taken] == [1, 2, away]
    assert [each.is_followed for each in taken] == [True, True, False]

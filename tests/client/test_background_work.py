"""Work beside the caller's begins after an interrupted start too, and what goes wrong in it reaches the caller."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock import Client
from penstock.calls import records
from penstock.calls.call import Call
from penstock.client.connection import Connection

PATIENCE_S = 60.0
IDLE_S = 5.0  # a subscription that does not wake ends after it


def interrupted(_: threading.Thread) -> None:
    raise KeyboardInterrupt


def unexpected(*_: Any) -> Any:
    raise RuntimeError("unexpected")


@pytest.fixture(name="unreadable")
def _unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result of a stream of pulls fails to be read."""
    opened = records.pull_stream

    def unreadable(*arguments: Any, **named: Any) -> Call[Any]:
        call = opened(*arguments, **named)
        return Call(call.method, call.request, unexpected)

    monkeypatch.setattr(records, "pull_stream", unreadable)


@pytest.mark.usefixtures("unreadable")
def test_a_stream_of_pulls_that_fails_unexpectedly_raises_and_does_not_end(client: Client) -> None:
    client.produce("orders", b"0", queue_id=0)
    with pytest.raises(RuntimeError, match="unexpected"):
        next(client.pull_stream("orders", 0, 0))


def test_a_subscription_whose_receive_fails_unexpectedly_raises_and_does_not_wait(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "error_of", unexpected)
    with (
        client.subscribe("orders", group="g", idle_s=IDLE_S) as messages,
        pytest.raises(RuntimeError, match="unexpected"),
    ):
        next(messages)


def test_a_consumer_whose_pull_cannot_be_sent_raises_and_does_not_wait(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = client.consume("orders", queues=[0])
    monkeypatch.setattr(client.channels, "stub", unexpected)
    with pytest.raises(RuntimeError, match="unexpected"):
        next(consumer)

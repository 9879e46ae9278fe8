"""Checks go on being passed to producers whatever one of them holds; topics are watched while somebody names them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from penstock.v1 import transactions_pb2
from services.messaging.telemetry import ProducerStream, TelemetryStreams
from services.messaging.transactions import OrphanedTransactions

NO_RECORD = transactions_pb2.TransactionCheck(transaction_id="t", message_count=1)


class CheckingOnce:
    """A writer that sends one check, then notes that another one is waited for."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.goes_on = asyncio.Event()

    async def answers(self, _path: str, _request: Any) -> AsyncIterator[bytes]:
        yield self.answer
        self.goes_on.set()
        await asyncio.Event().wait()


def streams() -> TelemetryStreams:
    nothing = cast("Any", None)
    return TelemetryStreams(nothing, nothing, asyncio.Event(), most=1, body_bytes_max=1)


@pytest.mark.parametrize("answer", [b"no check", NO_RECORD.SerializeToString()])
async def test_a_check_that_cannot_be_read_ends_no_other(answer: bytes) -> None:
    telemetry, writer = streams(), CheckingOnce(answer)
    telemetry.publishes("client", ProducerStream(cast("Any", None)), frozenset(["orders"]))
    transactions = OrphanedTransactions(cast("Any", writer), telemetry)

    transactions.tick()
    await asyncio.wait_for(writer.goes_on.wait(), 5)

    await transactions.close()


async def test_a_topic_is_published_while_a_producer_names_it() -> None:
    telemetry = streams()
    first, second = (ProducerStream(cast("Any", None)) for _ in range(2))

    telemetry.publishes("a", first, frozenset(["orders", "bills"]))
    telemetry.publishes("b", second, frozenset(["orders"]))
    both = telemetry.published_topics()
    telemetry.publishes("a", first, frozenset(["bills"]))
    same = telemetry.published_topics()
    again = ProducerStream(cast("Any", None))
    telemetry.publishes("b", again, frozenset(["bills"]))
    telemetry.ended("b", second)
    last = telemetry.published_topics()
    telemetry.ended("b", again)
    telemetry.ended("a", first)

    assert both is same
    assert (both, last) == ({"orders", "bills"}, {"bills"})
    assert telemetry.published_topics() == frozenset()

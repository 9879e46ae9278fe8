"""A client in another event loop, or in a forked process: it works, or says what to make there. It never waits for ever."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from faulty_penstock import FaultyPenstock

from penstock import AsyncClient, UsedElsewhere

FORKS = """
import os, sys
from penstock import Client, UsedElsewhere

client = Client(writer=sys.argv[1], reader=sys.argv[1], indexer=sys.argv[1])
client.produce("orders", b"parent")


def in_a_child(work):
    sys.stdout.flush()
    process_id = os.fork()
    if not process_id:
        try:
            print(work())
        except UsedElsewhere as error:
            print("UsedElsewhere")
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(process_id, 0)


in_a_child(lambda: client.produce("orders", b"child") and "produced")
consumer = client.consume("orders")
producer = client.producer()
handle = producer.send("orders", b"parent")
handle.result()
for record in consumer:
    break
in_a_child(lambda: list(consumer))
in_a_child(lambda: producer.send("orders", b"child"))
in_a_child(producer.flush)
in_a_child(producer.close)
in_a_child(handle.result)
print(producer.send("orders", b"parent").result() and "produced")
producer.close()
client.close()
"""


def test_after_a_fork_a_client_makes_calls_and_what_was_open_says_to_open_another(
    faulty: FaultyPenstock,
) -> None:
    """The parent goes on."""
    command = [sys.executable, "-c", FORKS, faulty.address]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.split()
    assert lines[:4] == ["produced", "UsedElsewhere", "UsedElsewhere", "UsedElsewhere"], ran.stderr
    assert lines[4] == "UsedElsewhere"
    assert lines[-1] == "produced"


async def _next(items: Any) -> Any:
    return await anext(items)


@pytest.mark.parametrize(
    "use",
    [
        lambda client, _: client.produce("orders", b"again"),
        lambda client, _: client.topics(),
        lambda client, _: _next(client.consume("orders", follow=False)),
        lambda client, _: _next(client.query_by_key("orders", "k")),
        lambda client, _: _next(client.pull_stream("orders", 0, 0)),
        lambda client, _: client.wait_ready(1),
        lambda _, opened: _next(opened[0]),
        lambda _, opened: opened[1].send("orders", b"again", queue_id=0),
        lambda _, opened: opened[1].flush(),
    ],
)
def test_an_asyncio_client_in_another_event_loop_says_to_make_another(
    faulty: FaultyPenstock, use: Callable[[AsyncClient, Any], Awaitable[Any]]
) -> None:
    client = AsyncClient(**faulty.addresses)

    async def first() -> Any:
        await client.produce("orders", b"x", queue_id=0)
        consumer, producer = client.consume("orders"), client.producer()
        await anext(consumer)
        await (await producer.send("orders", b"y", queue_id=0)).result()
        await anext(consumer)
        return consumer, producer

    opened = asyncio.run(first())

    async def second() -> None:
        with pytest.raises(UsedElsewhere, match="make another client"):
            await asyncio.wait_for(use(client, opened), 30)

    asyncio.run(second())

"""The synchronous client is the asyncio one without its awaits, and opens what it can at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_penstock import FaultyPenstock

from penstock import Client, TopicNotFound
from penstock._async.__main__ import TARGET, generate


def test_the_synchronous_client_is_what_the_asyncio_one_generates(tmp_path: Path) -> None:
    """After a change of penstock/_async, `make client` is due."""
    generate(tmp_path)

    assert texts(tmp_path) == texts(TARGET)


def texts(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*.py")}


def test_nothing_asynchronous_is_left_in_it() -> None:
    for name, text in texts(TARGET).items():
        assert "sync" not in text.replace("_sync", "").replace("_async: change", ""), name


def test_a_consumer_is_open_when_it_is_made(client: Client, faulty: FaultyPenstock) -> None:
    """The latest record is that of the moment, and a topic that does not exist is reported there."""
    client.produce("orders", b"before", queue_id=0)
    consumer = client.consume("orders", queues=[0], start="latest", follow=False)
    client.produce("orders", b"after", queue_id=0)

    assert consumer.positions == {0: 1}
    assert [record.body for record in consumer] == [b"after"]
    with pytest.raises(TopicNotFound):
        client.consume("nothing of that name")

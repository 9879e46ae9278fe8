"""Consuming needs a reader and no writer: which queues a topic has the reader says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from service_settings import reader_settings, writer_settings

from penstock import Client, TopicNotFound, Unavailable
from services.reader.__main__ import serve as serve_reader
from services.testing import BackgroundService
from services.writer.__main__ import serve as serve_writer


@pytest.fixture(name="reader")
def _reader(tmp_path: Path) -> Iterator[Client]:
    """A client of a store with one topic of two queues, one message in the first, and no writer."""
    with BackgroundService(serve_writer, writer_settings(tmp_path)) as writer:
        with Client(writer=writer.address) as client:
            client.create_topic("orders", queues=2)
            client.produce("orders", b"before", queue_id=0)
        writer.stop()
    with (
        BackgroundService(serve_reader, reader_settings(tmp_path)) as reader,
        Client(writer="127.0.0.1:1", reader=reader.address, timeout_s=5) as client,
    ):
        yield client


def test_a_topic_is_consumed_while_its_writer_is_away(reader: Client) -> None:
    """Every record, without a call that the writer would have to answer."""
    with pytest.raises(Unavailable):
        reader.describe_topic("orders", timeout_s=0.2)

    assert [record.body for record in reader.consume("orders", follow=False)] == [b"before"]
    with pytest.raises(TopicNotFound):
        reader.consume("none", follow=False)


def test_a_queue_without_a_message_is_consumed_once_it_gets_one(
    reader: Client, tmp_path: Path
) -> None:
    """The consumer was opened before, while no writer ran."""
    with reader.consume("orders") as consumer:
        assert next(consumer).body == b"before"
        with (
            BackgroundService(serve_writer, writer_settings(tmp_path)) as writer,
            Client(writer=writer.address) as client,
        ):
            client.produce("orders", b"after", queue_id=1)
            late = next(consumer)

    assert (late.queue_id, late.queue_offset, late.body) == (1, 0, b"after")

"""Settings that change while a service runs, through its port."""

import logging

import pytest
from service_settings import writer_settings

from penstock import Client, InvalidArgument
from services.testing import BackgroundService
from services.writer.__main__ import serve


@pytest.fixture
def client(tmp_path):
    level = logging.getLogger().level
    with (
        BackgroundService(serve, writer_settings(tmp_path / "store")) as writer,
        Client(writer=writer.address) as client,
    ):
        yield client
    logging.getLogger().setLevel(level)


def test_what_is_given_changes_and_the_rest_stays(client):
    before = client.running_settings("writer")
    now = client.update_running_settings("writer", slow_call_ms=250)
    assert (now.log_level, now.access_log) == (before.log_level, before.access_log)
    assert client.running_settings("writer").slow_call_ms == 250


@pytest.mark.parametrize(
    "change", [{"log_level": "loud"}, {"access_log": "some"}, {"slow_call_ms": -1}]
)
def test_a_value_that_is_none_is_refused_and_nothing_changes(client, change):
    before = client.running_settings("writer")
    with pytest.raises(InvalidArgument) as refused:
        client.update_running_settings("writer", **{"slow_call_ms": 7, **change})
    assert refused.value.field in change
    assert client.running_settings("writer") == before


def test_calls_are_logged_as_is_asked_for(client, capfd):
    def logged():
        text = capfd.readouterr().out
        return [line for line in text.splitlines() if "GetWriterStatus" in line]

    client.writer_status()
    assert not logged()
    client.update_running_settings("writer", access_log="all")
    client.writer_status()
    assert logged()
    client.update_running_settings("writer", access_log="failures", slow_call_ms=60_000)
    client.writer_status()
    assert not logged()


def test_a_slow_call_is_logged(client, capfd):
    client.update_running_settings("writer", slow_call_ms=1)
    capfd.readouterr()
    client.create_topics([f"t{number}" for number in range(3_000)], queues=1)
    assert "CreateTopics" in capfd.readouterr().out

"""``penstock group`` and ``penstock dlq`` against the real services."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

import pytest
from run_cli import json_lines, penstock

from cli.consumers.groups import parse_backoff
from cli.failures import CommandFailed, ExitCode
from penstock import Client, ExponentialBackoff
from services.testing import RunningStore, running_store


@pytest.fixture(scope="module", name="running")
def _running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStore]:
    with running_store(tmp_path_factory.mktemp("consumers") / "store") as store:
        yield store


@pytest.fixture(name="at")
def _at(running: RunningStore) -> list[str]:
    """The options that name the services."""
    return [f"--{name}={getattr(running, name)}" for name in ("writer", "reader", "indexer")]


@pytest.fixture(name="client")
def _client(running: RunningStore) -> Iterator[Client]:
    with running.client() as client:
        yield client


def test_a_group_is_created_described_changed_reset_and_deleted(
    at: list[str], client: Client
) -> None:
    client.create_topic("orders", queues=2)
    for n in range(4):
        client.produce("orders", b"%d" % n, queue_id=n % 2)

    made = penstock(*at, "group", "create", "billing", "--retries", 3, "--backoff", "1s 5s")
    assert "billing: concurrent, 3 retries after 1s 5s" in made.stdout
    assert penstock(*at, "group", "create", "billing").exit_code == ExitCode.USAGE
    with client.subscribe("orders", group="billing") as messages:
        assert len(list(islice(messages, 4))) == 4

    (described,) = json_lines(penstock(*at, "--json", "group", "describe", "billing"))
    assert described["backoff"] == [1000, 5000]
    assert [(q["queue_id"], q["group_offset"], q["lag"]) for q in described["queues"]] == [
        (0, 2, 0),
        (1, 2, 0),
    ]
    changed = penstock(*at, "group", "update", "billing", "--pause", "--orderly")
    assert "orderly, paused, 3 retries after 1s 5s" in changed.stdout
    growing = penstock(*at, "group", "update", "billing", "--backoff", "500ms..10m x2")
    assert growing.stdout.strip().endswith("3 retries after 500ms..10m x2")
    assert penstock(*at, "group", "create", "usual").stdout.strip().endswith("16 retries")
    penstock(*at, "group", "delete", "usual", "--yes")
    penstock(*at, "group", "update", "billing", "--backoff", "1s 5s")
    penstock(*at, "group", "update", "billing", "--resume", "--concurrent")

    preview = penstock(*at, "group", "reset", "billing", "orders", "--to", "earliest", "--preview")
    assert preview.exit_code == 0
    assert client.offsets("billing", "orders")[0].lag == 0
    done = penstock(*at, "group", "reset", "billing", "orders", "--to", "1", "-q", 1, "--yes")
    assert done.exit_code == 0
    assert [each.lag for each in client.offsets("billing", "orders")] == [0, 1]

    agreed = penstock(*at, "group", "reset", "billing", "orders", "--to", "1", "-q", 1, stdin="y\n")
    assert agreed.stdout.endswith("done: group billing goes on there\n")

    client.commit_offset("onlooker", "orders", 0, 0)
    listed = penstock(*at, "group", "list").stdout
    assert re.search(r"onlooker +commits offsets only", listed) and "3 retries" in listed

    for command in (("reset", "billing", "orders", "--to", "earliest"), ("delete", "billing")):
        asked = penstock(*at, "--json", "group", *command)
        assert (asked.exit_code, asked.stdout) == (ExitCode.USAGE, "") and "--yes" in asked.stderr
    assert [each.lag for each in client.offsets("billing", "orders")] == [0, 1]
    assert penstock(*at, "group", "delete", "billing", "--yes").exit_code == 0
    assert penstock(*at, "group", "describe", "billing").exit_code == ExitCode.NOT_FOUND
    assert penstock(*at, "group", "update", "billing").exit_code == ExitCode.USAGE


def test_dead_letters_are_listed_shown_and_sent_again_once(at: list[str], client: Client) -> None:
    client.create_topic("parcels", queues=1)
    client.produce("parcels", b"broken", keys=["p-1"], tag="t", properties={"colour": "red"})
    received = client.receive("parcels", group="shipping", wait_ms=25_000)
    assert client.dead_letter(received) == []

    (row,) = [
        row for row in json_lines(penstock(*at, "--json", "dlq", "list"))
        if row["group"] == "shipping"
    ]  # fmt: skip
    assert (row["messages"], row["to_resend"]) == (1, 1)
    assert json_lines(penstock(*at, "--json", "dlq", "list", "shipping")) == [row]
    (shown,) = json_lines(penstock(*at, "--json", "dlq", "show", "shipping"))
    assert shown["origin_topic"] == "parcels"

    assert "1 message sent again" in penstock(*at, "dlq", "resend", "shipping").stdout
    again = client.receive("parcels", group="shipping", wait_ms=25_000)
    (record,) = again.records
    assert (record.body, record.keys, record.tag) == (b"broken", ("p-1",), "t")
    assert record.properties["colour"] == "red"
    assert list(again.attempts) == [1]

    assert "0 messages sent again" in penstock(*at, "dlq", "resend", "shipping").stdout
    assert "1 message sent" in penstock(*at, "dlq", "resend", "shipping", "--again").stdout
    for command in ("show", "resend", "list"):
        nothing = penstock(*at, "dlq", command, "nobody")
        assert nothing.exit_code == ExitCode.NOT_FOUND
        assert nothing.stderr == "penstock: group nobody has no dead letters\n"


def test_a_resend_goes_on_after_the_last_that_was_stored(at: list[str], client: Client) -> None:
    """Also right after one that failed: what was not stored is given back at once."""
    client.create_topic("gone", queues=1)
    client.create_topic("kept", queues=1)
    client.produce("gone", b"to a topic that is not there")
    assert client.dead_letter(client.receive("gone", group="movers", wait_ms=25_000)) == []
    client.delete_topic("gone")

    failed = penstock(*at, "dlq", "resend", "movers")
    assert failed.exit_code == ExitCode.NOT_FOUND
    again = penstock(*at, "dlq", "resend", "movers", "--topic", "kept")
    assert "1 message sent again" in again.stdout


def test_status_shows_what_groups_have_in_hand(at: list[str], client: Client) -> None:
    client.create_topic("letters", queues=1)
    for body in (b"a", b"b", b"c"):
        client.produce("letters", body)
    received = client.receive("letters", group="post", wait_ms=25_000)
    first, second = received.handle(0), received.handle(1)
    assert client.dead_letter(received, first) == []
    assert client.change_leases(received, 0, second) == []

    (status,) = json_lines(penstock(*at, "--json", "status"))
    (post,) = [each for each in status["groups"] if each["group"] == "post"]
    assert post == {
        "group": "post", "leased": 1, "waiting": 1, "dead_letters": 1, "to_resend": 1,
    }  # fmt: skip
    client.create_topic("read", queues=1)
    client.produce("read", b"x")
    client.acknowledge(client.receive("read", group="done", wait_ms=25_000))
    (later,) = json_lines(penstock(*at, "--json", "status"))
    assert "done" not in [each["group"] for each in later["groups"]]
    assert status["leases"]["journal_bytes"] > 0
    assert status["leases"]["problem"] == ""
    shown = penstock(*at, "status").stdout
    assert re.search(r"leases +journal bytes +[\d,]+", shown)
    assert re.search(r"post +1 +1 +1 +1", shown)


def test_backoffs_as_people_write_them() -> None:
    assert parse_backoff("500ms 10s 5m 2h") == (500, 10_000, 300_000, 7_200_000)
    growing = ExponentialBackoff(initial_ms=1_000, max_ms=600_000, multiplier=2)
    assert parse_backoff("1s..10m x2") == growing
    assert [growing.delay_ms(n) for n in (1, 2, 3, 20)] == [1_000, 2_000, 4_000, 600_000]
    for wrong in ("", "10", "1x", "1s..", "-1s"):
        with pytest.raises(CommandFailed):
            parse_backoff(wrong)

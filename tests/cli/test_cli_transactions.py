"""``penstock transactions`` and ``penstock staged``: what nobody has ended, and what is committed."""

from __future__ import annotations

import pytest
from run_cli import Penstock, json_lines

from cli.failures import ExitCode
from penstock import Client, PendingTransactions, RecordBatch
from services.local_services import LocalServices


def test_a_list_of_transactions_says_that_there_are_more(
    run: Penstock, topic: str, services: LocalServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(writer=services.addresses["writer"]) as client:
        client.transaction(topic, transaction_id=topic).send(b"one")
        listed = run("transactions", "list")
        assert listed.exit_code == ExitCode.DONE
        assert topic in listed.stdout and not listed.stderr

        answered = client.pending_transactions()
        count = len(answered)
        assert answered.pending_count == count
        more = PendingTransactions(answered, count + 1)
        monkeypatch.setattr(Client, "pending_transactions", lambda _: more)
        for flags in ([], ["--json"]):
            listed = run(*flags, "transactions", "list")
            assert f"{count} of {count + 1} pending transactions are listed" in listed.stderr
            assert topic in listed.stdout
        client.end_transactions([topic], commit=False)


def test_a_commit_into_a_topic_that_was_deleted_is_not_found(
    run: Penstock, topic: str, services: LocalServices
) -> None:
    with Client(writer=services.addresses["writer"]) as client:
        client.transaction(topic, transaction_id=topic).send(b"one")
        client.delete_topic(topic)
    refused = run("transactions", "commit", topic)
    assert refused.exit_code == ExitCode.NOT_FOUND and f"{topic}: topic gone" in refused.stderr
    assert run("transactions", "rollback", topic).exit_code == ExitCode.DONE


def test_an_end_after_another_one_says_which_it_was(
    run: Penstock, topic: str, services: LocalServices
) -> None:
    with Client(writer=services.addresses["writer"]) as client:
        client.transaction(topic, transaction_id=topic).send(b"one")
    assert run("transactions", "rollback", topic).exit_code == ExitCode.DONE
    late = run("transactions", "commit", topic)
    assert late.exit_code == ExitCode.NOT_FOUND
    assert f"1 of 1 are not committed ({topic}: rolled back)" in late.stderr


def test_committed_and_staged_versions_are_listed(
    run: Penstock, services: LocalServices, topic: str
) -> None:
    """The last commit of an application and each open version are a line."""
    with Client(**services.addresses) as client:
        for version in (3, 4):
            staged_commit = client.staged_commit(f"app of {topic}", version)
            batch = RecordBatch(topic)
            for number in range(2):
                batch.add(b"x", unique_key=staged_commit.unique_key("a", number))
            staged_commit.stage("a", [batch.records()])
            if version == 3:
                assert staged_commit.commit(["a"]).record_count == 2

    lines = [
        line
        for line in json_lines(run("staged", "--json"))
        if line["application"] == f"app of {topic}"
    ]

    assert [(line["version"], line["state"], line["records"]) for line in lines] == [
        (3, "committed", 2),
        (4, "staged", 2),
    ]
    assert "staged" in run("staged").stdout

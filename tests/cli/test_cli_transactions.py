"""``penstock transactions``: what nobody has ended."""

from __future__ import annotations

import pytest
from run_cli import Penstock

from cli.failures import ExitCode
from penstock import Client, PendingTransactions
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

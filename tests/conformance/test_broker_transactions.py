"""Transactions that are pending when a directory changes hands: a broker goes on with ours, we with a broker's."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from engine_store import records_on_disk, small_config
from hand_store import HALF
from oracle import SMALL_FILES, oracle_generate, oracle_open

from storage.format.properties import encode_properties
from storage.format.record import encode_for_batch
from storage.writer import StoreWriter

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]
CHECKS_AT_ONCE = {
    "transactionTimeOut": 100,
    "transactionCheckInterval": 300,
    "transactionCheckMax": 100,
}


def message(body: str, queue_id: int = 0) -> bytes:
    block = encode_properties({"UNIQ_KEY": body})
    now_ms = time.time_ns() // 1_000_000  # a broker gives up what is older than its retention
    return encode_for_batch(
        "orders", queue_id, body.encode(), block, 0, 0, now_ms, "127.0.0.1:1", False
    )


def bodies(directory: Path, topic: str) -> Counter[bytes]:
    return Counter(each.body for each in records_on_disk(directory) if each.topic == topic)


@pytest.mark.parametrize("handed_over", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_broker_checks_what_we_left_pending_and_nothing_else(
    tmp_path: Path, handed_over: bool
) -> None:
    """Also where it finds no progress: what a reader that still runs keeps us from writing."""
    directory, kept = tmp_path / "ours", tmp_path / "theirs"
    with StoreWriter.open(directory, small_config()) as writer:
        writer.create_topic("orders", 2)
        for name in "ABCDEF":
            writer.transactions.prepare(
                message(f"{name}1") + message(f"{name}2", queue_id=1),
                transaction_id=name,
            )
        writer.transactions.end(["A", "C"], commit=True)
        writer.transactions.end(["E"], commit=False)
    if not handed_over:
        for path in (directory / "config").glob("consumerOffset.json*"):
            path.unlink()

    opened = oracle_open(
        directory, settings=SMALL_FILES, broker=CHECKS_AT_ONCE, keep=kept, run_ms=4_000
    )

    assert opened.good, (opened.report, opened.stderr[-500:])
    checked = {
        each.properties["UNIQ_KEY"]
        for each in records_on_disk(kept)
        if each.topic == HALF and "TRANSACTION_CHECK_TIMES" in each.properties
    }
    assert checked == {f"{name}{n}" for name in "BDF" for n in (1, 2)}
    with StoreWriter.open(kept, small_config()) as writer:
        assert [each.transaction_id for each in writer.transactions.pending()] == ["B", "D", "F"]
        assert {each.message_count for each in writer.transactions.pending()} == {2}
        writer.transactions.end(["B"], commit=True)
    expected = [f"{name}{n}".encode() for name in "ABC" for n in (1, 2)]
    assert bodies(kept, "orders") == Counter(expected)


@pytest.mark.parametrize("end", ["kill", pytest.param("clean", marks=pytest.mark.slow)])
def test_what_a_broker_left_pending_is_ended_by_us(tmp_path: Path, end: str) -> None:
    directory = tmp_path / "theirs"
    transactions = {"op": "transaction", "topic": "tx", "body": [20, 30]}
    oracle_generate(
        {
            "name": "pending",
            "seed": 5,
            "store": {**SMALL_FILES, "mappedFileSizeCommitLog": 131_072},
            "broker": {"transactionTimeOut": 3_000, "transactionCheckInterval": 60_000},
            "steps": [
                {
                    "op": "topic",
                    "topic": "tx",
                    "queues": 1,
                    "attributes": {"message.type": "TRANSACTION"},
                },
                {**transactions, "commit": 3, "rollback": 2, "pending": 4},
            ],
            "end": end,
        },
        directory,
    )
    halves = [each for each in records_on_disk(directory) if each.topic == HALF]
    committed = Counter(
        each.properties["UNIQ_KEY"] for each in records_on_disk(directory) if each.topic == "tx"
    )
    assert (len(halves), len(committed)) == (9, 3)
    with StoreWriter.open(directory, small_config(commit_log_file_size=131_072)) as writer:
        pending = [each.transaction_id for each in writer.transactions.pending()]
        expected = [each.properties["UNIQ_KEY"] for each in halves[-4:]]
        if end == "clean":
            assert pending == expected
        # A killed broker has lost what it had not written of removals; commits show by their copies.
        assert set(expected) <= set(pending)
        assert not set(pending) & committed.keys()
        ended, _ = writer.transactions.end(expected, commit=True)
        assert {each.state.value for each in ended} == {"committed"}
    copies = Counter(
        each.properties["UNIQ_KEY"] for each in records_on_disk(directory) if each.topic == "tx"
    )
    assert copies == committed + Counter(expected)

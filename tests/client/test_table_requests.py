"""A table that is stored in part: which rows are, and how the same call goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from faulty_penstock import FaultyPenstock, rich_status

from penstock import Client, FailedPrecondition, InvalidArgument, TableNotStored, UnknownOutcome

pa = pytest.importorskip("pyarrow")

ROWS = 40


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.client.tables.PART_BYTES", 1_000)


def table(last: bytes | None = b"x" * 90) -> pa.Table:
    return pa.table({"body": [b"%d" % n * 45 for n in range(ROWS - 1)] + [last]})


def stored(faulty: FaultyPenstock) -> list[bytes]:
    return sorted(body for queue_id in range(4) for body in faulty.bodies("orders", queue_id))


def bodies() -> list[bytes]:
    return sorted(table()["body"].to_pylist())


def test_a_request_that_is_refused_leaves_those_before_it_stored(
    faulty: FaultyPenstock, client: Client
) -> None:
    full = rich_status(grpc.StatusCode.FAILED_PRECONDITION, "read-only")
    faulty.faults["ProduceBatch"].extend([None, None, full])  # type: ignore[list-item]
    with pytest.raises(TableNotStored, match="read-only") as failed:
        client.produce_arrow("orders", table())
    error = failed.value
    assert 0 < error.stored_rows < ROWS
    assert len(stored(faulty)) == error.stored_rows
    assert client.produce_arrow("orders", table(), token=error.token).row_count == ROWS
    assert stored(faulty) == bodies()


def test_a_request_without_an_answer_is_not_stored_twice(faulty: FaultyPenstock) -> None:
    with Client(**faulty.addresses, timeout_s=1) as client:
        client.wait_ready(30)
        faulty.faults["ProduceBatch"].extend([None, None])  # type: ignore[list-item]
        original = faulty.lose_answer
        calls: list[str] = []

        def lose(method: str, context: Any) -> None:
            calls.append(method)
            if len(calls) > 2:
                faulty.answers_lost["ProduceBatch"] = 1_000
            original(method, context)

        faulty.lose_answer = lose  # type: ignore[method-assign]
        with pytest.raises(TableNotStored) as failed:
            client.produce_arrow("orders", table())
    assert isinstance(failed.value.__cause__, UnknownOutcome)
    faulty.lose_answer = original  # type: ignore[method-assign]
    faulty.answers_lost["ProduceBatch"] = 0
    assert (
        len(stored(faulty)) > failed.value.stored_rows
    )  # the request was stored, and nobody knows
    with Client(**faulty.addresses) as client:
        client.produce_arrow("orders", table(), token=failed.value.token)
    assert stored(faulty) == bodies()


def test_a_row_that_can_be_no_message_says_how_far_it_went(
    faulty: FaultyPenstock, client: Client
) -> None:
    with (
        Client(**faulty.addresses, request_bytes_max=1 << 20) as small,
        pytest.raises(InvalidArgument, match="row 0 makes a record of"),
    ):
        small.produce_arrow("orders", pa.table({"body": [b"x" * (2 << 20)]}))
    rows = pa.table({"body": [b"x"] * 20, "tag": ["t"] * 19 + ["a|b"]})
    with pytest.raises(TableNotStored, match=r"row 19 contains '\|'") as failed:
        client.produce_arrow("orders", rows)
    assert isinstance(failed.value.__cause__, InvalidArgument)
    assert len(stored(faulty)) == failed.value.stored_rows


def test_a_token_is_of_the_rows_that_it_came_with(faulty: FaultyPenstock, client: Client) -> None:
    read_only = rich_status(grpc.StatusCode.FAILED_PRECONDITION, "read-only")
    faulty.faults["ProduceBatch"].extend([None, read_only])  # type: ignore[list-item]
    with pytest.raises(TableNotStored) as failed:
        client.produce_arrow("orders", table())
    count, token = len(stored(faulty)), failed.value.token
    for other in (table().slice(0, count - 1), table().to_reader()):
        with pytest.raises(InvalidArgument, match=r"another table|a reader"):
            client.produce_arrow("orders", other, token=token)
    assert len(stored(faulty)) == count
    again = pa.Table.from_batches(table().to_batches(max_chunksize=3))  # cut in other places
    client.produce_arrow("orders", again, token=token)
    assert stored(faulty) == bodies()


def test_what_a_table_s_own_reading_raises_says_how_far_it_went(
    faulty: FaultyPenstock, client: Client
) -> None:
    def batches() -> Iterator[Any]:
        yield from table().to_batches(max_chunksize=20)
        raise OSError("the file has gone")

    reader = pa.RecordBatchReader.from_batches(table().schema, batches())
    with pytest.raises(TableNotStored, match="has gone") as failed:
        client.produce_arrow("orders", reader)
    assert failed.value.stored_rows == len(stored(faulty)) == ROWS
    fine, wrong = (
        {"body": [bytes(100_000)] * 100, "queue": [queue] * 100} for queue in (0, 1 << 40)
    )
    numbers = pa.concat_tables([pa.table(fine), pa.table(wrong)])
    with pytest.raises(TableNotStored, match="queue") as failed:
        client.produce_arrow("orders", numbers, queue_id="queue")
    assert failed.value.stored_rows > 0
    assert failed.value.token


@pytest.mark.parametrize("keys", [["a", None], ["New York"]])
def test_a_list_with_a_key_that_is_none_is_refused(client: Client, keys: list[str | None]) -> None:
    with pytest.raises(InvalidArgument, match="row 1 has a key"):
        client.produce_arrow("orders", pa.table({"body": [b"x", b"y"], "keys": [["fine"], keys]}))


def test_the_first_request_s_refusal_is_raised_as_it_is(
    faulty: FaultyPenstock, client: Client
) -> None:
    faulty.fail_next("ProduceBatch", rich_status(grpc.StatusCode.FAILED_PRECONDITION, "read-only"))
    with pytest.raises(FailedPrecondition, match="read-only"):
        client.produce_arrow("orders", table())
    assert not stored(faulty)


def test_without_pyarrow_an_error_names_the_extra() -> None:
    code = """
import sys
sys.modules["pyarrow"] = None
from penstock import Client, MissingArrow
try:
    Client().pull_arrow("orders", 0)
except MissingArrow as error:
    print(error)
"""
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert "install penstock with its extra arrow" in told.stdout

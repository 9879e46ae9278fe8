"""A table that is stored in part: which rows are, and how the same call goes on."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import grpc
import pytest
from fake_penstock import FakePenstock, rich_status

from penstock import Client, InvalidArgument, TableNotStored, Unavailable, UnknownOutcome

pa = pytest.importorskip("pyarrow")

ROWS = 40


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock._sync.tables.PART_BYTES", 1_000)


def table(last: bytes | None = b"x" * 90) -> pa.Table:
    return pa.table({"body": [b"%d" % n * 45 for n in range(ROWS - 1)] + [last]})


def stored(fake: FakePenstock) -> list[bytes]:
    return sorted(body for queue_id in range(4) for body in fake.store.bodies("orders", queue_id))


def bodies() -> list[bytes]:
    return sorted(table()["body"].to_pylist())


def test_a_request_that_is_refused_leaves_those_before_it_stored(
    fake: FakePenstock, client: Client
) -> None:
    full = rich_status(grpc.StatusCode.FAILED_PRECONDITION, "read-only")
    fake.store.faults["ProduceBatch"].extend([None, None, full])  # type: ignore[list-item]
    with pytest.raises(TableNotStored, match="read-only") as failed:
        client.produce_arrow("orders", table())
    error = failed.value
    assert 0 < error.stored_rows < ROWS
    assert len(stored(fake)) == error.stored_rows
    assert client.produce_arrow("orders", table(), token=error.token).row_count == ROWS
    assert stored(fake) == bodies()


def test_a_request_without_an_answer_is_not_stored_twice(fake: FakePenstock) -> None:
    with Client(**fake.addresses, timeout_s=1) as client:
        client.wait_ready(30)
        fake.store.faults["ProduceBatch"].extend([None, None])  # type: ignore[list-item]
        original = fake.store.lose_answer
        calls: list[str] = []

        def lose(method: str, context: Any) -> None:
            calls.append(method)
            if len(calls) > 2:
                fake.store.answers_lost["ProduceBatch"] = 1_000
            original(method, context)

        fake.store.lose_answer = lose  # type: ignore[method-assign]
        with pytest.raises(TableNotStored) as failed:
            client.produce_arrow("orders", table())
    assert isinstance(failed.value.__cause__, UnknownOutcome)
    fake.store.lose_answer = original  # type: ignore[method-assign]
    fake.store.answers_lost["ProduceBatch"] = 0
    assert len(stored(fake)) > failed.value.stored_rows  # the request was stored, and nobody knows
    with Client(**fake.addresses) as client:
        client.produce_arrow("orders", table(), token=failed.value.token)
    assert stored(fake) == bodies()


def test_a_row_that_can_be_no_message_says_how_far_it_went(
    fake: FakePenstock, client: Client
) -> None:
    with pytest.raises(InvalidArgument, match="row 0"):
        client.produce_arrow("orders", pa.table({"body": [b"x" * 2_000]}))
    rows = pa.table({"body": [b"x"] * 20, "tag": ["t"] * 19 + ["a|b"]})
    with pytest.raises(TableNotStored, match=r"row 19 contains '\|'") as failed:
        client.produce_arrow("orders", rows)
    assert isinstance(failed.value.__cause__, InvalidArgument)
    assert len(stored(fake)) == failed.value.stored_rows


def test_nothing_was_sent_where_the_first_request_is_refused(
    fake: FakePenstock, client: Client
) -> None:
    fake.store.fail_next("ProduceBatch", rich_status(grpc.StatusCode.UNAVAILABLE, "gone"), 1_000)
    with (
        Client(**fake.addresses, timeout_s=0.5) as hasty,
        pytest.raises((Unavailable, UnknownOutcome, TableNotStored)) as failed,
    ):
        hasty.produce_arrow("orders", table())
    assert getattr(failed.value, "stored_rows", 0) == 0
    assert not stored(fake)


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
    assert "pip install penstock[arrow]" in told.stdout

"""Spark's tasks, without Spark, on bodies that cannot be unpacked, and on some that become very long."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_reads import read

from pipeline.errors import DamagedLog
from storage.arrow.record_columns import UNPACKED_BYTES_MAX
from storage.format.compression import compress
from storage.message import Message
from storage.store import MessageStore

COLUMNS = ("queueOffset", "body", "_corrupt")
GOOD, GOOD_FLAG = compress(b"good", "zlib")
LONG, LONG_FLAG = compress(bytes(30 << 20), "zstd")


def rows_of(store: Path, **given: str) -> list[tuple[int, bytes, bool]]:
    rows = read(*COLUMNS, store=str(store), **given).to_pylist()
    return [(row["queueOffset"], row["body"], bool(row["_corrupt"])) for row in rows]


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s") as opened:
        opened.create_topic("t", 1)
        for body, sys_flag in ((GOOD, GOOD_FLAG), (b"no zlib", 1), (b"plain", 0)):
            opened.put(Message(topic="t", body=body, sys_flag=sys_flag))
    return tmp_path / "s"


@pytest.mark.parametrize("chosen", [{}, {"subscribe": "t"}])
def test_an_unreadable_body_stays_as_it_is_stored_unless_the_mode_says_otherwise(
    store: Path, chosen: dict[str, str]
) -> None:
    whole = [(0, b"good", False), (2, b"plain", False)]

    assert rows_of(store, **chosen) == [whole[0], (1, b"no zlib", True), whole[1]]
    assert rows_of(store, mode="DROPMALFORMED", **chosen) == whole
    with pytest.raises(DamagedLog, match="the body cannot be unpacked: it is no zlib stream"):
        rows_of(store, mode="FAILFAST", **chosen)
    assert rows_of(store, decompress="false", **chosen)[:2] == [
        (0, GOOD, False),
        (1, b"no zlib", False),
    ]


def test_no_batch_holds_much_more_than_it_may_however_long_bodies_become(tmp_path: Path) -> None:
    """Some kilobytes of records would be hundreds of megabytes of bodies."""
    with MessageStore.open(tmp_path / "s") as opened:
        opened.create_topic("t", 1)
        for _ in range(9):
            opened.put(Message(topic="t", body=LONG, sys_flag=LONG_FLAG))

    batches = read(*COLUMNS, store=str(tmp_path / "s")).to_batches()
    sizes = [batch.nbytes for batch in batches]

    assert sum(sizes) > 9 * (30 << 20)
    assert max(sizes) < UNPACKED_BYTES_MAX + (1 << 20)

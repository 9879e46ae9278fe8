"""Spark's plan and tasks, without Spark, on a store whose units are damaged while its log is whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import spark_reads
from unit_damage import (
    Whole,
    expected,
    flip,
    make_whole,
)

from storage.format.consume_entry import UNIT_SIZE


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return make_whole(tmp_path_factory.mktemp("units") / "whole")


def read(store: Path, **given: str) -> dict[int, bytes]:
    """Read what is chosen of the queue; asserts that nothing is damaged or there twice."""
    columns = ("queueOffset", "body", "_corrupt")
    rows = spark_reads.read(*columns, store=str(store), subscribe="t", **given).to_pylist()
    assert not [row for row in rows if row["_corrupt"]]
    found = {row["queueOffset"]: row["body"] for row in rows}
    assert len(found) == len(rows)
    return found


def some(store: Path) -> dict[int, bytes]:
    """Read a range that is so small that its units are read."""
    return read(store, startingOffsets='{"t": {"1": 480}}', endingOffsets='{"t": {"1": 520}}')


@pytest.mark.parametrize("queue_offset", [0, 300, 480, 500, 519, 998])
def test_any_flipped_bit_of_a_unit_costs_nothing(
    whole: Whole, tmp_path: Path, queue_offset: int
) -> None:
    store = tmp_path / "s"
    shutil.copytree(whole.directory, store)
    for bit in range(queue_offset % 11, 8 * UNIT_SIZE, 11):
        flip(store, queue_offset, bit)
        assert read(store) == expected(whole), bit
        assert some(store) == {n: whole.bodies[n] for n in range(480, 520)}, bit
        flip(store, queue_offset, bit)

"""The kernels over all queues do what their plain twins do, on whatever bytes they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_examples import as_array, logs

from storage.format.consume_entry import UNIT_SIZE
from storage.kernels import batch, columns, queue, scan
from storage.kernels.queues import found as found_queues
from storage.kernels.unit_order import visible_end

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
BASE = 4096
few = settings(max_examples=80, deadline=None)
UNITS = st.lists(
    st.one_of(
        st.binary(min_size=UNIT_SIZE, max_size=UNIT_SIZE),
        st.just(bytes(UNIT_SIZE)),
        st.integers(0, 9).map(lambda n: (100 * n).to_bytes(8) + (100).to_bytes(4) + bytes(8)),
    ),
    max_size=8,
).map(b"".join)


def twins(kernel: Any, *arguments: Any) -> list[list[Any]]:
    """What the kernel and its twin return, and the arrays as each left them."""
    outcomes = []
    for function in (kernel, kernel.py_func):
        own = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        result = int(function(*own))
        outcomes.append([result, *(a.tolist() for a in own if isinstance(a, np.ndarray))])
    return outcomes


@given(st.lists(UNITS, max_size=5), st.integers(0, 1_000), st.integers(-1, 1), st.integers(0, 3))
@few
def test_find_ends(queues: list[bytes], limit: int, off_by: int, room: int) -> None:
    units = as_array(b"".join(queues))
    starts = np.cumsum([0, *map(len, queues)], dtype=np.int64)
    count = len(queues)
    ends = np.full(max(count + room - 1, 0), -7, np.int64)
    moved = starts.copy()
    moved[-1] += off_by

    compiled, plain = twins(
        found_queues.find_ends, units, moved, limit, ends, np.full(count, -7, np.int64)
    )

    assert compiled == plain
    if off_by == 0 and room:
        last_ends = np.empty(count, np.int64)
        assert found_queues.find_ends(units, starts, limit, ends, last_ends) == count
        for number, own in enumerate(queues):
            found = visible_end(as_array(own), 0, len(own) // UNIT_SIZE, limit) if limit else 0
            assert ends[number] == found
            assert last_ends[number] == -(-len(own.rstrip(b"\0")) // UNIT_SIZE)


@given(
    logs(BASE, 6),
    st.lists(st.sampled_from((b"a", b"flights", b"Orders-1", b"other")), unique=True).map(sorted),
    st.lists(st.lists(st.integers(0, 4), unique=True).map(sorted), min_size=4, max_size=4),
    st.data(),
)
@few
def test_meet_units(
    data: bytes, names: list[bytes], ids: list[list[int]], draw: st.DataObject
) -> None:
    array = as_array(data)
    rows = np.zeros((8, columns.COLUMN_COUNT), np.int64)
    count, _, _ = scan.scan_records(array, 0, len(data), BASE, 0, rows)
    group_of, first_row, sizes = (np.zeros(8, np.int64) for _ in range(3))
    units, starts, offsets = np.zeros(160, np.uint8), np.zeros(9, np.int64), np.zeros(8, np.int64)
    group_count, total = queue.units_of_few(
        array, rows, count, BASE, group_of, first_row, sizes, units, starts, offsets
    )
    ids = ids[: len(names)]
    queue_ids = np.array([each for some in ids for each in some], np.int64)
    found = np.zeros((len(queue_ids), found_queues.FOUND_COLUMN_COUNT), np.int64)
    held = units[: total * UNIT_SIZE].copy()
    for line in found:  # most queues hold what some group has
        group = draw.draw(st.integers(0, max(group_count - 1, 0)))
        line[:] = (
            offsets[starts[group]] if total and starts[group] < 8 else 0,
            draw.draw(st.sampled_from((int(starts[group]) * UNIT_SIZE, 0, 20, -1))),
            draw.draw(st.sampled_from((len(held), len(held) + 20, 20))),
            found_queues.NOT_MET,
            found_queues.NOT_MET,
        )
    left = np.full(draw.draw(st.sampled_from((8, 8, 0))), -7, np.int64)

    compiled, plain = twins(
        found_queues.meet_units, array, rows, first_row, int(group_count), starts, units, offsets,
        as_array(b"".join(names)), np.cumsum([len(name) for name in names], dtype=np.int64),
        np.cumsum([len(some) for some in ids], dtype=np.int64), queue_ids, held, found, left,
    )  # fmt: skip

    assert compiled == plain


@pytest.mark.parametrize("topic", [b"a", b"ab", b"b", b"zz"])
def test_a_queue_is_met_by_topic_and_id(topic: bytes) -> None:
    """Of 2 x 2 queues, two with ids that leave gaps."""
    from storage.format.record import encode_record

    data = encode_record(
        topic=topic.decode(), queue_id=5, body=b"x", properties_block=b"", flag=0, sys_flag=0,
        queue_offset=3, commit_offset=BASE, born_timestamp_ms=0, born_host="10.0.0.1:5",
        store_timestamp_ms=0, store_host="10.0.0.1:5", append_property_crc=False,
    )  # fmt: skip
    array, rows = as_array(data), np.zeros((1, columns.COLUMN_COUNT), np.int64)
    assert scan.scan_records(array, 0, len(data), BASE, 0, rows)[0] == 1
    group_of, first_row, sizes, offsets = (np.zeros(1, np.int64) for _ in range(4))
    starts, units = np.zeros(2, np.int64), np.zeros(UNIT_SIZE, np.uint8)
    assert batch.group_by_queue(array, rows, 1, group_of, first_row, sizes) == 1
    queue.build_units(rows, 1, group_of, 1, BASE, units, starts)
    queue.unit_queue_offsets(rows, 1, group_of, 1, starts, offsets)
    found = np.array([[3, 0, UNIT_SIZE, -1, -1]] * 4, np.int64)
    left = np.zeros(1, np.int64)

    count = found_queues.meet_units(
        array, rows, first_row, 1, starts, units, offsets, as_array(b"aab"),
        np.array([1, 3], np.int64), np.array([2, 4], np.int64), np.array([0, 5, 5, 9], np.int64),
        units, found, left,
    )  # fmt: skip

    met = {b"a": 1, b"ab": 2}.get(topic)
    assert count == (met is None)
    for line, values in enumerate(found.tolist()):
        assert values == ([4, 20, 20, BASE, BASE] if line == met else [3, 0, 20, -1, -1])

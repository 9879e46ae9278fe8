"""The reader's kernels do what their plain twins do, on any bytes, and stay inside their arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from record_examples import stored_records

from storage.format.consume_entry import LAYOUT as UNIT
from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.kernels import lookup, pull, unit_order, unit_record
from storage.kernels.primitives.jit import Kernel

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
SMALL = st.integers(-3, 2000)
COMMIT_OFFSETS = st.one_of(SMALL, INT64)
RECORD_SIZES = st.one_of(st.integers(-2, 300), st.just(PREFILL_SIZE), st.just(-(1 << 31)))
UNITS = st.lists(st.tuples(COMMIT_OFFSETS, RECORD_SIZES, INT64), max_size=30).map(
    lambda units: b"".join(UNIT.pack(*unit) for unit in units)
)


def as_bytes(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def both(kernel: Kernel, *args: object) -> tuple[object, object]:  # type: ignore[type-arg]
    with np.errstate(over="ignore"):
        return kernel(*args), kernel.py_func(*args)


@given(UNITS, SMALL, SMALL, COMMIT_OFFSETS)
@settings(deadline=None)
def test_ends_and_order_of_units(data: bytes, begin: int, end: int, offset: int) -> None:
    visible_end = unit_order.visible_end
    compiled, plain = both(visible_end, as_bytes(data), begin % 40, end % 40, offset)
    assert compiled == plain
    for kernel in (unit_order.first_in_order, unit_order.last_in_order):
        compiled, plain = both(kernel, as_bytes(data), begin % 40, end % 40)
        assert compiled == plain


@given(
    UNITS,
    st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=4),
    st.booleans(),
    st.lists(st.integers(0, 2000), max_size=6, unique=True),
    st.integers(0, 2000),
    st.lists(st.integers(0, 500), min_size=5, max_size=5),
    st.integers(0, 12),
)
@settings(deadline=None)
def test_select_units(
    data: bytes,
    codes: list[int],
    filtered: bool,
    borders: list[int],
    stated_end: int,
    limits: list[int],
    room: int,
) -> None:
    borders = sorted(borders)[: len(borders) // 2 * 2]
    arguments = (
        as_bytes(data), 0, len(data) // UNIT_SIZE, 100, np.array(sorted(codes), np.int64),
        filtered, np.array(borders[::2], np.int64), np.array(borders[1::2], np.int64),
        stated_end, *limits,
    )  # fmt: skip
    tables = [np.zeros((room, pull.CHOSEN_COLUMNS), np.int64) for _ in range(2)]
    with np.errstate(over="ignore"):
        compiled = pull.select_units(*arguments, tables[0])
        plain = pull.select_units.py_func(*arguments, tables[1])
    assert compiled == plain
    assert np.array_equal(*tables)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """Records one after the other, some with a byte changed, and where they begin."""
    data, starts = b"", []
    for _ in range(draw(st.integers(1, 5))):
        starts.append(len(data))
        data += draw(stored_records(len(data)))
    changed = bytearray(data)
    for position in draw(st.lists(st.integers(0, len(data) - 1), max_size=3)):
        changed[position] ^= draw(st.integers(1, 255))
    return bytes(changed), starts


@given(logs(), st.data())
@settings(deadline=None, max_examples=60)
def test_verify_chosen(log: tuple[bytes, list[int]], draw: st.DataObject) -> None:
    data, starts = log
    rows = []
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(data)
        size = draw.draw(st.sampled_from((end - start, end - start + 1, 50, -1, 1 << 40)))
        offset = draw.draw(st.sampled_from((start, start, start + 1, len(data) + 5)))
        state = draw.draw(st.sampled_from((unit_record.CHOSEN, pull.PASSED, pull.SUSPECT)))
        rows.append((number, offset, size, state))
    tags = draw.draw(st.sampled_from((b"", b"a", b"x|y")))
    ends = np.array([len(tags)] if tags else [], np.int64)
    queue_id = draw.draw(st.sampled_from((-1, 0, 1)))
    checks_units = draw.draw(st.booleans())
    results = []
    for function in (pull.verify_chosen, pull.verify_chosen.py_func):
        chosen = np.array(rows, np.int64).reshape(-1, pull.CHOSEN_COLUMNS)
        ranges = np.zeros((draw.draw(st.just(3)), 2), np.int64)
        answer = function(
            as_bytes(data), 0, len(data), chosen, 0, len(chosen), as_bytes(b"flights"), queue_id,
            as_bytes(tags), ends, checks_units, ranges,
        )  # fmt: skip
        results.append((tuple(map(int, answer)), chosen.tolist(), ranges.tolist()))
    assert results[0] == results[1]


@given(logs(), st.lists(st.integers(-2, 900), max_size=6), st.booleans())
@settings(deadline=None, max_examples=60)
def test_match_keys_and_check_one(
    log: tuple[bytes, list[int]], others: list[int], unique: bool
) -> None:
    data, starts = log
    offsets = np.array(starts + others, np.int64)
    found = []
    for function in (lookup.match_keys, lookup.match_keys.py_func):
        states, sizes = np.zeros((2, len(offsets)), np.int64)
        count = function(
            as_bytes(data), 0, len(data), offsets, as_bytes(b"a"), as_bytes(b"b"), unique, 0,
            1 << 41, states, sizes,
        )  # fmt: skip
        found.append((int(count), states.tolist(), sizes.tolist()))
    assert found[0] == found[1]
    for offset in offsets.tolist():
        compiled, plain = both(lookup.check_one, as_bytes(data), offset, len(data), offset)
        assert compiled == plain


@given(st.binary(max_size=200), st.lists(st.tuples(SMALL, SMALL), max_size=5), st.integers(0, 90))
@settings(deadline=None)
def test_gather_ranges(data: bytes, ranges: list[tuple[int, int]], room: int) -> None:
    table = np.array(ranges, np.int64).reshape(-1, 2)
    copies = [np.zeros(room, np.uint8) for _ in range(2)]
    ends = [
        function(copy, 0, as_bytes(data), table, len(table))
        for function, copy in zip(
            (pull.gather_ranges, pull.gather_ranges.py_func), copies, strict=True
        )
    ]
    assert ends[0] == ends[1]
    assert np.array_equal(*copies)
    if ends[0] >= 0:
        assert copies[0][: ends[0]].tobytes() == b"".join(data[a:b] for a, b in ranges)


@given(logs(), st.data())
@settings(deadline=None, max_examples=60)
def test_place_state(log: tuple[bytes, list[int]], draw: st.DataObject) -> None:
    data, starts = log
    start = draw.draw(st.sampled_from(starts))
    offset = draw.draw(st.sampled_from((start, start, start + 1, -1, len(data) + 5)))
    size = draw.draw(st.sampled_from((len(data) - start, 50, -1, 1 << 40)))
    queue_id, queue_offset = draw.draw(st.integers(-1, 2)), draw.draw(st.integers(-1, 3))
    arguments = offset, len(data), offset, size, as_bytes(b"flights"), queue_id, queue_offset
    compiled, plain = both(unit_record.place_state, as_bytes(data), *arguments)
    assert compiled == plain

"""Records of stages are checked when staged and found again among others, as plain Python says."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from record_examples import as_array

from storage.format.properties import encode_properties
from storage.format.record import encode_for_batch
from storage.format.stage import stage_prefix, unique_key
from storage.kernels import columns
from storage.kernels.scan import scan_records
from storage.kernels.staged import check_stage_keys, mark_staged

PREFIXES = sorted(stage_prefix("app", version, "a") for version in range(5))
SIZES = [3, 0, 1, 7, 20]
keys = (
    st.tuples(st.sampled_from(PREFIXES), st.integers(0, 25)).map(lambda each: unique_key(*each))
    | st.text("0123456789ABCDEFg", min_size=0, max_size=33)
    | st.tuples(st.sampled_from(PREFIXES), st.text("0123456789ABCDEFgf", min_size=8, max_size=8)).map("".join)
)  # fmt: skip


def scanned(unique_keys: list[str]) -> tuple[np.ndarray, np.ndarray, int]:
    data = as_array(
        b"".join(
            encode_for_batch(
                "t", 0, b"b", encode_properties({"UNIQ_KEY": key}), 0, 0, 0, "1.1.1.1:1"
            )
            for key in unique_keys
        )
    )
    rows = columns.new_rows(len(unique_keys) + 1)
    count, _, _ = scan_records(data, 0, len(data), 0, 0, rows)
    assert count == len(unique_keys)
    return data, rows, int(count)


@given(st.lists(keys, max_size=40))
@settings(max_examples=200, deadline=None)
def test_marks_are_those_of_the_keys(unique_keys: list[str]) -> None:
    data, rows, count = scanned(unique_keys)
    bases = np.cumsum([0, *SIZES])[:-1].astype(np.int64)
    prefixes = np.frombuffer("".join(PREFIXES).encode(), np.uint8)
    wanted = np.zeros(sum(SIZES), np.uint8)
    for number, prefix in enumerate(PREFIXES):
        for sequence in range(SIZES[number]):
            wanted[bases[number] + sequence] = unique_key(prefix, sequence) in unique_keys
    for function in (mark_staged, mark_staged.py_func):
        seen = np.zeros(sum(SIZES), np.uint8)
        marked = function(data, rows, count, prefixes, bases, np.array(SIZES, np.int64), seen)
        assert seen.tolist() == wanted.tolist()
        assert marked == wanted.sum()


@given(st.lists(keys, max_size=10), st.integers(0, 5), st.booleans())
@settings(max_examples=100, deadline=None)
def test_keys_of_a_stage_must_be_its_own_in_order(
    others: list[str], first: int, right: bool
) -> None:
    prefix = PREFIXES[2]
    good = [unique_key(prefix, first + number) for number in range(3)]
    unique_keys = good if right else good + others
    data, rows, count = scanned(unique_keys)
    wanted = next(
        (i for i, key in enumerate(unique_keys) if key != unique_key(prefix, first + i)), -1
    )
    as_bytes = np.frombuffer(prefix.encode(), np.uint8)
    for function in (check_stage_keys, check_stage_keys.py_func):
        assert function(data, rows, count, as_bytes, first) == wanted
    assert check_stage_keys(data, rows, count, as_bytes[1:], first) == -2


def test_arguments_that_do_not_fit_touch_nothing() -> None:
    data, rows, count = scanned([unique_key(PREFIXES[0], 0)])
    prefix = np.frombuffer(PREFIXES[0].encode(), np.uint8)
    one, two = np.array([0], np.int64), np.array([2], np.int64)
    seen = np.zeros(1, np.uint8)
    assert mark_staged(data, rows, count, prefix, one, two, seen) == -1
    assert mark_staged(data, rows, 99, prefix, one, one, seen) == -1
    assert mark_staged(data, rows, count, prefix[:-1], one, one, seen) == -1
    assert not seen.any()

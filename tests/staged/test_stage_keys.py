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
from storage.staged.open_commit import records_of_stages
from storage.staged.staging import are_keys_of

PREFIXES = sorted(stage_prefix("app", version, "a") for version in range(5))
SIZES = [3, 0, 1, 7, 20]
keys = (
    st.tuples(st.sampled_from(PREFIXES), st.integers(0, 25)).map(lambda each: unique_key(*each))
    | st.text("0123456789ABCDEFg", min_size=0, max_size=33)
    | st.tuples(st.sampled_from(PREFIXES), st.text("0123456789ABCDEFgf", min_size=8, max_size=8)).map("".join)
)  # fmt: skip


def scanned(unique_keys: list[str]) -> tuple[np.ndarray, np.ndarray]:
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
    return data, rows[:count]


@given(st.lists(keys, max_size=40))
@settings(max_examples=200, deadline=None)
def test_records_of_stages_are_found_by_their_keys(unique_keys: list[str]) -> None:
    data, rows = scanned(unique_keys)
    numbers = iter(range(sum(SIZES)))
    stages = {
        prefix.encode(): [next(numbers) for _ in range(size)]
        for prefix, size in zip(PREFIXES, SIZES, strict=True)
    }
    wanted = {
        number
        for prefix, numbers in stages.items()
        for sequence, number in enumerate(numbers)
        if unique_key(prefix.decode(), sequence) in unique_keys
    }
    assert set(records_of_stages(data, rows, stages)) == wanted


@given(st.lists(keys, max_size=10), st.integers(0, 5), st.booleans())
@settings(max_examples=100, deadline=None)
def test_keys_of_a_stage_are_its_own_in_order(others: list[str], first: int, right: bool) -> None:
    prefix = PREFIXES[2]
    good = [unique_key(prefix, first + number) for number in range(3)]
    unique_keys = good if right else good + others
    data, rows = scanned(unique_keys)
    wanted = [key == unique_key(prefix, first + i) for i, key in enumerate(unique_keys)]
    found = are_keys_of(data, rows, np.frombuffer(prefix.encode(), np.uint8), first)
    assert found.tolist() == wanted

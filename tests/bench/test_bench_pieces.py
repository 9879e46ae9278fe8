"""Tests of the benches at tiny sizes: that they measure what they say and clean up."""

from __future__ import annotations

from bench import append
from bench.figures import alternate, median_ratio


def test_long_appends_are_measured_beside_bare_files_and_leave_no_file(tmp_path):
    figure = append.run_long(tmp_path, rounds=1, seconds=0.05, log_file_bytes=4 << 20)
    assert figure.value > 0
    assert figure.limit > 0
    assert figure.refused is not None
    assert list(tmp_path.iterdir()) == []


def test_rounds_alternate_and_the_first_does_not_count():
    turns = []
    pairs = alternate(
        lambda: turns.append("value") or 1.0, lambda: turns.append("limit") or 2.0, rounds=2
    )
    assert turns == ["limit", "value"] * 3
    assert pairs == [(1.0, 2.0)] * 2
    assert median_ratio(pairs) == 0.5

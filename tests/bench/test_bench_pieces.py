"""Tests of the benches at tiny sizes: that they measure what they say and clean up."""

from __future__ import annotations

import json

import numpy as np

from bench import append
from bench.figures import Figure, alternate, document, median_ratio
from storage.kernels.client_records import validate_batch
from storage.kernels.columns import QUEUE_ID, STOP_END, new_rows


def test_append_bursts_are_measured_and_leave_no_file(tmp_path):
    figures = append.run_bursts(tmp_path, rounds=2, batches=4, log_file_bytes=4 << 20)
    assert len(figures) == 2
    assert all(figure.value > 0 and figure.limit for figure in figures)
    assert list(tmp_path.iterdir()) == []


def test_long_appends_are_measured_beside_bare_files_and_leave_no_file(tmp_path):
    figure = append.run_long(tmp_path, rounds=1, seconds=0.05, log_file_bytes=4 << 20)
    assert figure.value > 0
    assert figure.limit > 0
    assert figure.refused is not None
    assert list(tmp_path.iterdir()) == []


def test_batches_have_64_records_in_as_many_queues_as_asked():
    for queues in (1, 8):
        for data in append.batches_of(queues=queues):
            rows = new_rows(65)
            count, _, stop = validate_batch(np.frombuffer(data, np.uint8), rows)
            assert (count, stop) == (64, STOP_END)
            assert len(set(rows[:64, QUEUE_ID].tolist())) == queues


def test_rounds_alternate_and_the_first_does_not_count():
    turns = []
    pairs = alternate(
        lambda: turns.append("value") or 1.0, lambda: turns.append("limit") or 2.0, rounds=2
    )
    assert turns == ["limit", "value"] * 3
    assert pairs == [(1.0, 2.0)] * 2
    assert median_ratio(pairs) == 0.5


def test_document_of_results_is_json_with_the_machine():
    figure = Figure(name="n", value=1.0, unit="s", reached=True, wanted="2 s", rounds=[(1.0, None)])
    kept = json.loads(json.dumps(document([figure], options={"quick": True})))
    assert kept["figures"][0]["reached"] is True
    assert kept["machine"]["processors"] >= 1

"""Tests of the benches at tiny sizes: that they measure what they say and clean up."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bench import append
from bench.figures import Figure, alternate, document, median_ratio
from bench.latency import cleaning
from bench.reads import validation
from bench.timers import pending
from bench.upkeep import scrub
from storage.files.filesystem import OsFileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.kernels.client_records import validate_batch
from storage.kernels.columns import QUEUE_ID, STOP_END, new_rows
from storage.reader import StoreReader
from storage.view.log.walk import End, RecordRun, walk_log
from storage.view.queues.pull import pull_queue
from storage.view.queues.tag_filter import TagFilter


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


def test_passes_of_the_scrub_are_measured_and_leave_no_file(tmp_path):
    (figure,) = scrub.run(tmp_path, gib=0.01, rounds=1, log_file_bytes=4 << 20)
    assert figure.value > 0
    assert figure.limit > 0
    assert list(tmp_path.iterdir()) == []


def test_pulls_are_measured_beside_those_that_believe_units_and_leave_no_file(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(validation, "LOG_BYTES", 1 << 20)
    cases = (validation.Case(100, 32), validation.Case(100, 32, validation.NEAR))
    figures = validation.run(tmp_path, rounds=1, cases=cases)
    assert all(figure.value > 0 and figure.limit > 0 for figure in figures)
    assert list(tmp_path.iterdir()) == []


def test_the_control_of_validation_believes_a_wrong_unit(tmp_path, monkeypatch):
    """Else it would do the same work as what it is the control of."""
    monkeypatch.setattr(validation, "LOG_BYTES", 1 << 20)
    validation.fill(tmp_path, 100)
    queue_file = next((tmp_path / "consumequeue" / validation.TOPIC / "0").iterdir())
    with queue_file.open("r+b") as file:
        file.seek(8)  # the size in the first unit
        file.write(bytes([0, 0, 1, 7]))
    with StoreReader.open(tmp_path) as reader:
        queue = reader.queue_view(validation.TOPIC, 0)

        def pull(queue):
            return pull_queue(
                reader.log, queue, topic=validation.TOPIC, queue_id=0, queue_offset=0,
                max_messages=1, max_bytes=1 << 20, tag_filter=TagFilter(""),
            )  # fmt: skip

        believed = pull(validation.Believed(queue))
        assert not believed.record_count and believed.damaged
        checked = pull(queue)
        assert checked.record_count == 1 and not checked.damaged


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


def test_files_to_be_cleaned_are_a_log_of_a_record_each(tmp_path):
    cleaning.make_old_files(tmp_path, 3, file_bytes=1 << 16)
    files = ReadOnlyMappedFileQueue(OsFileSystem(), tmp_path / "commitlog", file_size=0)
    steps = list(walk_log(files, 0, files.end_offset))
    runs, end = steps[:-1], steps[-1]
    assert [each.begin_offset for each in runs if isinstance(each, RecordRun)] == [
        number << 16 for number in range(4)
    ]
    assert len(runs) == 4 and isinstance(end, End)


@pytest.mark.slow
def test_timers_that_are_measured_are_delivered_and_none_is_early(tmp_path):
    figures = pending.run(count=4_000, deliver=1_000, seconds=0.2, directory=tmp_path)
    assert [figure.value >= 0 for figure in figures if figure.unit != "MB"] == [True] * 3
    assert list(tmp_path.iterdir()) == []

"""kill -9 of a process that writes: everything acknowledged is there again, in its place."""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from engine_store import check_queues_match_log, record, records_on_disk, small_config
from steps_to_try import steps_to_try

from storage.view.log.recovery_cases import Start
from storage.writer import StoreWriter

SUPPORT = Path(__file__).parent.parent / "support"
MODES = list(itertools.product(("async", "sync"), (False, True)))


def produce_and_kill(directory, flush_mode, pool, batches, *options):
    """Run a producer, kill it after some acknowledged batches, return all that it acknowledged."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), str(SUPPORT.parent.parent)])
    }
    command = [sys.executable, str(SUPPORT / "store_producer.py"), str(directory), flush_mode, pool]
    command += options
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        lines = list(itertools.islice(process.stdout, batches))
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.read().splitlines()
    whole = [line.split() for line in lines if len(line.split()) == 3]
    return [(int(queue), int(first), int(count)) for queue, first, count in whole]


@pytest.mark.parametrize(
    ("flush_mode", "with_pool"), steps_to_try(MODES, 9), ids=lambda value: str(value).lower()
)
def test_nothing_acknowledged_is_lost_by_two_kills_in_a_row(tmp_path, flush_mode, with_pool):
    pool = tmp_path / "shm"
    pool.mkdir()
    pool_argument = str(pool) if with_pool else "-"
    directory = tmp_path / "store"
    config = small_config(
        flush_mode=flush_mode, transient_pool=with_pool, transient_pool_directory=str(pool)
    )
    acknowledged = []
    for batches in (300, 37):
        acknowledged += produce_and_kill(directory, flush_mode, pool_argument, batches)
    assert (directory / "abort").exists()
    with StoreWriter.open(directory, config) as writer:
        assert writer.recovered.start is Start.BOUNDED
        assert not writer.recovered.damage
        ends = [last for _, last in writer.describe_topic("t")[1]]
        for queue_id, first, count in acknowledged:
            assert first + count <= ends[queue_id]
        writer.append_batch(record(queue_id=1))
        assert writer.wait_dispatched(writer.appended_offset, 10)
    stored = {(each.queue_id, each.queue_offset) for each in records_on_disk(directory)}
    for queue_id, first, count in acknowledged:
        assert {(queue_id, first + i) for i in range(count)} <= stored
    check_queues_match_log(directory)
    assert not (directory / "abort").exists()
    assert list(pool.iterdir()) == []


def test_what_only_the_pool_held_is_replayed(tmp_path):
    pool = tmp_path / "shm"
    pool.mkdir()
    directory = tmp_path / "store"
    config = small_config(transient_pool=True, transient_pool_directory=str(pool))
    batches = 100
    acknowledged = produce_and_kill(directory, "async", str(pool), batches, "--never-commit")
    assert len(acknowledged) >= batches
    assert records_on_disk(directory) == []
    with StoreWriter.open(directory, config) as writer:
        assert writer.recovered.record_count >= sum(count for _, _, count in acknowledged)
    stored = {(each.queue_id, each.queue_offset) for each in records_on_disk(directory)}
    for queue_id, first, count in acknowledged:
        assert {(queue_id, first + i) for i in range(count)} <= stored
    check_queues_match_log(directory)

"""Appends until it is killed: ``store_producer.py DIRECTORY FLUSH_MODE POOL_DIRECTORY|- [--never-commit | --positions] [--no-sync]``.

With ``--never-commit`` nothing that it appends leaves the pool; with ``--no-sync`` nothing is synced that is called so. Prints one line for every acknowledged batch: its queue, first queue offset, count;
with ``--positions`` also its first and end commit offset and how far the log was flushed, which it is then every 50 ms.
"""

import os
import sys
import time

from engine_store import record, small_config

from storage.errors import StoreBusy
from storage.files.system.os_file import File
from storage.log.commit_log import CommitLog
from storage.writer import StoreWriter


def main() -> None:
    """Append batches of growing size to four queues."""
    directory, flush_mode, pool = sys.argv[1:4]
    if "--never-commit" in sys.argv:
        CommitLog.commit = lambda log: log.committed_offset  # type: ignore[method-assign]
    if "--no-sync" in sys.argv:
        File.sync = File.sync_all = lambda _: None  # type: ignore[method-assign]
    positions = "--positions" in sys.argv
    config = small_config(
        flush_mode=flush_mode,
        transient_pool=pool != "-",
        transient_pool_directory=pool,
        commit_interval_ms=200,
        flush_interval_ms=10_000 if flush_mode == "async" and not positions else 50,
    )
    writer = StoreWriter.open(directory, config)
    if "t" not in [topic.name for topic in writer.list_topics()]:
        writer.create_topic("t", 4)
    turn = 0
    while True:
        turn += 1
        count = turn % 7 + 1
        batch = b"".join(
            record(queue_id=turn % 4, body=b"%d/%d " % (turn, i) * (turn % 50 + 1), tag="x")
            for i in range(count)
        )
        try:
            result = writer.append_batch(batch)
        except StoreBusy as busy:
            time.sleep(busy.retry_delay_ms / 1000)
            continue
        writer.wait_acknowledged(result.end_commit_offset, 10)
        queue = result.ranges[0]
        line = f"{queue.queue_id} {queue.first_queue_offset} {queue.count}"
        if positions:
            flushed_offset = writer.status().flushed_offset
            line += f" {result.commit_offset} {result.end_commit_offset} {flushed_offset}"
        os.write(1, f"{line}\n".encode())  # whole or not at all: it may be killed at any moment


if __name__ == "__main__":
    main()

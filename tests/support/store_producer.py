"""Appends until it is killed: ``store_producer.py DIRECTORY FLUSH_MODE POOL_DIRECTORY|- [--never-commit]``.

With ``--never-commit`` nothing that it appends leaves the pool. Prints one line for every acknowledged batch: its queue, first queue offset, count.
"""

import os
import sys
import time

from engine_store import record, small_config

from storage.errors import StoreBusy
from storage.log.commit_log import CommitLog
from storage.writer import StoreWriter


def main() -> None:
    """Append batches of growing size to four queues."""
    directory, flush_mode, pool = sys.argv[1:4]
    if "--never-commit" in sys.argv:
        CommitLog.commit = lambda log: log.committed_offset  # type: ignore[method-assign]
    config = small_config(
        flush_mode=flush_mode,
        transient_pool=pool != "-",
        transient_pool_directory=pool,
        commit_interval_ms=200,
        flush_interval_ms=10_000 if flush_mode == "async" else 50,
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
        line = f"{queue.queue_id} {queue.first_queue_offset} {queue.count}\n"
        os.write(1, line.encode())  # whole or not at all: it may be killed at any moment


if __name__ == "__main__":
    main()

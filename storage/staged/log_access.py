"""What staged commits need of the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from storage.errors import StoreFailed
from storage.log.batches import Prepared, QueueKey
from storage.view.log.walk import LogFiles


class LogAccess(NamedTuple):
    """Calls of the log's writer."""

    prepare: Callable[[bytes | memoryview], Prepared]
    check_size: Callable[[int], None]
    check_queue: Callable[[QueueKey], None]
    check_open: Callable[[], None]
    append: Callable[
        [Prepared], int
    ]  # returns the commit offset; whatever limits the topic has now
    appended_offset: Callable[[], int]
    wait_flushed: Callable[[int, float], bool]
    fail: Callable[[StoreFailed], None]
    files: LogFiles

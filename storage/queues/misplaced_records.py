"""Records that a flipped bit has put into another queue, recognised by the units that stood before.

No checksum of a broker's covers a record's topic and queue id. Taken at its word, such a record would
take a place in a queue that is not its own, and move all that follow it there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.format.record import Verdict, check_record, decode_record

if TYPE_CHECKING:
    from storage.queues.consume_queue import ConsumeQueue
    from storage.queues.queue_table import QueueTable
    from storage.view.log.walk import LogFiles

# Each looks into all queues; more than this are taken at their word.
SEARCHES_MAX: Final = 32


class MisplacedRecords:
    """Looks records up while queues are compared with the log; doubtful ones are not misplaced."""

    def __init__(self, log: LogFiles, queues: QueueTable) -> None:
        self._log = log
        self._queues = queues
        self._searches = 0

    def contains(self, queue: ConsumeQueue, queue_offset: int, commit_offset: int) -> bool:
        """Whether the record at ``commit_offset`` must not take ``queue_offset``.

        The unit there is of another record, which says so itself, and the record has its own unit in
        another queue.
        """
        held_offset, size, _ = queue.unit(queue_offset)
        return (
            size > 0
            and held_offset != commit_offset
            and self._belongs(queue, queue_offset, held_offset)
            and self._has_unit_elsewhere(queue, commit_offset)
        )

    def _belongs(self, queue: ConsumeQueue, queue_offset: int, commit_offset: int) -> bool:
        file = self._log.find(commit_offset)
        if file is None:
            return False
        position = commit_offset - file.start_offset
        data = file.array.data
        if check_record(data, position, commit_offset) is not Verdict.GOOD:
            return False
        record = decode_record(data, position)
        named = (record.topic, record.queue_id, record.queue_offset)
        return named == (queue.topic, queue.queue_id, queue_offset)

    def _has_unit_elsewhere(self, queue: ConsumeQueue, commit_offset: int) -> bool:
        if self._searches >= SEARCHES_MAX:
            return False
        self._searches += 1
        for topic, queue_id in self._queues.on_disk():
            if (topic, queue_id) == (queue.topic, queue.queue_id):
                continue
            other = self._queues.get(topic, queue_id)
            found_offset, size, _ = other.unit(other.find_end(commit_offset))
            if found_offset == commit_offset and size > 0:
                return True
        return False

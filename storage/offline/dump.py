"""Everything that a store holds, one dict a line, in the order and shape of a broker's dump.

Kinds of lines: topic, consumerOffsets, delayOffsets, groups; then each queue with its messages and
gaps; unqueued records, the commit log's walk, the index files' headers. What is damaged stands in a line
of its own kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.consume_entry import SCHEDULE_TOPIC, UNIT_SIZE
from storage.format.index import HEADER_SIZE, IndexHeader
from storage.format.record_layout import MAGIC_BLANK
from storage.kernels.columns import POSITION, SIZE
from storage.message import PullStatus
from storage.offline.extension import QueueExtension
from storage.offline.lines import Line, java_order, record_fields
from storage.offline.opened import OfflineStore, open_offline
from storage.view.config_tables import read_config_tables
from storage.view.index.index_file import list_index_files
from storage.view.log.walk import DamagedRange, End, RecordRun, walk_log
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.pull import pull_queue
from storage.view.queues.tag_filter import MATCH_ALL

DELAY_QUEUES: Final = 18
PULL_RECORDS: Final = 1024
PULL_BYTES: Final = 16 << 20
SYSTEM_GROUPS: Final = frozenset(
    {
        "CID_ONS-HTTP-PROXY", "CID_ONSAPI_OWNER", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_PULL",
        "CID_RMQ_SYS_TRANS", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "TOOLS_CONSUMER",
    }
)  # fmt: skip
"""Groups that a broker has whatever its file says."""


def dump(directory: Path | str, spec: dict[str, Any] | Path | None = None) -> Iterator[Line]:
    """Yield the lines of a store directory; see ``open_offline`` for ``spec``. Raises NotAStore."""
    with open_offline(directory, spec) as store:
        yield from _config(store)
        queued: set[int] = set()  # commit offsets that a queue's line, good or damaged, names
        for topic, queue_id in _queues(store):
            yield from _queue(store, topic, queue_id, queued)
        yield from _commit_log(store, queued)
        yield from _index(store)


def _config(store: OfflineStore) -> Iterator[Line]:
    for topic in sorted(store.reader.topics, key=lambda topic: java_order(topic.name)):
        fields = topic.other_fields
        yield {
            "type": "topic",
            "topic": topic.name,
            "readQueueNums": topic.read_queue_count,
            "writeQueueNums": topic.write_queue_count,
            "perm": topic.perm,
            "topicFilterType": fields.get("topicFilterType", "SINGLE_TAG"),
            "topicSysFlag": fields.get("topicSysFlag", 0),
            "order": fields.get("order", False),
            "attributes": dict(sorted(topic.attributes.items())),
        }
    offsets = store.reader.consumer_offsets.table
    yield {
        "type": "consumerOffsets",
        "table": {
            key: {str(queue_id): offset for queue_id, offset in sorted(offsets[key].items())}
            for key in sorted(offsets, key=java_order)
        },
    }
    yield {"type": "delayOffsets", "table": _delay_offsets(store)}
    groups = read_config_tables(store.filesystem, store.paths).groups
    yield {"type": "groups", "names": sorted({*SYSTEM_GROUPS, *map(str, groups)}, key=java_order)}


def _delay_offsets(store: OfflineStore) -> Line:
    """Progress of each delay level, clamped into its queue as at a broker's start."""
    table = read_config_tables(store.filesystem, store.paths).delays
    clamped = {}
    for level, offset in sorted(table.items()):
        queue = store.reader.queue_view(SCHEDULE_TOPIC, level - 1)
        low, high = _range(store, queue)
        clamped[str(level)] = min(max(offset, low), high)
    return clamped


def _range(store: OfflineStore, queue: ConsumeQueueView) -> tuple[int, int]:
    log = store.reader.log
    max_offset = queue.max_offset(log.visible_offset)
    return queue.min_offset(log.min_offset, max_offset), max_offset


def _queues(store: OfflineStore) -> list[tuple[str, int]]:
    queues = set(store.reader.queues_on_disk())
    # ScheduleMessageService touches all its queues when a broker starts.
    queues |= {(SCHEDULE_TOPIC, queue_id) for queue_id in range(DELAY_QUEUES)}
    return sorted(queues, key=lambda queue: (java_order(queue[0]), queue[1]))


def _queue(store: OfflineStore, topic: str, queue_id: int, queued: set[int]) -> Iterator[Line]:
    queue = store.reader.queue_view(topic, queue_id)
    low, high = _range(store, queue)
    last = queue.unit(high - 1)
    yield {
        "type": "queue",
        "topic": topic,
        "queueId": queue_id,
        "minOffset": low,
        "maxOffset": high,
        "minLogicOffset": low * UNIT_SIZE,
        "maxPhysicOffset": last.commit_offset + last.size if last.size else -1,
        "cqType": "SimpleCQ",
    }
    extension = QueueExtension(store.filesystem, store.paths.root, topic, queue_id)
    at = low
    while at < high:
        result = pull_queue(
            store.reader.log, queue, topic=topic, queue_id=queue_id, queue_offset=at,
            max_messages=PULL_RECORDS, max_bytes=PULL_BYTES, tag_filter=MATCH_ALL,
        )  # fmt: skip
        if result.status is not PullStatus.FOUND:
            yield {
                "type": "gap",
                "topic": topic,
                "queueId": queue_id,
                "queueOffset": at,
                "status": result.status.name,
                "nextBeginOffset": result.next_offset,
            }
        lines = [
            (offset, _message(store, queue, extension, topic, queue_id, offset, queued))
            for offset in result.queue_offsets
        ]
        lines += [
            (
                damage.queue_offset,
                {
                    "type": "damaged",
                    "topic": topic,
                    "queueId": queue_id,
                    "queueOffset": damage.queue_offset,
                    "commitLogOffset": damage.commit_offset,
                    "size": damage.size,
                    "reason": damage.reason,
                },
            )
            for damage in result.damaged
        ]
        queued.update(damage.commit_offset for damage in result.damaged)
        for _, line in sorted(lines, key=lambda pair: pair[0]):
            yield line
        if result.next_offset <= at:
            break
        at = result.next_offset


def _message(
    store: OfflineStore,
    queue: ConsumeQueueView,
    extension: QueueExtension,
    topic: str,
    queue_id: int,
    queue_offset: int,
    queued: set[int],
) -> Line:
    unit = queue.unit(queue_offset)
    record = store.reader.log.bytes_at(unit.commit_offset, unit.size)
    assert record is not None
    queued.add(unit.commit_offset)
    fields = record_fields(record)
    line: Line = {"type": "message", **fields}
    if fields.get("queueOffset") != queue_offset or fields.get("topic") != topic:
        line["servedAs"] = f"{topic}/{queue_id}/{queue_offset}"
    line["tagsCode"] = extension.tag_code(unit)
    entry = extension.entry(unit.tag_code)
    if entry is not None:
        line["ext"] = {
            "size": entry.size,
            "tagsCode": entry.tag_code,
            "msgStoreTime": entry.store_timestamp_ms,
        }
        if entry.bitmap:
            line["ext"]["filterBitMap"] = entry.bitmap.hex()
    return line


def _commit_log(store: OfflineStore, queued: set[int]) -> Iterator[Line]:
    files = ReadOnlyMappedFileQueue(store.filesystem, store.paths.commit_log, file_size=0)
    begin, end = store.walked.min_offset, store.walked.end_offset
    records = damaged = 0
    blanks: list[Line] = []
    resume = begin  # end of the last run of records
    for step in walk_log(files, begin, end):
        if isinstance(step, End):
            resume = step.commit_offset
            break
        blanks += _blank(files, resume, step.begin_offset)
        if isinstance(step, DamagedRange):
            damaged += 1
            if step.begin_offset not in queued:
                yield {
                    "type": "damaged",
                    "commitLogOffset": step.begin_offset,
                    "size": step.end_offset - step.begin_offset,
                    "reason": step.reason,
                }
        elif isinstance(step, RecordRun):
            records += len(step.rows)
            for position, size in step.rows[:, (POSITION, SIZE)].tolist():
                if step.data_offset + position not in queued:
                    record = step.data[position : position + size].data
                    yield {"type": "unqueued", **record_fields(record)}
        resume = step.end_offset
    line: Line = {"type": "commitlog", "start": begin}
    if damaged:
        line["damaged"] = damaged
    yield {**line, "end": resume, "records": records, "blanks": blanks}


def _blank(files: ReadOnlyMappedFileQueue, at: int, following: int) -> Iterator[Line]:
    """The blank record at ``at``, if the walk left its file there."""
    file = files.find(at)
    if file is None or following < file.end_offset:
        return
    head = file.array[at - file.start_offset :][:8].tobytes()
    if int.from_bytes(head[4:8], "big") == MAGIC_BLANK:
        yield {"offset": at, "size": int.from_bytes(head[0:4], "big", signed=True)}


def _index(store: OfflineStore) -> Iterator[Line]:
    for _, size, path in list_index_files(store.filesystem, store.paths.index):
        if size < HEADER_SIZE:
            continue
        file = store.filesystem.open(path, writable=False)
        header = IndexHeader.decode(file.pread(HEADER_SIZE, 0))
        file.close()
        yield {
            "type": "index",
            "name": path.name,
            "beginTimestamp": header.begin_timestamp_ms,
            "endTimestamp": header.end_timestamp_ms,
            "beginPhyOffset": header.begin_commit_offset,
            "endPhyOffset": header.end_commit_offset,
            "hashSlotCount": header.used_slot_count,
            "indexCount": header.next_entry,
        }

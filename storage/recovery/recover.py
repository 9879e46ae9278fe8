"""Recovery: from whatever a crash, a broker or a broken disk left to a log and queues that agree.

The order is fixed: replay the pool, decide where to start, walk the log and correct the queues on the
way, overwrite what lies after the end, sync the log, and the queues where the log alone does not say
what they hold. Nothing is served before ``recover`` returns, and a crash in the middle of it leaves a
directory that recovers again to the same state, since the checkpoint is raised only afterwards, by the
caller.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.errors import NotAStore
from storage.kernels.columns import STORE_TIMESTAMP
from storage.queues.queue_repair import QueueRepair
from storage.queues.queue_table import QueueTable, UnitCount
from storage.view.incarnations import Incarnations, topics_there_are
from storage.view.log.commit_log import ListedLog
from storage.view.log.lost_end import find_lost_end
from storage.view.log.recovery_cases import DirectoryState, Start, decide_start
from storage.view.log.walk import DamagedRange, End, RecordRun, walk_log

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray
    from storage.files.mapped_file_queue import MappedFileQueue
    from storage.format.checkpoint import WriterSlot

_LOG: Final = logging.getLogger(__name__)
BLOCK_SIZE: Final = 1 << 20
NOTHING_DELETED: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The store after recovery. Its log is durable, and its queues up to the first of ``durable_units``.

    ``queue_counts`` says how many queues the topics met on the way have, ``unit_count`` how many
    units all queues hold; ``durable_units`` are a commit offset, and how many units of records before it they hold. ``lost_end``, the last of ``damage``, is what is gone with the last files of the
    log or damaged at its durable end, if anything is. ``last_timestamp_ms`` is the store time of the last record walked over, 0
    if there was none. ``forgotten_topics`` are those that a broker deleted: records of theirs were
    met, and are in no queue.
    """

    start: Start
    min_offset: int
    end_offset: int
    last_timestamp_ms: int
    record_count: int
    damage: tuple[DamagedRange, ...]
    units_written: int
    unit_count: int
    durable_units: tuple[int, int]
    queue_counts: dict[str, int]
    forgotten_topics: frozenset[str] = frozenset()
    lost_end: DamagedRange | None = None

    @property
    def records_end(self) -> int:
        """Where the records end that are there, and a lost end begins."""
        return self.end_offset if self.lost_end is None else self.lost_end.begin_offset


def recover(
    files: MappedFileQueue,
    queues: QueueTable,
    durable: WriterSlot,
    *,
    abort_found: bool,
    unflushed_bytes_max: int,
    leftovers: Iterable[tuple[int, ByteArray]] = (),
    deleted_topics: Mapping[str, int] = NOTHING_DELETED,
    known_topics: Collection[str] = (),
    published_offset: int = 0,
    rebooted: bool = False,
    compares_all: bool = False,
) -> Recovered:
    """Bring log and queues to agree and make them durable.

    ``leftovers`` are what the pool held: ``(commit_offset, bytes)``, whole records. Of a topic in
    ``deleted_topics`` records before that commit offset get no units. ``known_topics`` are those of
    the topic table: after an orderly stop a topic that is not among them, and of which there is no
    queue while there are others, was deleted. ``published_offset`` is how far the log was confirmed by a
    writer that died since the machine started, ``rebooted`` whether it has gone down since. With ``compares_all`` the checkpoint is not relied on: the
    whole log is read, and every unit is compared with it.
    Raises NotAStore when queues exist and the log does not.
    """
    _repair_file_lengths(files)
    leftovers = _unless_overwritten(files, list(leftovers))
    _replay(files, leftovers)
    inside = (
        files.first_offset
        <= durable.dispatched_offset
        <= durable.flushed_offset
        <= files.end_offset
    ) and _is_there(files, durable.flushed_offset)
    held = (
        queues.count_units(durable.dispatched_offset, files.first_offset)
        if durable.trusted and inside
        else UnitCount(-1)
    )
    start = decide_start(
        DirectoryState(
            log=bool(files.entries),
            queues=any(True for _ in queues.on_disk()),
            slot=durable.trusted and not compares_all,
            inside=inside,
            agree=held.agrees(durable.unit_count),
            clean=durable.clean
            and not abort_found
            and not leftovers
            and not _goes_on(files, durable.flushed_offset),
        )
    )
    if start is Start.REFUSE:
        raise NotAStore(
            f"{queues.directory} holds queues but {files.directory} holds no log; mount or restore"
            " the log, or remove the queues"
        )
    if start is Start.NEW:
        return _nothing(start, 0)
    if start is Start.CLEAN:
        _remove_after(files, durable.flushed_offset)
        if queues.is_cut:
            queues.sync()
        return _nothing(start, durable.flushed_offset, files.first_offset, unit_count=held.units)
    complete = start is Start.FULL
    begin = files.first_offset if complete else durable.dispatched_offset
    search_limit = (
        files.end_offset
        if complete
        else min(files.end_offset, durable.flushed_offset + 2 * unflushed_bytes_max)
    )
    known = (
        topics_there_are((topic for topic, _ in queues.on_disk()), known_topics)
        if complete and not abort_found
        else None
    )
    repair = QueueRepair(
        queues,
        ListedLog(files.filesystem, files.directory),
        begin_offset=begin,
        complete=complete,
        topics=Incarnations(deleted_topics, known=known),
    )
    stated_offset = max(published_offset, durable.flushed_offset) if durable.trusted else 0
    promised_offset = durable.flushed_offset if durable.synced_only and rebooted else None
    recovered = _walk(
        files, queues, repair, start, begin, search_limit, durable, stated_offset, promised_offset
    )
    if durable.trusted and inside and not held.agrees(durable.unit_count) and not compares_all:
        _LOG.warning(
            "files of consume queues were missing or short: %d units were rebuilt from the log",
            recovered.units_written,
        )
    return recovered


def _is_there(files: MappedFileQueue, end_offset: int) -> bool:
    """Whether the file is there in which a log ends, or goes on."""
    return files.find(max(end_offset - 1, 0)) is not None or files.find(end_offset) is not None


def _nothing(start: Start, end_offset: int, min_offset: int = 0, unit_count: int = 0) -> Recovered:
    return Recovered(
        start=start, min_offset=min_offset, end_offset=end_offset, last_timestamp_ms=0,
        record_count=0, damage=(), units_written=0, unit_count=unit_count,
        durable_units=(end_offset, unit_count), queue_counts={},
    )  # fmt: skip


def _walk(
    files: MappedFileQueue,
    queues: QueueTable,
    repair: QueueRepair,
    start: Start,
    begin: int,
    search_limit: int,
    sure: WriterSlot,
    stated_offset: int,
    promised_offset: int | None,
) -> Recovered:
    damages: list[DamagedRange] = []
    record_count = last_timestamp_ms = 0
    end_offset, lost_end = begin, None
    for step in walk_log(
        files,
        begin,
        files.end_offset,
        search_limit_offset=search_limit,
        promised_offset=promised_offset,
    ):
        if isinstance(step, RecordRun):
            repair.take(step)
            record_count += len(step.rows)
            last_timestamp_ms = int(step.rows[-1, STORE_TIMESTAMP])
        elif isinstance(step, DamagedRange):
            repair.take_damage(step)
            damages.append(step)
        elif isinstance(step, End):
            end_offset = step.commit_offset
            lost_end = find_lost_end(
                files,
                step,
                file_size=files.file_size,
                durable_offset=sure.flushed_offset,
                stated_offset=stated_offset,
                queued_offset=queues.newest_record_end,
            )
    if lost_end is not None:
        repair.take_damage(lost_end)
        damages.append(lost_end)
        end_offset = lost_end.end_offset
    unit_count = repair.finish(
        end_offset,
        sure_offset=max(sure.flushed_offset, end_offset if lost_end else 0)
        if sure.trusted
        else None,
    )
    if sure.trusted:
        repair.doubt(sure.dispatched_offset)
    _overwrite_tail(files, end_offset, search_limit)
    _sync_log(files, begin, sure.flushed_offset if sure.trusted else end_offset, end_offset)
    durable_units = sure.dispatched_offset, sure.unit_count
    if start is not Start.BOUNDED or not repair.is_plain or queues.is_cut:
        queues.sync()
        durable_units = end_offset, unit_count
    # Else the log alone, which is durable, says what the queues hold from the checkpoint on: each record stands where
    # it claims, and nothing else was there. Below it no byte was changed. So a checkpoint that promises of the queues
    # no more than before holds without a sync of thousands of files, and whatever a cut leaves of them from there on
    # (units, zeros, no file), the next start comes to these same units again, as often as it happens. What was
    # evidence for more than the log says (a unit at a damaged record, one that points beyond the end) is
    # settled above, durably, before anything is served: it must not come back when the log has gone on.
    return Recovered(
        start=start, min_offset=files.first_offset, end_offset=end_offset,
        last_timestamp_ms=last_timestamp_ms, record_count=record_count, damage=tuple(damages),
        units_written=repair.units_written, unit_count=unit_count, durable_units=durable_units,
        queue_counts=repair.queue_counts,
        forgotten_topics=frozenset(repair.forgotten_topics), lost_end=lost_end,
    )  # fmt: skip


def _sync_log(files: MappedFileQueue, begin_offset: int, sure_offset: int, end_offset: int) -> None:
    """Make the log from ``begin_offset`` on durable, and the names of its files.

    The process that wrote them may have died before its sync, or because the sync failed: from
    ``sure_offset`` on, bytes in the page cache are durable only after they are written again.
    """
    for entry in files.entries:
        if entry.start_offset + entry.size > begin_offset:
            file = files.find(entry.start_offset)
            if file is not None:
                start = file.start_offset
                file.rewrite(max(sure_offset - start, 0), min(end_offset - start, file.size))
                file.sync()
    files.filesystem.sync_directory(files.directory)


def _repair_file_lengths(files: MappedFileQueue) -> None:
    """Give a short last file its length; an empty one goes. Others are read as far as they reach."""
    while files.entries and files.entries[-1].size == 0:
        files.remove(files.entries[-1].start_offset)
    if files.entries and files.entries[-1].size < files.file_size:
        files.extend(files.entries[-1].start_offset, files.file_size)


def _unless_overwritten(
    files: MappedFileQueue, leftovers: list[tuple[int, ByteArray]]
) -> list[tuple[int, ByteArray]]:
    """Return what the pool held; nothing where a broker has gone on with the log in its place since.

    A commit that was cut short leaves a part of the same bytes there, and zeros.
    """
    for commit_offset, data in leftovers:
        file = files.find(commit_offset)
        if file is None:
            continue
        position = commit_offset - file.start_offset
        there = file.array[position : position + len(data)]
        if np.any((there != 0) & (there != data[: len(there)])):
            _LOG.warning(
                "what the transient pool held from commit offset %d on is not replayed: the log"
                " goes on there with other records, which a broker has written",
                commit_offset,
            )
            return []
    return leftovers


def _replay(files: MappedFileQueue, leftovers: list[tuple[int, ByteArray]]) -> None:
    """Put what only the pool held where it belongs; the walk then checks every record of it."""
    for commit_offset, data in sorted(leftovers, key=lambda item: item[0]):
        if not len(data):
            continue
        start = commit_offset - commit_offset % files.file_size
        file = files.find(commit_offset)
        if file is None:
            file = files.create(start)
        position = commit_offset - file.start_offset
        file.array[position : position + len(data)] = data
        file.sync()


def _overwrite_tail(files: MappedFileQueue, end_offset: int, written_limit: int) -> None:
    """Zero everything after the end, so that no old record is ever found there; durable."""
    _remove_after(files, end_offset)
    file = files.find(end_offset)
    if file is None:
        return
    position = end_offset - file.start_offset
    limit = min(len(file.array), written_limit - file.start_offset)
    while position < limit:
        block = file.array[position : min(position + BLOCK_SIZE, limit)]
        if np.any(block):
            block[:] = 0
        position += BLOCK_SIZE
    file.sync()


def _remove_after(files: MappedFileQueue, end_offset: int) -> None:
    """Remove files that begin after the end: they hold nothing, or what was given up."""
    file = files.find(end_offset)
    files.remove_from(max(end_offset, files.first_offset + 1) if file is None else file.end_offset)


def _goes_on(files: MappedFileQueue, end_offset: int) -> bool:
    """Return whether the log has bytes after the end that an orderly stop left, which are zeros then.

    The checkpoint is an old copy if it has.
    """
    file = files.find(end_offset)
    if file is None:
        return False
    position = end_offset - file.start_offset
    return bool(np.any(file.array[position : position + BLOCK_SIZE]))

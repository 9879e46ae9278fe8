"""Defects that a store must not have, each planted from outside, with the check that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import damage_checks
import fault_checks as checks
import pytest
import rebuild_checks
import start_checks

from storage.checkpoint.durable_slots import DurableSlots
from storage.engine import opening
from storage.engine.checkpointer import Checkpointer
from storage.engine.engine import Engine
from storage.engine.queue_ends import QueueEnds
from storage.errors import QueueRebuilding, StoreFailed, StoreFull
from storage.files.mapped_file import MappedFile
from storage.files.transient_store_pool import PoolBuffer, TransientStorePool
from storage.format import checkpoint as checkpoint_layout
from storage.format import journal
from storage.index import scrub
from storage.index.checkpointer import IndexCheckpointer
from storage.index.index_file import IndexFile
from storage.kernels import unit_order
from storage.kernels.columns import STOP_END
from storage.leases import journal as lease_journal
from storage.log import acknowledgement
from storage.log.acknowledgement import APPENDED, COMMITTED, FLUSHED, AckPolicy
from storage.queues.consume_queue import ConsumeQueue
from storage.queues.queue_files import OpenQueueFiles
from storage.queues.queue_repair import QueueRepair
from storage.queues.queue_table import QueueTable, UnitCount
from storage.recovery import recover
from storage.staged import staged_commits
from storage.staged.open_commit import OpenCommit
from storage.tables import table_files
from storage.testing import SimulatedDisk
from storage.view.log.commit_log import CommitLogView
from storage.view.queues import unit_search
from storage.view.queues.rebuild_requests import RebuildRequests
from storage.view.queues.rebuilt_units import Extent, RebuiltUnits
from storage.view.queues.records import PulledRecords
from storage.view.queues.units import Units
from storage.workers import FailureLatch, Worker

Patch = pytest.MonkeyPatch


class PlantedDefect(NamedTuple):
    """What is wrong, how it is planted, and which check must find it."""

    name: str
    plant: Callable[[Patch], None]
    check: checks.Check


def _nothing(*_: Any, **__: Any) -> None:
    """Do what a forgotten call does."""


def _drop_sync(path: str) -> Callable[[Patch], None]:
    """Drop every sync of files below a path of the store."""

    def plant(patch: Patch) -> None:
        sync = SimulatedDisk.sync_file

        def dropped(disk: SimulatedDisk, file: Path, node: Any) -> None:
            if path not in str(file):
                sync(disk, file, node)

        patch.setattr(SimulatedDisk, "sync_file", dropped)

    return plant


def _drop_directory_sync(name: str) -> Callable[[Patch], None]:
    """Drop every sync of directories whose path ends so."""

    def plant(patch: Patch) -> None:
        sync = SimulatedDisk.sync_directory

        def dropped(disk: SimulatedDisk, directory: Path) -> None:
            if not str(directory).endswith(name):
                sync(disk, directory)

        patch.setattr(SimulatedDisk, "sync_directory", dropped)

    return plant


def _policy(mode: str, pool: bool, waits_for: str, shows: str) -> Callable[[Patch], None]:
    row = AckPolicy(waits_for, shows)
    return lambda patch: patch.setitem(acknowledgement.POLICIES, (mode, pool), row)  # type: ignore[arg-type]


def _set(owner: object, name: str, value: object) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(owner, name, value)


def _flush_without_sync(file: MappedFile) -> int:
    file.flushed_position = file.committed_position
    return file.flushed_position


def _flushed_is_appended(patch: Patch) -> None:
    progress = Engine._progress
    patch.setattr(
        Engine, "_progress",
        lambda engine: progress(engine)._replace(flushed_offset=engine.log.appended_offset),
    )  # fmt: skip


def _commit_before_the_write(patch: Patch) -> None:
    commit = MappedFile.commit

    def early(file: MappedFile) -> int:
        if file._buffer is not None:
            file._buffer.mark_committed(file.appended_position)
        return commit(file)

    patch.setattr(MappedFile, "commit", early)


def _slot_checksums_believed(patch: Patch) -> None:
    patch.setattr(checkpoint_layout, "_is_whole", lambda data, size: len(data) == size)


def _index_ahead_of_the_log(patch: Patch) -> None:
    patch.setattr(IndexCheckpointer, "_durable", lambda _, position: position)


def _latch_of_workers_forgotten(patch: Patch) -> None:
    def failed(worker: Worker, error: BaseException) -> Any:
        return StoreFailed(str(error))

    patch.setattr(Worker, "_fail", failed)


def _full_disk_is_final(patch: Patch) -> None:
    next_file = Engine._next_file

    def final(engine: Engine, start_offset: int) -> MappedFile:
        try:
            return next_file(engine, start_offset)
        except StoreFull as error:
            engine.fail(StoreFailed(str(error)))
            raise

    patch.setattr(Engine, "_next_file", final)


def _index_files_believed(patch: Patch) -> None:
    patch.setattr(IndexFile, "checksum", lambda _: 0)
    patch.setattr(scrub, "read_checksum", lambda *_: iter([0]))


def _units_counted_as_promised(patch: Patch) -> None:
    load = DurableSlots.load
    promised: list[int] = [0]

    def noted(slots: DurableSlots) -> Any:
        found = load(slots)
        promised[0] = found.unit_count
        return found

    patch.setattr(DurableSlots, "load", noted)
    patch.setattr(QueueTable, "count_units", lambda *_: UnitCount(promised[0]))


def _pool_forgets_what_was_written(patch: Patch) -> None:
    patch.setattr(PoolBuffer, "mark_appended", _nothing)


def _units_believed(patch: Patch) -> None:
    take = PulledRecords.take

    def believed(records: PulledRecords, chosen: Any, **_: bool) -> int:
        return take(records, chosen, rebuilt=True)

    patch.setattr(PulledRecords, "take", believed)


def _after_the_last_size(units: Any, begin: int, end: int, visible_commit_offset: int) -> int:
    while end > begin and not unit_order.is_visible(units, end - 1, visible_commit_offset):
        end -= 1
    return end


def _unit_beside(_: RebuiltUnits, queue_offset: int, extent: Extent, direction: int) -> int | None:
    beside = queue_offset + direction
    return beside if extent.begin <= beside < extent.end else None


def _keep_all(rebuilt: RebuiltUnits, made: Units, begin: int, *_: Any) -> None:
    missing = made["size"] == 0
    made[missing] = rebuilt._held.units(begin, len(made))[missing]


def _always_rebuilding(_: RebuildRequests, topic: str, queue_id: int, __: int) -> None:
    raise QueueRebuilding(topic, queue_id)


def _begin_with_all_units(patch: Patch) -> None:
    begin = Checkpointer.begin

    def promised(checkpointer: Checkpointer, _: tuple[int, int]) -> None:
        begin(checkpointer, checkpointer._progress().dispatched)

    patch.setattr(Checkpointer, "begin", promised)


def _every_repair_counts_as_plain(patch: Patch) -> None:
    plain = property(lambda _: True, _nothing)
    patch.setattr(QueueRepair, "is_plain", plain, raising=False)


def _journal_blocks_believed(patch: Patch) -> None:
    def believed(data: memoryview) -> Iterator[journal.Block]:
        position = number = 0
        while position + journal.HEAD.size <= len(data):
            magic, kind, found_number, size, crc = journal.HEAD.unpack_from(data, position)
            end = position + journal.HEAD.size + size
            if magic != journal.MAGIC or found_number != number or end > len(data):
                return
            yield journal.Block(kind, data[position + journal.HEAD.size : end], end, crc)
            position, number = end, number + 1

    patch.setattr(lease_journal, "blocks_in", believed)


SYNC_CUT = checks.acknowledged_survives_a_cut
DEFECTS = [
    PlantedDefect("a flush without a sync", _set(MappedFile, "flush", _flush_without_sync), SYNC_CUT),
    PlantedDefect("syncs of the log dropped", _drop_sync("commitlog"), SYNC_CUT),
    PlantedDefect("names of log files not synced", _drop_directory_sync("commitlog"), SYNC_CUT),
    PlantedDefect("acknowledged when appended", _policy("sync", False, APPENDED, FLUSHED), SYNC_CUT),
    PlantedDefect(
        "acknowledged when committed, with the pool", _policy("sync", True, COMMITTED, FLUSHED),
        checks.acknowledged_survives_a_cut_with_the_pool,
    ),
    PlantedDefect("bytes of tables not synced", _drop_sync("config"), SYNC_CUT),
    PlantedDefect("names of tables not synced", _drop_directory_sync("config"), SYNC_CUT),
    PlantedDefect(
        "shown before it is flushed", _policy("sync", False, FLUSHED, COMMITTED),
        checks.shown_in_sync_mode_survives_a_cut,
    ),
    PlantedDefect(
        "the pool is not replayed", _set(TransientStorePool, "leftover", lambda _: []),
        checks.acknowledged_survives_a_kill_with_the_pool,
    ),
    PlantedDefect(
        "the pool does not note what was appended", _pool_forgets_what_was_written,
        checks.acknowledged_survives_a_kill_with_the_pool,
    ),
    PlantedDefect(
        "the pool counts as committed before the write", _commit_before_the_write,
        checks.acknowledged_survives_a_kill_with_the_pool,
    ),
    PlantedDefect(
        "recovery does not sync the log", _set(recover, "_sync_log", _nothing),
        checks.served_after_a_kill_survives_a_cut,
    ),
    PlantedDefect(
        "recovery does not write again what a failed sync left",
        _set(MappedFile, "rewrite", _nothing), checks.served_after_a_failed_sync_survives_a_cut,
    ),
    PlantedDefect(
        "a start promises units that it has not synced", _begin_with_all_units,
        start_checks.a_start_promises_no_units_that_it_has_not_synced,
    ),
    PlantedDefect(
        "units that a failed sync lost are believed to be there", _units_counted_as_promised,
        start_checks.what_a_failed_sync_of_queues_lost_is_rebuilt_after_a_cut,
    ),
    PlantedDefect(
        "a start does not have the first checkpoint sync what a dead process wrote",
        _set(OpenQueueFiles, "distrust", _nothing),
        start_checks.what_a_first_checkpoint_promises_of_queues_is_synced,
    ),
    PlantedDefect(
        "a start leaves unsynced what units say and the log does not",
        _every_repair_counts_as_plain,
        start_checks.a_queue_offset_that_only_a_unit_names_is_not_given_out_again,
    ),
    PlantedDefect(
        "the latch of the engine is forgotten", _set(Engine, "fail", _nothing),
        checks.nothing_is_acknowledged_after_a_failed_sync,
    ),
    PlantedDefect(
        "all latches are forgotten", _set(FailureLatch, "check", _nothing),
        checks.a_failed_sync_of_queues_ends_checkpoints,
    ),
    PlantedDefect(
        "a worker tries a failed sync again", _latch_of_workers_forgotten,
        checks.nothing_is_acknowledged_after_a_failed_sync,
    ),
    PlantedDefect("a full disk is final", _full_disk_is_final, checks.a_full_disk_ends_nothing),
    PlantedDefect(
        "the checkpoint takes appended for flushed", _flushed_is_appended,
        checks.the_checkpoint_promises_only_what_is_on_the_disk,
    ),
    PlantedDefect(
        "queues are not synced before the checkpoint", _drop_sync("consumequeue"),
        checks.a_checkpoint_bounds_the_next_start,
    ),
    PlantedDefect(
        "the checkpoint is not synced", _drop_sync("checkpoint"),
        checks.a_checkpoint_bounds_the_next_start,
    ),
    PlantedDefect(
        "a slot is believed whatever its checksum", _slot_checksums_believed,
        checks.a_flipped_slot_is_not_believed,
    ),
    PlantedDefect(
        "stale bytes after the end stay", _set(recover, "_overwrite_tail", _nothing),
        checks.after_the_end_the_log_is_zero,
    ),
    PlantedDefect(
        "units after the end stay", _set(ConsumeQueue, "truncate", _nothing),
        checks.units_beyond_the_end_are_taken_back,
    ),
    PlantedDefect(
        "groups stay after the end of their queue", _set(opening, "lower_offsets", _nothing),
        checks.units_beyond_the_end_are_taken_back,
    ),
    PlantedDefect(
        "the queues' files are believed to be whole", _units_counted_as_promised,
        checks.a_queue_file_that_is_short_costs_nothing,
    ),
    PlantedDefect(
        "queue offsets begin at 0 after a start",
        _set(
            QueueEnds, "of",
            lambda ends, key: ends._next_offsets[ends._place_of[key]] if key in ends._place_of else 0,
        ),
        checks.queue_offsets_go_on_after_a_start,
    ),
    PlantedDefect(
        "a topic without an entry is forgotten", _set(opening, "settle_topics", _nothing),
        checks.a_topic_without_an_entry_has_one_again,
    ),
    PlantedDefect(
        "a deletion is not finished", _set(opening, "_finish_deletion", lambda *a: a[3]),
        checks.a_deletion_is_done_or_has_not_begun,
    ),
    PlantedDefect(
        "the index is promised ahead of the log", _index_ahead_of_the_log,
        checks.the_index_promises_only_what_is_on_the_disk,
    ),
    PlantedDefect(
        "index files are not synced", _drop_sync("store/index/"),
        checks.the_index_promises_only_what_is_on_the_disk,
    ),
    PlantedDefect(
        "index files are believed", _index_files_believed,
        damage_checks.no_flip_of_the_index_hides_a_key,
    ),
    PlantedDefect(
        "units are believed", _units_believed,
        damage_checks.no_flip_of_a_queue_hides_a_record,
    ),
    PlantedDefect(
        "a rebuild takes the next unit for a right one",
        _set(RebuiltUnits, "_nearest", _unit_beside), rebuild_checks.units_in_a_row_are_rebuilt_together,
    ),
    PlantedDefect(
        "a rebuild keeps units wherever they point", _set(RebuiltUnits, "_fill", _keep_all),
        rebuild_checks.the_units_of_a_rebuilt_queue_are_in_order,
    ),
    PlantedDefect(
        "a reader refuses a unit for as long as no record confirms it",
        _set(RebuildRequests, "check", _always_rebuilding),
        rebuild_checks.a_unit_that_no_record_confirms_after_a_rebuild_is_named_alone,
    ),
    PlantedDefect(
        "the size of an empty unit is believed",
        _set(unit_search, "visible_end", _after_the_last_size),
        damage_checks.no_flip_of_a_size_adds_a_unit,
    ),
    PlantedDefect(
        "a lost end of the log is taken for its end",
        _set(recover, "find_lost_end", lambda *_, **__: None),
        damage_checks.a_lost_end_of_the_log_gives_no_offset_twice,
    ),
    PlantedDefect(
        "blocks of the lease journal are believed", _journal_blocks_believed,
        damage_checks.no_flip_of_a_lease_journal_is_believed,
    ),
    PlantedDefect(
        "the checksum of a table is not looked at",
        _set(table_files, "_fingerprints", lambda *_: None),
        damage_checks.no_flip_of_a_groups_offsets_moves_it,
    ),
    PlantedDefect(
        "a record is served without a look at its checksums",
        _set(
            CommitLogView, "check",
            lambda view, offset: (int.from_bytes(view.bytes_at(offset, 4), "big"), STOP_END),
        ),
        damage_checks.no_flip_of_a_record_is_served,
    ),
    PlantedDefect(
        "a staged commit does not look for what is in the log",
        _set(OpenCommit, "find_in_log", _nothing), checks.a_staged_commit_stores_each_record_once,
    ),
    PlantedDefect(
        "a staged commit is not written down before it is appended",
        _set(staged_commits, "save_intent", _nothing),
        checks.a_staged_commit_stores_each_record_once,
    ),
    PlantedDefect(
        "syncs of staged commits dropped", _drop_sync("staged"),
        checks.a_staged_commit_stores_each_record_once,
    ),
    PlantedDefect(
        "syncs of the writer's journal dropped", _drop_sync("journal"),
        checks.a_staged_commit_stores_each_record_once,
    ),
]  # fmt: skip

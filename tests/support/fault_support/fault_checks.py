"""Short histories, each ended where a promise would break first. They raise FaultFound where it is broken.

Each takes a directory for its machine. What a check asks is the name of its function.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from fault_ledger import FaultFound, Place, require
from fault_life import LOG_FILE_SIZE, FaultLife, life_that_lost_its_end
from staged_records import stage

from storage.checkpoint.positions import CheckpointFile, Role
from storage.errors import StoreBusy, StoreError, StoreFailed, StoreFull
from storage.files.filesystem import FileSystem
from storage.format import checkpoint as checkpoint_layout
from storage.format.index import HEADER_SIZE, IndexHeader
from storage.message import Message
from storage.reader import StoreReader
from storage.testing import ProcessStopped
from storage.view.layout import StorePaths
from storage.view.log.recovery_cases import Start
from storage.view.settings import load_settings

Check = Callable[[Path], None]
STEPS_MAX = 300
OFFSETS_OF_A_SLOT = (40, 48)  # lowest bytes of the flushed and the dispatched offset


# ---- acknowledgements


def acknowledged_survives_a_cut(root: Path) -> None:
    """In sync mode, also over the border of a log file; topics without records, and groups, too."""
    life = FaultLife(root)
    life.create()
    life.create("empty", 3)
    life.put(2)
    life.put(6, size=LOG_FILE_SIZE // 4)
    life.ledger.commit(life.store, "g", "t", 0, 3)
    life.cut()
    life.open()
    life.require_durable()


def acknowledged_survives_a_cut_with_the_pool(root: Path) -> None:
    life = FaultLife(root, pool=True)
    life.create()
    life.put(3)
    life.cut()
    life.open()
    life.require_durable()


def acknowledged_survives_a_kill_with_the_pool(root: Path) -> None:
    """In async mode, at whichever step the pool is being written to the file."""
    for step in range(1, STEPS_MAX):
        life = FaultLife(root / str(step), "async", pool=True)
        life.create()
        life.put(3)
        life.disk.stop_after(step, kills=True)
        try:
            life.step("commit")
            life.put(1)
            life.disk.stop_at = 0
            was_stopped = False
        except ProcessStopped:
            was_stopped = True
        life.kill()
        life.open()
        life.require_all()
        if not was_stopped:
            return


def shown_in_sync_mode_survives_a_cut(root: Path) -> None:
    life = FaultLife(root)
    life.create()
    life.put(1)
    sent = life.send(2)
    life.step("dispatch")
    with StoreReader.open(life.directory, filesystem=life.disk) as reader:
        seen = reader.pull("t", 0, queue_offset=1).queue_offsets
    life.cut()
    life.open()
    served = life.store.pull("t", 0, queue_offset=0).queue_offsets
    require(set(seen) <= set(served), f"{seen} of {len(sent)} were seen, {served} are left")
    life.require_all()


def served_after_a_kill_survives_a_cut(root: Path) -> None:
    """What a start has recovered from the page cache is durable before it is served."""
    life = FaultLife(root, "async")
    life.create()
    life.put(6, size=LOG_FILE_SIZE // 4)  # over the border of a file
    life.kill()
    life.open()
    life.require_durable()


def served_after_a_failed_sync_survives_a_cut(root: Path) -> None:
    """The kernel takes pages for written that it could not write: the next start writes them again."""
    life = FaultLife(root, "async")
    life.create()
    life.put(3)
    fail_next_sync(life, "commitlog")
    life.step("flush")
    life.kill()
    life.open()
    life.require_durable()


def fail_next_sync(life: FaultLife, path: str) -> None:
    life.disk.fault = (errno.EIO, life.disk.step_count)
    life.disk.faults_left = 1
    life.disk.fault_at = path
    life.disk.fault_leaves = "none"


def nothing_is_acknowledged_after_a_failed_sync(root: Path) -> None:
    for mode in ("sync", "async"):
        life = FaultLife(root / mode, mode)  # type: ignore[arg-type]
        life.create()
        life.put(1)
        fail_next_sync(life, "commitlog")
        life.send(1)
        life.step("flush")
        try:
            life.put(1)
        except StoreFailed:
            pass
        else:
            raise FaultFound(f"{mode}: acknowledged after a failed sync")
        try:
            life.create("later")
        except StoreFailed:
            continue
        raise FaultFound(f"{mode}: a topic was made after a failed sync")


def a_failed_sync_of_queues_ends_checkpoints(root: Path) -> None:
    life = FaultLife(root)
    life.create()
    life.put(2)
    life.step("dispatch")
    fail_next_sync(life, "consumequeue")
    life.step("checkpoint")
    promised = durable(life).dispatched_offset
    life.step("checkpoint")
    require(durable(life).dispatched_offset == promised, "a second sync was believed")


def a_full_disk_ends_nothing(root: Path) -> None:
    life = FaultLife(root)
    life.create()
    life.put(1)
    life.disk.fault = (errno.ENOSPC, life.disk.step_count)
    life.disk.faults_left = 5
    try:
        for _ in range(12):
            life.put(1, size=LOG_FILE_SIZE // 3)
    except (StoreFull, StoreBusy):
        pass
    life.disk.fault = None
    life.step("allocate")
    try:
        life.put(6, size=LOG_FILE_SIZE // 4)
    except StoreError as error:
        raise FaultFound(f"refused though there is space: {error!r}") from error
    life.cut()
    life.open()
    life.require_all()


# ---- the checkpoint


def durable(life: FaultLife):  # type: ignore[no-untyped-def]
    """What the page on the disk promises."""
    page = CheckpointFile.open(FileSystem(), life.directory / "checkpoint", Role.READER)
    try:
        return page.durable.load()
    finally:
        page.close()


def the_checkpoint_promises_only_what_is_on_the_disk(root: Path) -> None:
    life = FaultLife(root, "async")
    life.create()
    life.put(2)
    life.step("flush", "dispatch", "checkpoint")
    life.put(3)
    life.step("dispatch", "checkpoint")
    life.cut()
    held, promised = life.last_byte(), durable(life)
    require(promised.flushed_offset <= held, f"{promised}, but the log ends at {held}")
    require(promised.dispatched_offset <= promised.flushed_offset, promised)


def a_checkpoint_bounds_the_next_start(root: Path) -> None:
    """After a cut only what came after the checkpoint is read: its queues and its page were synced."""
    life = FaultLife(root)
    life.create()
    life.put(5)
    life.step("dispatch", "checkpoint")
    life.put(1)
    life.cut()
    life.open()
    recovered = life.store.writer.recovered
    require(recovered.start is Start.BOUNDED and recovered.record_count == 1, recovered)
    life.require_all()


def a_flipped_slot_is_not_believed(root: Path) -> None:
    """The newest slot, one low bit of one of its offsets: a start ends the log where it did."""
    for position in OFFSETS_OF_A_SLOT:
        for bit in (0, 2, 5):
            life = FaultLife(root / f"{position}-{bit}")
            life.create()
            for _ in range(3):
                life.put(1)
                life.step("dispatch", "checkpoint")
            life.kill()
            path = life.directory / "checkpoint"
            page = bytearray(path.read_bytes())
            slots = checkpoint_layout.writer_slots(bytes(page))
            newest = max(slots, key=lambda at: slots[at].sequence)
            page[newest + position] ^= 1 << bit
            path.write_bytes(page)
            life.disk.trust(path)
            promised = durable(life)
            require(promised.flushed_offset <= life.last_byte(), f"{position} {bit}: {promised}")
            life.open()
            life.require_all()
            life.put(1)
            life.require_durable()


# ---- recovery


def after_the_end_the_log_is_zero(root: Path) -> None:
    """What a torn write left beyond the last whole record never comes back."""
    life = FaultLife(root)
    life.create()
    life.put(2)
    end = life.store.writer.appended_offset
    life.kill()
    path = life.directory / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[end + 64 : end + 96] = b"left by a write that was torn..."
    path.write_bytes(data)
    life.disk.trust(path)
    life.open()
    require(not any(path.read_bytes()[end:]), "stale bytes are left after the end")
    life.require_all()


def a_torn_record_is_nothing(root: Path) -> None:
    """Its head reached the disk and its end did not; it was not acknowledged."""
    life = FaultLife(root)
    life.create()
    life.put(2)
    end = life.store.writer.appended_offset
    (message,) = life.messages(1, size=2_000)
    life.store.writer.put([message])
    life.kill()
    path = life.directory / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[end + 1_000 :] = bytes(len(data) - end - 1_000)
    path.write_bytes(data)
    life.disk.trust(path)
    life.open()
    life.require_all()


def units_beyond_the_end_are_taken_back(root: Path) -> None:
    """Queues reached the disk and the log did not: queue offsets and groups end with the log."""
    life = life_that_lost_its_end(root, syncs_queues=True)
    life.ledger.groups["g", "t", 0] = 1  # lowered to the end
    life.open()
    life.require_all()
    life.put(1, size=1_000)  # the log ends after what the lost records' units point to
    require(Place("t", 0, 1) in life.ledger.entries, life.ledger.entries)
    life.step("dispatch")
    life.require_all()


def a_queue_file_that_is_short_costs_nothing(root: Path) -> None:
    life = FaultLife(root)
    life.create()
    life.put(5)
    life.store.close()
    path = next((life.directory / "consumequeue" / "t" / "0").iterdir())
    os.truncate(path, 40)
    life.disk.trust(path)
    life.kill()
    life.open()
    life.require_all()
    life.put(1)
    life.require_all()


def a_topic_without_an_entry_has_one_again(root: Path) -> None:
    life = FaultLife(root)
    life.create()
    life.put(2)
    life.store.close()
    for path in (life.directory / "config").glob("topics.json*"):
        path.unlink()
    life.disk.trust(life.directory / "config")
    life.kill()
    life.open()
    life.require_all()


def a_deletion_is_done_or_has_not_begun(root: Path) -> None:
    for step in range(1, STEPS_MAX):
        life = FaultLife(root / str(step))
        life.create()
        life.create("other")
        life.put(2)
        life.step("dispatch", "checkpoint")
        life.disk.stop_after(step, leaves="none")
        try:
            life.store.delete_topic("t")
            life.disk.stop_at = 0
            was_stopped = False
        except ProcessStopped:
            was_stopped = True
        life.cut()
        life.open()
        there = "t" in {topic.name for topic in life.store.list_topics()}
        queues = {topic for topic, _ in life.store.reader.queues_on_disk()}
        require(was_stopped or not there, "deleted, and there again")
        require(there == ("t" in queues), f"topic {there}, queues {queues}")
        deleted = load_settings(life.disk, StorePaths(life.directory)).deleted_topics
        require(there == ("t" not in deleted), f"topic {there}, deleted {deleted}")
        if not there:
            life.ledger.topics.pop("t")
            life.ledger.entries.clear()
        life.require_all()
        if not was_stopped:
            return


# ---- index


def the_index_promises_only_what_is_on_the_disk(root: Path) -> None:
    life = FaultLife(root, "async")
    life.create()
    life.put(2)
    life.step("flush", "dispatch", "index")
    indexer = life.store._indexer
    assert indexer is not None
    indexer.sync()
    life.put(3)
    life.step("dispatch", "index")
    indexer.sync()
    life.cut()
    page = CheckpointFile.open(FileSystem(), life.directory / "checkpoint", Role.READER)
    slot = page.durable.load_index()
    page.close()
    held = life.last_byte()
    require(
        slot.indexed_offset <= held, f"indexed to {slot.indexed_offset}, the log ends at {held}"
    )
    if slot.present and slot.file_name:
        promised = IndexHeader.decode(slot.file_header)
        file = max((life.directory / "index").iterdir())
        there = IndexHeader.decode(file.read_bytes()[:HEADER_SIZE].ljust(HEADER_SIZE, b"\0"))
        require(promised.next_entry <= there.next_entry, f"{promised}, but there is {there}")
    life.open()


# ---- staged commits


def a_staged_commit_stores_each_record_once(root: Path) -> None:
    """Killed, or cut off, at every second step, and repeated by its client."""
    for kills in (True, False):
        for step in range(1, STEPS_MAX, 2):
            if not _staged(root / f"{kills}-{step}", step, kills=kills):
                break


def _staged(root: Path, step: int, *, kills: bool) -> bool:
    life = FaultLife(root)
    life.create()
    bodies = [b"first", b"second", b"third"]
    commits = life.store.writer.staged
    stage(commits, "app", 1, "a", [bodies])
    life.disk.stop_after(step, kills=kills, leaves="none")
    was_stopped = True
    try:
        commits.commit("app", 1, ["a"])
        was_stopped = False
        life.disk.stop_at = 0
    except ProcessStopped:
        pass
    if kills:
        life.kill()
    else:
        life.cut()
    life.open()
    try:
        _, already = life.store.writer.staged.commit("app", 1, ["a"])
    except StoreError as error:
        raise FaultFound(f"stopped at {step}, and refused when repeated: {error!r}") from error
    require(was_stopped or already, "an acknowledged commit is not known")
    life.step("dispatch")
    data = b"".join(life.store.pull("t", 0, queue_offset=0).slices)
    counts = [data.count(body) for body in bodies]
    require(counts == [1, 1, 1], f"stopped at {step}: {counts}")
    return was_stopped


def queue_offsets_go_on_after_a_start(root: Path) -> None:
    life = FaultLife(root)
    life.create()
    for closes in (False, True):
        life.put(2)
        if closes:
            life.store.close()
        life.kill()
        life.open()
    life.put(2)
    life.store.writer.put([Message(topic="t", queue_id=0, body=b"x")])
    life.ledger.in_flight.add(b"x")
    life.require_all()

"""Short histories of starts that leave queues for the first checkpoint to sync. They raise FaultFound like fault_checks."""

from __future__ import annotations

from pathlib import Path

from fault_checks import fail_next_sync
from fault_ledger import require
from fault_life import FaultLife
from flips import flip

from storage.format.names import file_name
from storage.message import Message
from storage.view.log.recovery_cases import Start


def _require_bounded(life: FaultLife) -> None:
    """Start after a cut: its checkpoint holds, and nothing is missing."""
    life.cut()
    life.open()
    require(life.store.writer.recovered.start is Start.BOUNDED, life.store.writer.recovered)
    life.require_all()


def a_start_promises_no_units_that_it_has_not_synced(root: Path) -> None:
    life = FaultLife(root)
    life.create()
    life.put(3)
    life.step("dispatch")
    life.kill()
    life.open()
    _require_bounded(life)


def what_a_first_checkpoint_promises_of_queues_is_synced(root: Path) -> None:
    life = FaultLife(root)
    life.create()
    life.put(3)
    life.step("dispatch")
    life.kill()
    life.open()
    life.step("checkpoint")
    _require_bounded(life)


def what_a_failed_sync_of_queues_lost_is_rebuilt_after_a_cut(root: Path) -> None:
    life = FaultLife(root)
    life.create()
    life.put(3)
    life.step("dispatch")
    fail_next_sync(life, "consumequeue")
    life.step("checkpoint")
    life.kill()
    life.open()
    life.step("checkpoint")
    life.cut()
    life.open()
    require(life.store.max_offset("t", 0) == 3, "units are missing")
    life.require_all()


def a_queue_offset_that_only_a_unit_names_is_not_given_out_again(root: Path) -> None:
    """The last record of a queue is damaged: what a start made of it holds through a cut right after it."""
    life = FaultLife(root)
    life.create(queue_count=2)
    life.put(2)
    place = life.store.put(Message(topic="t", queue_id=0, body=b"the last of its queue"))
    life.store.put(Message(topic="t", queue_id=1, body=b"x"))
    life.step("checkpoint", "dispatch")  # it promises the records, and no unit yet
    life.kill()
    path = life.directory / "commitlog" / file_name(0)
    flip(path, place.commit_offset + 90)  # in its body
    life.disk.trust(path)
    for _ in range(2):
        life.open()
        end = life.store.max_offset("t", 0)
        require(end == place.queue_offset + 1, f"the queue ends at {end}")
        life.cut()

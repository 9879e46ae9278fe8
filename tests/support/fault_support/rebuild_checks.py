"""The rebuild of queues beside a running writer: each check raises FaultFound where it leaves more than the log lost.

Each takes a directory for its store. What a check asks is the name of its function.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from fault_ledger import Place, require
from fault_life import FaultLife
from flips import flip, overwrite

from storage.format.consume_entry import UNIT_SIZE
from storage.format.record_layout import QUEUE_OFFSET_POSITION
from storage.view.queues.units import as_units

COUNT = 40
BAD = 20


def _filled(root: Path) -> FaultLife:
    life = FaultLife(root)
    life.create()
    life.put(COUNT)
    life.step("dispatch")
    life.store.pull("t", 0, queue_offset=0)  # the reader looks at the topics again
    return life


def _queue(life: FaultLife) -> Path:
    return min((life.directory / "consumequeue/t/0").iterdir())


def _change_record(life: FaultLife, position: int) -> Place:
    """Flip a bit of a record in the log; return its place."""
    place = Place("t", 0, BAD)
    entry = life.ledger.entries[place]
    path = life.directory / "commitlog" / f"{0:020d}"
    flip(path, entry.commit_offset + position)
    return place


def units_in_a_row_are_rebuilt_together(root: Path) -> None:
    """The nearest units on both sides are wrong, too."""
    life = _filled(root)
    path = _queue(life)
    whole = path.read_bytes()
    overwrite(path, (BAD - 2) * UNIT_SIZE, bytes(5 * UNIT_SIZE))
    life.require_all()
    require(path.read_bytes() == whole, "the units are not what they were")


def the_units_of_a_rebuilt_queue_are_in_order(root: Path) -> None:
    """A unit that points elsewhere while its record is damaged does not stay."""
    life = _filled(root)
    place = _change_record(life, QUEUE_OFFSET_POSITION + 60)
    path = _queue(life)
    overwrite(path, BAD * UNIT_SIZE, b"\1")
    verdict = life.verdict()
    require(verdict.damaged == {place} and not verdict.is_silent_loss, verdict)
    offsets = as_units(path.read_bytes())["offset"][:COUNT].astype(np.int64)
    require(bool(np.all(np.diff(offsets) >= 0)), f"commit offsets {offsets.tolist()}")


def a_unit_that_no_record_confirms_after_a_rebuild_is_named_alone(root: Path) -> None:
    life = _filled(root)
    place = _change_record(life, QUEUE_OFFSET_POSITION + 7)
    verdict = life.verdict()
    require(verdict.damaged == {place}, verdict)
    require(not verdict.is_silent_loss and not verdict.is_wrong, verdict)

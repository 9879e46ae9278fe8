"""Groups' offsets after kills and power cuts: what a start shows of them stays, and none is ahead of its queue."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_life import FaultLife, life_that_lost_its_end
from full_filesystem import full
from steps_to_try import ALL_STEPS

from storage.errors import StoreFull
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.testing import ProcessStopped


def test_a_start_on_a_full_disk_leaves_no_group_ahead_of_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = life_that_lost_its_end(tmp_path)

    with monkeypatch.context() as patch:
        patch.setattr(ConsumerOffsets, "save", full)
        with pytest.raises(StoreFull):
            life.open()
    life.open()
    life.ledger.groups["g", "t", 0] = 1
    life.put(3)

    life.require_all()


def test_what_a_start_shows_of_a_save_that_was_killed_outlives_a_power_cut(tmp_path: Path) -> None:
    """At each of its steps, of the first save and of a later one."""
    for first in (True, False):
        shown = set()
        for step in range(1, 40, 1 if ALL_STEPS else 3):
            life = FaultLife(tmp_path / f"{first}-{step}")
            life.create()
            life.put(2)
            life.step("dispatch")
            if not first:
                life.ledger.commit(life.store, "g", "t", 0, 1)
            life.disk.stop_after(step, kills=True)
            try:
                life.ledger.commit(life.store, "g", "t", 0, 2)
                life.disk.stop_at = 0
                was_stopped = False
            except ProcessStopped:
                was_stopped = True
            life.kill()
            life.open()
            held = life.store.reader.committed_offset("g", "t", 0)
            life.cut()
            life.open()
            assert life.store.reader.committed_offset("g", "t", 0) == held, step
            shown.add(held)
            if not was_stopped:
                break
        assert shown == {None if first else 1, 2}

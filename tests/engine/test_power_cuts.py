"""Power cuts, kills and failing disks at any step of a whole store: what it has acknowledged or shown is there.

Each seed is a store with a life of its own: what it is asked to do, where it is stopped and what that
leaves of its files is all taken from the seed. ``CUTS=20000`` makes more of them (``make power-cuts``).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cut_store import CutStore

from storage.queues import queue_files

SESSIONS = 9  # of a store; each ends with a cut, a kill, or first a close
SHARES = 4
CUTS = int(os.environ.get("CUTS", "160"))
ONE_BY_ONE = queue_files.SYNCED_ONE_BY_ONE_MAX
MODES = [("sync", False), ("async", False), ("sync", True), ("async", True)]


@pytest.mark.parametrize("share", range(SHARES))
def test_nothing_acknowledged_or_shown_is_lost_and_nothing_is_invented(
    tmp_path: Path, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third store syncs its file system once where others sync queue files one by one."""
    cuts, seed = 0, share
    while cuts < CUTS / SHARES:
        mode, pool = MODES[seed % len(MODES)]
        one_by_one = 1 if seed // SHARES % 3 == 1 else ONE_BY_ONE
        monkeypatch.setattr(queue_files, "SYNCED_ONE_BY_ONE_MAX", one_by_one)
        store = CutStore(
            tmp_path / str(seed), seed, flush_mode=mode, transient_pool=pool,
            faulty=seed // SHARES % 2 == 1,
        )  # fmt: skip
        try:
            store.run(SESSIONS)
        except BaseException as error:
            error.add_note(f"seed {seed}, {mode}, pool {pool}\n" + "\n".join(store.log[-30:]))
            raise
        cuts += store.cuts
        seed += SHARES

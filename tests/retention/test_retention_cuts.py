"""Stores that delete their old files go down at any step: what is above the minimum is there, and found by key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cut_store import CutStore

CUTS = int(os.environ.get("CUTS", "80")) // 4
SHARES = 2
SESSIONS = 9
MODES = [("sync", False), ("async", False), ("sync", True), ("async", True)]


@pytest.mark.parametrize("share", range(SHARES))
def test_nothing_above_the_minimum_is_lost(tmp_path: Path, share: int) -> None:
    cuts, seed, deleted = 0, share, 0
    while cuts < CUTS / SHARES or not deleted:
        mode, pool = MODES[seed // SHARES % len(MODES)]
        store = CutStore(
            tmp_path / str(seed), seed, flush_mode=mode, transient_pool=pool,
            faulty=seed // SHARES % 3 == 2, retains=True,
        )  # fmt: skip
        try:
            store.run(SESSIONS)
        except BaseException as error:
            error.add_note(f"seed {seed}, {mode}, pool {pool}\n" + "\n".join(store.log[-30:]))
            raise
        cuts += store.cuts
        deleted += store.deleted_count
        assert cuts < 100 * CUTS, "no store came to delete a file"
        seed += SHARES

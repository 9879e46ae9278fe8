"""A supervisor's look at the store's directory: moved is what has gone, not what cannot be looked at."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from services.supervisor import StorePlace


def test_a_directory_that_was_renamed_or_removed_or_replaced_has_moved(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    place = StorePlace(tmp_path / "store")
    assert not place.has_moved
    place.remember()
    assert not place.has_moved
    (tmp_path / "store").rename(tmp_path / "other")
    assert place.has_moved
    (tmp_path / "store").mkdir()
    assert place.has_moved


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.EACCES])
def test_a_directory_that_cannot_be_looked_at_now_has_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def failing(path: Path, **_: bool) -> None:
        raise OSError(number, os.strerror(number), str(path))

    place = StorePlace(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", failing)
        place.remember()
    place.remember()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", failing)
        assert not place.has_moved
    assert not place.has_moved

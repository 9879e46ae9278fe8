"""A supervisor's look at the store's directory before it starts a service again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from services.supervisor import Child, _directory_at


@pytest.fixture
def child(tmp_path: Path) -> Child:
    """A writer that has served a store."""
    (tmp_path / "store").mkdir()
    served = Child("writer", [], tmp_path / "store")
    served._served_at = _directory_at(tmp_path / "store")
    return served


def test_a_directory_that_was_renamed_or_replaced_has_moved(child: Child, tmp_path: Path) -> None:
    assert not child._has_moved()
    (tmp_path / "store").rename(tmp_path / "other")
    assert child._has_moved()
    (tmp_path / "store").mkdir()
    assert child._has_moved()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.EACCES])
def test_a_directory_that_a_failing_device_hides_has_not_moved(
    child: Child, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def failing(path: Path, **_: bool) -> None:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "stat", failing)
        assert not child._has_moved()
    assert not child._has_moved()

"""A store of delayed messages; its timers a broker would not take over, but for tests of that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hand_store import TimerStore

from storage.timers import hand_over


@pytest.fixture(autouse=True)
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's wheel has 39 MB, which each close writes; nobody but a broker reads it."""
    monkeypatch.setattr(hand_over, "WHEEL_SLOTS", 3_600)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TimerStore]:
    opened = TimerStore(tmp_path)
    yield opened
    opened.close()

"""For tests of transactions: a store that is closed at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hand_store import HandStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HandStore]:
    opened = HandStore(tmp_path / "store")
    yield opened
    opened.close()

"""For tests of transactions: a store that is closed at the end."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from transaction_store import TransactionStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TransactionStore]:
    opened = TransactionStore(tmp_path / "store")
    yield opened
    opened.writer.close()

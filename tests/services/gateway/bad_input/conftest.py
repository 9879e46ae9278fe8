"""A gateway before a real writer and reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from messaging_bed import MessagingBed


@pytest.fixture(name="bed", scope="module")
def _bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagingBed]:
    with ExitStack() as stack:
        yield MessagingBed(tmp_path_factory.mktemp("bad") / "store", stack)

"""A gateway as a port of the reader, before a real writer, all in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from messaging_bed import MessagingBed

from services.rpc import limits
from storage.files.open_files import at_most

TOLD_APART = 777  # of connections


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagingBed]:
    with ExitStack() as stack:
        made = MessagingBed(tmp_path_factory.mktemp("gateway") / "store", stack)
        made.create("orders", 4)
        made.create("ordered", 4, "FIFO")
        yield made


@pytest.fixture
def port_shares(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One part of how many a server with ``TOLD_APART`` connections may take of the open files, on each address."""
    shares = []

    def noted(wanted: int, *, share: int) -> int:
        if wanted == TOLD_APART:
            shares.append(share)
        return at_most(wanted, share=share)

    monkeypatch.setattr(limits.open_files, "at_most", noted)
    return shares

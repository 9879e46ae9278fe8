"""A gateway before a real writer and reader: a port of the reader, or a service of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from messaging_bed import MessagingBed


@pytest.fixture(
    name="bed", scope="module", params=[False, True], ids=["of the reader", "of its own"]
)
def _bed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MessagingBed]:
    store = tmp_path_factory.mktemp("bad") / "store"
    with ExitStack() as stack:
        yield MessagingBed(store, stack, has_own_gateway=request.param)

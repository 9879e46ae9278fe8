"""A gateway before a real writer and reader: a port of the reader, or a service of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from messaging_bed import MessagingBed
from steps_to_try import cases_to_try


@pytest.fixture(
    name="bed",
    scope="module",
    params=cases_to_try([False, True]),
    ids=lambda is_own: "of its own" if is_own else "of the reader",
)
def _bed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MessagingBed]:
    store = tmp_path_factory.mktemp("bad") / "store"
    with ExitStack() as stack:
        yield MessagingBed(store, stack, has_own_gateway=request.param)

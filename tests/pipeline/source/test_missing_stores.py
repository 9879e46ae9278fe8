"""A read of a store that is not there names the option that led to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import NotAStore
from pipeline.source.options import parse_options
from pipeline.source.plan import plan_messages
from pipeline.source.stream.stream import open_views
from pipeline.source.tables import parts_of


@pytest.mark.parametrize(
    "read",
    [
        lambda store: plan_messages(parse_options({"store": store})),
        lambda store: parts_of(parse_options({"store": store}).stores[0], "queues"),
        lambda store: open_views(parse_options({"store": store}, streaming=True)),
    ],
    ids=["batch", "table", "stream"],
)
def test_a_missing_store_is_named_with_its_option(
    tmp_path: Path, read: Callable[[str], object]
) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(NotAStore) as raised:
        read(str(missing))
    assert str(raised.value) == f"option 'store': {missing}: no such directory"

"""One Spark session for all tests of the pipeline, with two slots and little memory."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

collect_ignore_glob = [] if find_spec("pyspark") else ["*test_*.py"]
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here carry the marker, so that ``make test`` leaves them to ``make test-spark``."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from pipeline import build_session

    session = build_session(
        "local[2]",
        "penstock tests",
        {"spark.driver.memory": "2g", "spark.log.level": "ERROR"},
    )
    yield session
    session.stop()

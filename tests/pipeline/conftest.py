"""Tests of the pipeline: plain Python and pyarrow where they can be, and one Spark session for the rest.

A test that asks for the fixture ``spark`` gets the marker of that name and its worker's one session. A
test that starts Spark in a process of its own carries the marker by hand. All others run without a
JVM: a session that they ask for is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from engine_store import small_config
from service_process import WriterProcess

from storage import MessageStore

HERE = Path(__file__).parent
INSTALLED = all(map(find_spec, ("pyspark", "pyarrow")))
collect_ignore_glob = [] if INSTALLED else ["*test_*.py"]
# C1 alone and one collector thread: a session lives for minutes, in which C2 never pays.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_report_header() -> list[str]:
    return (
        [] if INSTALLED else ["tests/pipeline is left out: make setup-spark installs what it needs"]
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what uses the session, and run it first: then one worker of xdist has it, and starts Spark."""
    for item in items:
        if HERE in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    items.sort(key=lambda item: "spark" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The worker's session: two slots, little memory, a JVM that starts quickly."""
    from pipeline import build_session
    from pipeline.session.session import JAVA_OPTIONS as DEFAULTS
    from pipeline.session.session import register

    session = build_session(
        "local[2]",
        "penstock tests",
        {
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": DEFAULTS.replace("-XX:+UseParallelGC", JAVA_OPTIONS),
            "spark.log.level": "ERROR",
        },
    )
    register(session)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriterProcess]:
    """A writer process with a store of its own, and topics to write to."""
    with WriterProcess(tmp_path_factory.mktemp("written") / "store") as process:
        with process.client() as client:
            for name in ("rows", "other", "lines", "again", "named"):
                client.create_topic(name, queues=4)
            client.create_topic("narrow", queues=1)
        yield process


@pytest.fixture
def live(tmp_path: Path) -> Iterator[MessageStore]:
    """A store of small files in ``s`` whose writer runs; topic t has 3 queues, u has 1."""
    with MessageStore.open(tmp_path / "s", small_config()) as store:
        store.create_topic("t", 3)
        store.create_topic("u", 1)
        yield store


@pytest.fixture(autouse=True)
def _session_as_it_was(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test the session has the settings it had before, no stream, no cached table."""
    if "spark" not in request.fixturenames:
        yield
        return
    session = request.getfixturevalue("spark")
    before = dict(session.conf.getAll)
    yield
    for query in session.streams.active:
        query.stop()
    session.catalog.clearCache()
    after = dict(session.conf.getAll)
    for name in filter(session.conf.isModifiable, after.keys() - before.keys()):
        session.conf.unset(name)
    for name, value in before.items():
        if after.get(name) != value and session.conf.isModifiable(name):
            session.conf.set(name, value)


@pytest.fixture(autouse=True)
def _no_session_unasked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test without the marker that starts Spark, or uses what another test started, fails."""
    if request.node.get_closest_marker("spark"):
        return
    from pyspark.sql import SparkSession

    def refuse(*_: Any) -> None:
        raise AssertionError("this test starts Spark: give it the fixture or the marker 'spark'")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)

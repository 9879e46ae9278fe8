"""For all tests: how long an example or a disk takes, on whatever machine, is not a property."""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# What tests call is on this machine, also where a proxy leads elsewhere.
os.environ["no_proxy"] = ",".join(
    each for each in (os.environ.get("no_proxy"), "localhost", "127.0.0.1", "::1") if each
)
settings.register_profile(
    "penstock", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("penstock")


def pytest_collection_finish() -> None:
    """Have no collection walk again what thousands of collected tests are."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _patient_with_disks() -> Iterator[None]:
    """A store of a test waits for its next log file; a fraction of a second is too short for some disks."""
    from storage.files import allocator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocator, "TAKE_WAIT_S", 60.0)
        yield


@pytest.fixture
def instant_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs that take no time, for tests in which no real disk loses its power: a kill takes nothing from the page cache."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)

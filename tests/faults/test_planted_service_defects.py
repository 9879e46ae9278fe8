"""The beds of running services can fail: each finds a defect that is planted in a service's process."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from defective_service import DEFECTS
from failing_calls import SHORT, FailingCall
from service_faults import fail_under_load, kill_together
from service_trio import Defects

History = Callable[[Path, Defects], object]


def kill_all(root: Path, defects: Defects) -> None:
    """Kill all three services."""
    dice = random.Random(1)
    dice.choice = lambda several: several[-1]  # type: ignore[method-assign]
    kill_together(root, "async", 1, dice, defects=defects)


def fail(mode: str, call: str, error: int) -> History:
    """Every call of a kind that the writer makes in a while."""
    failing = FailingCall(call, error, count=0)
    return lambda root, defects: fail_under_load(root, "writer", mode, failing, defects=defects)


class Found(NamedTuple):
    """How a defect of a service is found, and what is said of it."""

    service: str
    history: History
    says: str


FINDINGS = {
    "failed sync is done": Found(
        "writer", fail("sync", "fdatasync", errno.EIO), "goes on after a failed sync"
    ),
    "short write is whole": Found(
        "writer", fail("async, pool", "pwrite", SHORT), r"second record|damaged|(lost|wrong)=\{"
    ),
    "error of the system goes out": Found(
        "writer", fail("async", "fallocate", errno.EIO), "StatusCode.INTERNAL"
    ),
    "full disk is final": Found(
        "writer", fail("async", "fallocate", errno.ENOSPC), "did not happen in time"
    ),
    "group progress is not saved": Found("reader", kill_all, r"groups=\{"),
}


def test_every_defect_has_a_history() -> None:
    assert FINDINGS.keys() == DEFECTS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_of_a_service_is_found(memory_path: Path, defect: str) -> None:
    finding = FINDINGS[defect]
    with pytest.raises(AssertionError, match=finding.says):
        finding.history(memory_path, {finding.service: defect})

"""One call of the operating system fails under a service: every answer is documented, and nothing is lost.

Each run starts the services, has some call of one of them fail under load, and restarts that service with the
failure gone; then the store is held against the ledger. ``FAILING_CALLS=300`` makes so many runs, with other
calls and moments; without it there are two. `make faults` runs it: tests/e2e/test_failing_disks.py is its sample.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from failing_calls import SHORT, FailingCall
from service_faults import MODES, fail_under_load

RUNS = int(os.environ.get("FAILING_CALLS", "0"))
FEW = (
    ("writer", "sync", FailingCall("fdatasync", errno.EIO, 3)),
    ("writer", "async", FailingCall("pwrite", errno.ENOSPC, 2)),
)
KINDS = {
    "write": (errno.EIO, errno.ENOSPC, SHORT),
    "pwrite": (errno.EIO, errno.ENOSPC, SHORT),
    "pread": (errno.EIO,),
    "fsync": (errno.EIO, errno.ENOSPC),
    "fdatasync": (errno.EIO, errno.ENOSPC),
    "syncfs": (errno.EIO,),
    "open": (errno.EIO, errno.ENOSPC, errno.EMFILE),
    "rename": (errno.EIO, errno.ENOSPC),
    "link": (errno.EIO, errno.ENOSPC),
    "ftruncate": (errno.EIO, errno.ENOSPC),
    "fallocate": (errno.EIO, errno.ENOSPC),
    "mmap": (errno.ENOMEM,),
}


def runs() -> Iterator[tuple[str, str, FailingCall, bool]]:
    """Give service, mode, what fails, and whether it fails from the service's start on."""
    if not RUNS:
        yield from ((*each, False) for each in FEW)
        return
    dice = random.Random(RUNS)
    every = [FailingCall(call, error) for call, errors in KINDS.items() for error in errors]
    for number in range(RUNS):
        failing = every[number % len(every)]._replace(
            first=dice.choice((1, 1, 2, 3, 5, 8, 13, 30)), count=dice.choice((1, 1, 3, 0))
        )
        service = dice.choice(("writer", "writer", "writer", "reader", "indexer"))
        yield service, dice.choice(list(MODES)), failing, dice.random() < 0.25


@pytest.mark.slow
@pytest.mark.timeout(14_400)
def test_a_failing_call_loses_nothing_and_its_answers_are_documented(
    memory_path: Path, fault_report: list[str]
) -> None:
    met: Counter[str] = Counter()
    statuses: Counter[str] = Counter()
    count = 0
    try:
        for number, (service, mode, failing, at_start) in enumerate(runs()):
            root = memory_path / str(number)
            root.mkdir()
            try:
                codes, failed = fail_under_load(root, service, mode, failing, at_start=at_start)
            except BaseException as error:
                error.add_note(f"{service}, {mode}, {failing}, at its start: {at_start}")
                raise
            count += 1
            statuses.update(codes)
            met[f"{service}: {failing.name}"] += bool(failed)
            assert failed or RUNS, f"no call failed: {failing}"
    finally:
        fault_report.append(
            f"failing calls: nothing lost in {count} runs; in {sum(met.values())} of them a call failed:"
            f" {dict(sorted((+met).items()))}; statuses {dict(statuses)}"
        )

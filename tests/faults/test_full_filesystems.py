"""A small file system fills up under all three services and gets space again, without a restart.

While it is full, producers are refused and consumers go on; once there is space, producing works again
within seconds. ``FILL_UPS=100`` fills it so often in each mode; without it once. ext4 needs root and loop
devices.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import loop_mount
import pytest
from fault_ledger import Ledger
from loop_mount import LoopMount
from service_checks import finish
from service_faults import MODES, fill_up, flags_of
from service_load import ServiceLoad
from service_trio import ServiceTrio

FILL_UPS = int(os.environ.get("FILL_UPS", "0"))
IMAGE_BYTES = 384 << 20
SPACE_OF_A_FILL_UP = 6 << 20  # what the load stores meanwhile, at most
FEW = [("tmpfs", "async")]
EVERY = [(kind, mode) for kind in ("ext4", "xfs", "tmpfs") for mode in MODES]


@pytest.fixture
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LoopMount]:
    mount = loop_mount.mounted(tmp_path, request.param[0], IMAGE_BYTES)
    yield mount
    gc.collect()  # what readers had mapped
    mount.unmount()


@pytest.mark.slow
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("disk", EVERY if FILL_UPS else FEW, indirect=True, ids=", ".join)
def test_a_full_file_system_costs_nothing_and_is_written_again(
    disk: LoopMount, memory_path: Path, fault_report: list[str], request: pytest.FixtureRequest
) -> None:
    kind, mode = request.node.callspec.params["disk"]
    dice = random.Random(mode)
    left, acknowledged, seconds = FILL_UPS or 1, 0, [0.0]
    statuses: Counter[str] = Counter()
    try:
        while left:
            store = disk.path / f"store-{left}"
            room = os.statvfs(disk.path).f_bavail * os.statvfs(disk.path).f_frsize
            times = min(left, max(1, room // 2 // SPACE_OF_A_FILL_UP))
            with ServiceTrio(store, flags_of(mode, memory_path)) as trio:
                load = ServiceLoad(trio.addresses, Ledger(), body_bytes=10_000, timeout_s=1).start()
                load.goes_on()
                first = {name: running.process.pid for name, running in trio.running.items()}
                seconds += [fill_up(load, disk.path / "ballast", dice) for _ in range(times)]
                assert not trio.reap()
                assert first == {name: each.process.pid for name, each in trio.running.items()}
                finish(trio, load)
            left -= times
            acknowledged += load.acknowledged
            statuses.update(code.name for _, code in load.codes.elements())
            shutil.rmtree(store)
    finally:
        fault_report.append(
            f"fill-ups, {kind}, {mode}: {(FILL_UPS or 1) - left}; {acknowledged} acknowledged, nothing lost"
            f" in these; written again after at most {max(seconds):.2f} s; statuses {dict(statuses)}"
        )

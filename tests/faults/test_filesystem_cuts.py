"""Real power cuts: a file system on a loop device goes down under a writer, by the shutdown ioctl.

What was acknowledged in sync mode before the cut began is there at the next start. An answer that came
once it had begun counts apart: the kernel may report success of a sync that is under way then. In async
mode what the writer called flushed before the cut is there, and of the rest a beginning without a gap.
``FILESYSTEM_CUTS=100`` makes so many of each. Needs root, loop devices and mkfs; skipped where they are
missing.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import loop_mount
import pytest
from engine_store import check_queues_match_log, records_on_disk, small_config
from fault_ledger import FaultFound, require
from loop_mount import LoopMount
from service_faults import cut_under_services

from storage.config import FlushMode
from storage.writer import StoreWriter

CUTS = int(os.environ.get("FILESYSTEM_CUTS", "0"))
SUPPORT = Path(__file__).parent.parent / "support"
MODES: dict[str, tuple[FlushMode, bool]] = {
    "sync": ("sync", False),
    "async": ("async", False),
    "sync, pool": ("sync", True),
    "async, pool": ("async", True),
}
FEW = [("ext4", "sync"), ("ext4", "async, pool"), ("xfs", "async")]
EVERY = [(kind, mode) for kind in ("ext4", "xfs") for mode in MODES]
Places = set[tuple[int, int]]


class Batch(NamedTuple):
    """What the producer was told of a batch, and how far the log was flushed then."""

    queue_id: int
    first: int
    count: int
    commit_offset: int
    end_commit_offset: int
    flushed_offset: int

    @property
    def places(self) -> Places:
        return {(self.queue_id, self.first + i) for i in range(self.count)}


class CutTally:
    """What cuts have left over the lives of a store, held against what its producers were told."""

    def __init__(self) -> None:
        self.cuts = self.lost = self.late = self.late_lost = 0
        self._kept: list[Batch] = []  # there after a start, which has synced it

    def enter(
        self, before: list[Batch], after: list[Batch], promised: list[Batch], stored: Places
    ) -> None:
        """Count what one cut left of a life's batches; raise FaultFound where a promise is broken.

        ``before`` was acknowledged before the cut, ``after`` once it had begun, ``promised`` is what of
        ``before`` has to be there, ``stored`` is what there is.
        """
        gone = [each for each in promised if not each.places <= stored]
        require(not gone, f"{len(gone)} promised batches are lost: {gone[:3]}")
        gone = [each for each in self._kept if not each.places <= stored]
        require(not gone, f"{len(gone)} batches that a start had left are lost: {gone[:3]}")
        left = [each for each in (*before, *after) if each.places <= stored]
        held = set().union(*(each.places for each in self._kept))
        again = [each for each in left if each.places & held]
        require(not again, f"queue offsets are given out twice: {again[:3]}")
        end = max((each.end_commit_offset for each in left), default=0)
        gone = [each for each in before if not each.places <= stored]
        gaps = [each for each in gone if each.commit_offset < end]
        require(not gaps, f"a gap in what is left: {gaps[:3]}")
        self.cuts += 1
        self.lost += len(gone)
        self.late += len(after)
        self.late_lost += sum(not each.places <= stored for each in after)
        self._kept += left

    def forget(self) -> None:
        """Begin with an empty store."""
        self._kept.clear()

    def line(self, name: str) -> str:
        """Return what the end of the run prints."""
        return (
            f"real cuts: {name}: {self.cuts} cuts that lost nothing of what was promised;"
            f" of what was only acknowledged: {self.lost} batches lost;"
            f" of {self.late} answers once a cut had begun {self.late_lost} were not kept"
        )


class Machine:
    """A store on a file system that can be cut off, and a pool in memory, which a cut empties."""

    def __init__(self, mount: LoopMount, pool: Path, mode: str) -> None:
        self.mount = mount
        self._flush_mode, self._has_pool = MODES[mode]
        self._pool = pool
        self._pool.mkdir()

    @property
    def store(self) -> Path:
        return self.mount.path / "store"

    def acknowledged_until_cut(
        self, batches: int, *options: str
    ) -> tuple[list[Batch], list[Batch]]:
        """Run a producer and cut under it; return its answers before the cut, and once it began."""
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(SUPPORT), str(SUPPORT.parent.parent)])
        }
        pool = str(self._pool) if self._has_pool else "-"
        script = str(SUPPORT / "store_producer.py")
        command = [sys.executable, script, str(self.store), self._flush_mode, pool]
        command += ["--positions", *options]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as process:
            lines: list[str] = []
            enough = threading.Event()

            def read() -> None:
                assert process.stdout is not None
                for line in process.stdout:
                    lines.append(line)
                    if len(lines) >= batches:
                        enough.set()
                enough.set()

            reading = threading.Thread(target=read)
            reading.start()
            assert enough.wait(120)
            before = len(lines)
            self.mount.cut()
            time.sleep(0.05)
            process.kill()
            reading.join(30)
        answers = [Batch(*map(int, line.split())) for line in lines]
        return answers[:before], answers[before:]

    def power_on(self) -> None:
        """Mount what is left; the memory is empty."""
        self.mount.unmount()
        self.mount.mount()
        for buffer in self._pool.iterdir():
            buffer.unlink()

    def stored_after_a_start(self) -> Places:
        """Recover the store in a process of its own, which keeps nothing mapped; return what is there then."""
        read_end, write_end = os.pipe()
        process_id = os.fork()
        if process_id == 0:
            try:
                config = small_config(
                    flush_mode=self._flush_mode, transient_pool=self._has_pool,
                    transient_pool_directory=str(self._pool),
                )  # fmt: skip
                with StoreWriter.open(self.store, config) as writer:
                    assert not writer.recovered.damage
                records = records_on_disk(self.store)
                places = [(each.queue_id, each.queue_offset) for each in records]
                assert check_queues_match_log(self.store) == len(places) == len(set(places))
                with os.fdopen(write_end, "w") as out:
                    json.dump(places, out)
                os._exit(0)
            except BaseException:  # noqa: BLE001  nothing of this process goes on
                traceback.print_exc()
                os._exit(1)
        os.close(write_end)
        with os.fdopen(read_end) as answer:
            text = answer.read()
        assert os.waitpid(process_id, 0)[1] == 0, "the start failed; its traceback is above"
        return {(queue_id, queue_offset) for queue_id, queue_offset in json.loads(text)}

    def _promised(self, before: list[Batch]) -> list[Batch]:
        """Return the batches that a cut must leave."""
        if self._flush_mode == "sync":
            return before
        flushed_offset = max(each.flushed_offset for each in before)
        return [each for each in before if each.end_commit_offset <= flushed_offset]

    def cut_and_start(self, tally: CutTally, batches: int, *options: str) -> None:
        """Run a producer, cut under it, start again, and enter what is left."""
        before, after = self.acknowledged_until_cut(batches, *options)
        self.power_on()
        stored = self.stored_after_a_start() if self.store.exists() else set()
        tally.enter(before, after, self._promised(before), stored)


@pytest.fixture
def machine(request: pytest.FixtureRequest, tmp_path: Path, memory_path: Path) -> Iterator[Machine]:
    kind, mode = request.param
    mount = loop_mount.mounted(tmp_path, kind)
    yield Machine(mount, memory_path / "pool", mode)
    mount.unmount()


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("machine", EVERY if CUTS else FEW, indirect=True, ids=", ".join)
def test_a_real_cut_leaves_what_was_promised_before_it(
    machine: Machine, fault_report: list[str], request: pytest.FixtureRequest
) -> None:
    tally = CutTally()
    try:
        for number in range(CUTS or 1):
            machine.cut_and_start(tally, 20 + 37 * number % 300)
            space = os.statvfs(machine.mount.path)
            if space.f_bavail < space.f_blocks // 3:
                shutil.rmtree(machine.store)
                tally.forget()
    finally:
        fault_report.append(tally.line(request.node.callspec.id))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
@pytest.mark.parametrize("mode", ["sync", "sync, pool"])
def test_a_real_cut_under_all_services_leaves_what_was_acknowledged_and_seen(
    kind: str, mode: str, tmp_path: Path, memory_path: Path, fault_report: list[str]
) -> None:
    acknowledged = late = cuts = 0
    try:
        for number in range(CUTS or 1):
            root = tmp_path / str(number)
            root.mkdir()
            mount = loop_mount.mounted(root, kind)
            try:
                before, after = cut_under_services(mount, memory_path / str(number), mode)
            finally:
                gc.collect()  # what readers had mapped
                mount.unmount()
            cuts += 1
            acknowledged += before
            late += after
    finally:
        fault_report.append(
            f"real cuts under services: {kind}, {mode}: {cuts} cuts; {acknowledged} acknowledged before,"
            f" nothing lost in these; {late} answers once a cut had begun"
        )


@pytest.mark.parametrize(
    "machine", [each for each in EVERY if CUTS or each == FEW[0]], indirect=True, ids=", ".join
)
def test_a_writer_that_syncs_nothing_is_found(machine: Machine) -> None:
    with pytest.raises(FaultFound, match="promised batches are lost"):
        # As many as take several flushes in async mode: only what was flushed is promised there.
        machine.cut_and_start(CutTally(), 2_000, "--no-sync")


FIRST, SECOND, THIRD = (Batch(0, 2 * n, 2, 100 * n, 100 * n + 100, 100 * n) for n in range(3))
OTHER = SECOND._replace(commit_offset=500, end_commit_offset=600)
BROKEN: dict[str, tuple[list[Batch], list[Batch], Places]] = {
    "promised batches are lost": ([SECOND, THIRD], [SECOND], FIRST.places | THIRD.places),
    "that a start had left": ([SECOND], [SECOND], SECOND.places),
    "given out twice": ([FIRST], [], FIRST.places),
    "a gap": ([SECOND, THIRD], [], FIRST.places | THIRD.places),
}


@pytest.mark.parametrize("says", BROKEN)
def test_each_broken_promise_of_a_cut_is_found(says: str) -> None:
    tally = CutTally()
    tally.enter([FIRST], [], [FIRST], FIRST.places)
    before, promised, stored = BROKEN[says]
    with pytest.raises(FaultFound, match=says):
        tally.enter(before, [], promised, stored)


def test_what_a_cut_takes_without_a_broken_promise_is_counted() -> None:
    tally = CutTally()
    tally.enter([FIRST, SECOND], [THIRD], [FIRST], FIRST.places)
    tally.enter([OTHER], [], [OTHER], FIRST.places | OTHER.places)  # the offsets that SECOND had
    assert (tally.cuts, tally.lost, tally.late, tally.late_lost) == (2, 1, 1, 1)

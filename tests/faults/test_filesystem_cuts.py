"""Real power cuts: a file system on a loop device goes down under a writer, by the shutdown ioctl.

What was acknowledged in sync mode before the cut began is there at the next start. An answer that came
once it had begun counts apart: the kernel may report success of a sync that is under way then.
``FILESYSTEM_CUTS=100`` makes so many. Needs root, loop devices and mkfs; skipped where they are missing.
"""

from __future__ import annotations

import fcntl
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

import pytest
from engine_store import check_queues_match_log, records_on_disk, small_config

from storage.writer import StoreWriter

CUTS = int(os.environ.get("FILESYSTEM_CUTS", "2"))
SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, and XFS_IOC_GOINGDOWN
NO_LOG_FLUSH = (2).to_bytes(4, sys.byteorder)
IMAGE_BYTES = {"ext4": 64 << 20, "xfs": 320 << 20}
SUPPORT = Path(__file__).parent.parent / "support"


class LoopMount:
    """An image of a file system, mounted at ``path``."""

    def __init__(self, root: Path, kind: str) -> None:
        self.path = root / "mounted"
        self._image = root / "image"
        self._kind = kind
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES[kind])
        subprocess.run([f"mkfs.{kind}", "-q", str(self._image)], check=True)
        self.mount()

    def mount(self) -> None:
        command = ["mount", "-t", self._kind, "-o", "loop", str(self._image), str(self.path)]
        subprocess.run(command, check=True, capture_output=True)

    def unmount(self) -> None:
        for _ in range(50):
            if subprocess.run(["umount", str(self.path)], capture_output=True).returncode == 0:
                return
            time.sleep(0.1)
        subprocess.run(["umount", "-l", str(self.path)], check=False)

    def cut(self) -> None:
        """Drop what the journal and the files have not on the device; nothing is written any more."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, NO_LOG_FLUSH)
        finally:
            os.close(descriptor)


@pytest.fixture(params=["ext4", "xfs"])
def mounted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LoopMount]:
    kind = request.param
    if os.geteuid() != 0:
        pytest.skip("only root mounts images")
    if shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"there is no mkfs.{kind}")
    try:
        mount = LoopMount(tmp_path, kind)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no loop device can be mounted: {error.stderr!r}")
    yield mount
    mount.unmount()


def acknowledged_until_cut(mount: LoopMount, batches: int) -> tuple[list[str], list[str]]:
    """Run a producer in sync mode and cut under it; return its answers before the cut, and once it began."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), str(SUPPORT.parent.parent)])
    }
    command = [
        sys.executable,
        str(SUPPORT / "store_producer.py"),
        str(mount.path / "store"),
        "sync",
        "-",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
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
        mount.cut()
        time.sleep(0.05)
        process.kill()
        reading.join(30)
    return lines[:before], lines[before:]


def stored_after_a_start(directory: Path) -> set[tuple[int, int]]:
    """Recover the store in a process of its own, which keeps nothing mapped; return what is there then."""
    read_end, write_end = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        try:
            with StoreWriter.open(directory, small_config(flush_mode="sync")) as writer:
                assert not writer.recovered.damage
            places = [(each.queue_id, each.queue_offset) for each in records_on_disk(directory)]
            assert check_queues_match_log(directory) == len(places) == len(set(places))
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


@pytest.mark.timeout(7200)
def test_what_was_acknowledged_before_a_real_cut_is_there(
    mounted: LoopMount, fault_report: list[str], request: pytest.FixtureRequest
) -> None:
    told: list[tuple[int, int, int]] = []
    late_lost = late = 0
    for number in range(CUTS):
        before, after = acknowledged_until_cut(mounted, 20 + 37 * number % 300)
        mounted.unmount()
        mounted.mount()
        directory = mounted.path / "store"
        told += [tuple(int(word) for word in line.split()) for line in before]  # type: ignore[misc]
        stored = stored_after_a_start(directory)
        for queue_id, first, count in told:
            assert {(queue_id, first + i) for i in range(count)} <= stored
        for line in after:
            queue_id, first, count = (int(word) for word in line.split())
            late += 1
            late_lost += (queue_id, first + count - 1) not in stored
        if os.statvfs(mounted.path).f_bavail < os.statvfs(mounted.path).f_blocks // 3:
            shutil.rmtree(directory)
            told.clear()
    fault_report.append(
        f"real cuts: {request.node.callspec.id}: {CUTS} cuts; lost of what was acknowledged before: 0;"
        f" of {late} answers once a cut had begun {late_lost} were not kept"
    )

"""File systems of their own: images on loop devices, which can lose their power, and small ones in memory."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN, and XFS_IOC_GOINGDOWN
NO_LOG_FLUSH = (2).to_bytes(4, sys.byteorder)
IMAGE_BYTES = {"ext4": 64 << 20, "xfs": 320 << 20, "tmpfs": 64 << 20}


class LoopMount:
    """A file system mounted at ``path``: an image on a loop device, or one in memory."""

    def __init__(self, root: Path, kind: str, size_bytes: int) -> None:
        self.path = root / "mounted"
        self._image = root / "image"
        self.path.mkdir()
        self._mount = ["mount", "-t", kind, "-o", "loop", str(self._image), str(self.path)]
        if kind == "tmpfs":
            self._mount[3:] = ["-o", f"size={size_bytes}", kind, str(self.path)]
        else:
            with self._image.open("wb") as file:
                file.truncate(size_bytes)
            make = [f"mkfs.{kind}", "-q", str(self._image)]
            subprocess.run(make, check=True, capture_output=True)
        self.mount()

    def mount(self) -> None:
        subprocess.run(self._mount, check=True, capture_output=True)

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


def mounted(root: Path, kind: str, size_bytes: int = 0) -> LoopMount:
    """Make a file system of a kind; skips the test where that is not possible."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    if kind != "tmpfs" and shutil.which(f"mkfs.{kind}") is None:
        pytest.skip(f"there is no mkfs.{kind}")
    try:
        return LoopMount(root, kind, size_bytes or IMAGE_BYTES[kind])
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no {kind} can be mounted: {error.stderr!r}")

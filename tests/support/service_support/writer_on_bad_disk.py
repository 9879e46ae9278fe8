"""The writer's real process on a disk that fails on command: run as a script, by its tests.

``BAD_DISK`` names a directory. While it holds a file ``sync``, every sync of a commit log file fails
as a device's would; while it holds ``space``, no file can be allocated, and while it holds ``files``,
none can be created.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

from services.writer.__main__ import main
from storage.errors import StoreFull
from storage.files.filesystem import File, FileSystem

SWITCHES = Path(os.environ["BAD_DISK"])


def install() -> None:
    sync, create = File.sync, FileSystem.create

    def failing_sync(file: Any) -> None:
        if "commitlog" in str(file.path) and (SWITCHES / "sync").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(file)

    def failing_create(
        filesystem: Any, path: Path, size: int, *, allocate: bool, **options: Any
    ) -> Any:
        if (SWITCHES / "files").exists() or (allocate and (SWITCHES / "space").exists()):
            raise StoreFull(f"{path}: {os.strerror(errno.ENOSPC)}")
        return create(filesystem, path, size, allocate=allocate, **options)

    File.sync = failing_sync  # type: ignore[method-assign]
    FileSystem.create = failing_create  # type: ignore[method-assign]


if __name__ == "__main__":
    install()
    sys.exit(main())

"""A service's real process with a defect that it must not have: run as a script, by the bed that has to find it.

``DEFECTIVE_SERVICE`` names the service, ``DEFECT`` one of ``DEFECTS``.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any

from services.rpc import status
from storage.engine.engine import Engine
from storage.errors import StoreFailed, StoreFull
from storage.files import libc
from storage.files.mapped_file import MappedFile
from storage.files.system.os_file import File
from storage.tables.consumer_offsets import ConsumerOffsets


def _failed_sync_is_done() -> None:
    sync = File.sync

    def believed(file: File) -> None:
        try:
            sync(file)
        except OSError as error:
            assert error.errno == errno.EIO

    File.sync = believed  # type: ignore[method-assign]


def _short_write_is_whole() -> None:
    libc.pwrite_few = lambda *_: False  # type: ignore[assignment]

    def once(file: File, data: Any, position: int) -> None:
        os.pwrite(file._descriptor, data, position)

    File.pwrite = once  # type: ignore[method-assign]


def _error_of_the_system_goes_out() -> None:
    status.store_error = lambda error: error


def _group_progress_is_not_saved() -> None:
    ConsumerOffsets.save = lambda _: True  # type: ignore[method-assign]


def _full_disk_is_final() -> None:
    next_file = Engine._next_file

    def final(engine: Engine, start_offset: int) -> MappedFile:
        try:
            return next_file(engine, start_offset)
        except StoreFull as error:
            engine.fail(StoreFailed(str(error)))
            raise

    Engine._next_file = final  # type: ignore[method-assign]


DEFECTS = {
    plant.__name__.strip("_").replace("_", " "): plant
    for plant in (
        _failed_sync_is_done,
        _short_write_is_whole,
        _error_of_the_system_goes_out,
        _group_progress_is_not_saved,
        _full_disk_is_final,
    )
}

if __name__ == "__main__":
    DEFECTS[os.environ["DEFECT"]]()
    service = importlib.import_module(f"services.{os.environ['DEFECTIVE_SERVICE']}.__main__")
    sys.exit(service.main())

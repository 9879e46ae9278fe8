"""A writer in a forked process that dies at a numbered step of its staged commits.

Steps are what it does to files below ``staged/`` and its appends to the commit log. It dies
before the step, or in the middle of a write; what it had done by then is what a killed process leaves.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_store import small_config

from storage.files.filesystem import OsFile, OsFileSystem
from storage.log.commit_log import CommitLog
from storage.writer import StoreWriter

DIED, FAILED = 77, 78
Tell = Callable[[str], None]
Work = Callable[[StoreWriter, Tell], None]


class Steps:
    """Counts the steps of this process and ends it at one of them; ``torn``: in the middle of it."""

    def __init__(self, fatal: int, *, torn: bool = False) -> None:
        self.fatal = fatal
        self.torn = torn
        self.count = 0

    def step(self, half: Callable[[], object] | None = None) -> None:
        self.count += 1
        if self.count == self.fatal:
            if self.torn and half is not None:
                half()
            os._exit(DIED)

    def install(self) -> None:
        """Patch this process, which is never the tests' own."""
        for name in (
            "create", "rename", "unlink", "make_directory", "remove_directory", "sync_directory"
        ):  # fmt: skip
            self._patch(OsFileSystem, name, lambda _, path, *__: path)
        for name in ("sync", "sync_all"):
            self._patch(OsFile, name, lambda file, *_: file.path)
        pwrite, append = OsFile.pwrite, CommitLog.append

        def torn_pwrite(file: Any, data: Any, position: int) -> None:
            if "staged" in str(file.path):
                self.step(lambda: pwrite(file, memoryview(data)[: len(data) // 2], position))
            pwrite(file, data, position)

        def counted_append(log: Any, *arguments: Any) -> int:
            self.step()
            offset = append(log, *arguments)
            self.step()
            return offset

        OsFile.pwrite = torn_pwrite  # type: ignore[method-assign]
        CommitLog.append = counted_append  # type: ignore[method-assign]

    def _patch(self, kind: Any, name: str, path_of: Callable[..., Path]) -> None:
        original = getattr(kind, name)

        def patched(*arguments: Any, **options: Any) -> Any:
            if "staged" in str(path_of(*arguments)):
                self.step()
            return original(*arguments, **options)

        setattr(kind, name, patched)


def run_dying(
    directory: Path, work: Work, fatal: int, *, torn: bool = False, **config: Any
) -> tuple[bool, list[str]]:
    """Open the store in a process of its own and ``work`` on it; dies at step ``fatal``.

    ``work`` is given the writer and a function that reports to the parent, at once, what was acknowledged.
    Returns whether it came to its end, and what it reported.
    """

    def run(tell: Tell) -> None:
        Steps(fatal, torn=torn).install()
        with StoreWriter.open(directory, small_config(**config)) as writer:
            work(writer, tell)

    return _run_in_child(run)


def count_steps(directory: Path, work: Work, **config: Any) -> int:
    """Return how many steps ``run_dying`` takes where it does not die."""

    def run(tell: Tell) -> None:
        steps = Steps(0)
        steps.install()
        with StoreWriter.open(directory, small_config(**config)) as writer:
            work(writer, lambda _: None)
        tell(str(steps.count))

    _, (count,) = _run_in_child(run)
    return int(count)


def _run_in_child(run: Callable[[Tell], None]) -> tuple[bool, list[str]]:
    read_end, write_end = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        os.close(read_end)
        try:
            run(lambda text: os.write(write_end, f"{text}\n".encode()) and None)
            os._exit(0)
        except BaseException:  # noqa: BLE001  nothing of this process goes on
            traceback.print_exc()
            os._exit(FAILED)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        lines = told.read().split()
    code = os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1])
    assert code in (0, DIED), code
    return code == 0, lines

"""Every place at which some work can be stopped, one after the other."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from storage.testing.disk import ProcessStopped, SimulatedDisk, free_stopped_stores


class StoppedRun(NamedTuple):
    """One run of the work, and what it left."""

    step: int
    disk: SimulatedDisk
    """What the next start finds; its ``root`` is in place of the one that the work had."""
    result: object
    """What the work returned; None if it was stopped."""
    was_stopped: bool


def every_stop(
    directory: Path,
    work: Callable[[SimulatedDisk], object],
    *,
    kills: bool = False,
    leaves: str = "",
    seed: int = 1,
    step_stride: int = 1,
) -> Iterator[StoppedRun]:
    """Run ``work(disk)`` on a new disk, stopped at its first step, then at its second, and so on.

    Yields what each run left, and last the run that came to its end, after which the power is cut, too.
    With ``kills`` the process is killed instead. ``leaves`` is as in ``SimulatedDisk.cut_power``; where it
    leaves something to chance, that is the same for the same ``seed``. ``step_stride`` leaves out
    steps of long work. Directories of earlier runs are removed; ``directory`` must not exist.

    Raises what the work raises unless it was stopped.
    """
    step, was_stopped = 0, True
    while was_stopped:
        step += step_stride
        free_stopped_stores()
        shutil.rmtree(directory, ignore_errors=True)
        disk = SimulatedDisk(directory / "before", random.Random(seed * 1_000_003 + step))  # noqa: S311
        disk.new_root = _numbered(directory)
        disk.stop_after(step, kills=kills, leaves=leaves)
        result = None
        try:
            result = work(disk)
            was_stopped = disk.successor is not None
        except ProcessStopped:
            pass
        except Exception:
            if disk.successor is None:
                raise
        yield StoppedRun(step, disk.stop(kills=kills, leaves=leaves), result, was_stopped)


def _numbered(directory: Path) -> Callable[[], Path]:
    count = 0

    def new_root() -> Path:
        nonlocal count
        count += 1
        return directory / f"after-{count}"

    return new_root

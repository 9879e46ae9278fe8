"""Making a stopped store whole: what is wrong is kept aside, then put right as by a start.

The repair is a start of writer and indexer in which every queue is compared with the whole log, whatever the
checkpoint says; so there is no rule here that they do not have, and a repair that is killed leaves what a
killed start leaves. No record that is whole is lost. What is damaged for good, records of the log, is
noted beside what was kept aside, and is no finding from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from storage import findings as kinds
from storage.clock import Clock, SystemClock
from storage.errors import StoreFailed
from storage.files.filesystem import FileSystem
from storage.findings import DAMAGE, WARNING, Finding
from storage.format.checkpoint import BROKER_SIZE, INDEX_TIMESTAMP_POSITION
from storage.indexer import StoreIndexer
from storage.offline.doctor import examine
from storage.offline.kept_aside import KeptFile, files_to_keep, keep_aside, note_losses
from storage.offline.opened import spec_config
from storage.stopped.locks import stopped_store
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.view.index.index_file import list_index_files
from storage.view.layout import LOG_DIRECTORY, StorePaths
from storage.writer import StoreWriter

if TYPE_CHECKING:
    from storage.workers import Workers

INDEX_TIMEOUT_S: Final = 24 * 3600.0
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """``found`` before, ``kept`` aside in ``directory``, and what is damaged for good.

    ``left`` is what the reader makes right at its next start: its journal and its tables are its own.
    ``directory`` is None where nothing was wrong, and of a dry run.
    """

    found: tuple[Finding, ...]
    kept: tuple[KeptFile, ...] = ()
    directory: Path | None = None
    losses: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()


def plan_repair(
    directory: Path | str,
    spec: dict[str, Any] | Path | None = None,
    *,
    advance: Advance = lambda _: None,
    is_locked: bool = False,
) -> RepairReport:
    """Return what a repair would keep aside and change; nothing is changed. Raises NotAStore."""
    found = tuple(examine(directory, spec, advance=advance, is_locked=is_locked))
    return RepairReport(
        found=found, kept=tuple(files_to_keep(FileSystem(), Path(directory), found))
    )


def repair(
    directory: Path | str,
    spec: dict[str, Any] | Path | None = None,
    *,
    filesystem: FileSystem | None = None,
    clock: Clock | None = None,
    workers: Callable[[], Workers] | None = None,
    advance: Advance = lambda _: None,
) -> RepairReport:
    """Repair a stopped store; durable on return. Where nothing is wrong nothing is changed.

    ``workers`` makes the steps of background work, as in ``StoreWriter.open``. Raises StoreLocked if the
    store is in use, NotAStore, StoreFull, StoreFailed; it can then be repaired again.
    """
    root = Path(directory).absolute()
    filesystem, clock = filesystem or FileSystem(), clock or SystemClock()
    with stopped_store(root):
        plan = plan_repair(root, spec, advance=advance, is_locked=True)
        if not any(finding.is_wrong for finding in plan.found):
            return plan
        kept = keep_aside(filesystem, root, list(plan.found), list(plan.kept), clock.now_ms())
        _drop_newest_index_file(filesystem, root, plan.found)
        _move_foreign_files(filesystem, root, kept, plan.found)
        _forget_index_time(filesystem, root, plan.found)
    _start_and_stop(root, spec, filesystem, clock, workers)
    with stopped_store(root):
        after = tuple(examine(root, spec, is_locked=True))
        losses = tuple(each for each in after if each.severity == DAMAGE)
        note_losses(filesystem, kept, losses)
    left = tuple(each for each in after if each.severity == WARNING)
    return replace(plan, directory=kept, losses=losses, left=left)


def _drop_newest_index_file(filesystem: FileSystem, root: Path, found: Iterable[Finding]) -> None:
    """Delete the newest index file if it is wrong; the scrub rebuilds the others."""
    paths = StorePaths(root)
    kinds_of_index = (kinds.INDEX_FILE, kinds.INDEX_ENTRIES)
    wrong = {each.file for each in found if each.kind in kinds_of_index}
    listed = list_index_files(filesystem, paths.index)
    if listed and f"index/{listed[-1][2].name}" in wrong:
        filesystem.unlink(listed[-1][2])
        filesystem.sync_directory(paths.index)


def _move_foreign_files(
    filesystem: FileSystem, root: Path, kept: Path, found: Iterable[Finding]
) -> None:
    """Move what is not a log file out of the log's directory; durable on return."""
    files = [root / each.file for each in found if each.kind is kinds.LOG_FILE_FOREIGN]
    if not files:
        return
    target = kept / LOG_DIRECTORY
    filesystem.make_directory(target)
    for path in files:
        filesystem.rename(path, target / path.name)
    filesystem.sync_directory(target)
    filesystem.sync_directory(root / LOG_DIRECTORY)


def _forget_index_time(filesystem: FileSystem, root: Path, found: Iterable[Finding]) -> None:
    """Set a broker's time of the index to 0 where the checkpoint's times cannot be; durable on return.

    The start writes the others again. A broker makes more of the index again than it has to, at most.
    """
    path = StorePaths(root).checkpoint
    if not filesystem.exists(path) or not any(each.kind is kinds.CHECKPOINT for each in found):
        return
    file = filesystem.open(path, writable=True)
    try:
        if file.size >= BROKER_SIZE:
            file.pwrite(bytes(8), INDEX_TIMESTAMP_POSITION)
            file.sync()
    finally:
        file.close()


def _start_and_stop(
    root: Path,
    spec: dict[str, Any] | Path | None,
    filesystem: FileSystem,
    clock: Clock,
    workers: Callable[[], Workers] | None,
) -> None:
    config = replace(spec_config(root, spec), scrub_interval_ms=0)
    made = workers() if workers is not None else None
    with StoreWriter.open(
        root, config, filesystem=filesystem, clock=clock, workers=made, compares_all=True
    ) as writer:
        indexer = StoreIndexer.open(
            root, writer.config, filesystem=filesystem, clock=clock,
            unclean=writer.stopped_unclean, workers=made,
        )  # fmt: skip
        with indexer:
            indexer.check_all()
            indexer.start()
            indexer.wait_repaired(INDEX_TIMEOUT_S)
            if not indexer.wait_indexed(writer.appended_offset, INDEX_TIMEOUT_S):
                raise StoreFailed(f"the index of {root} is not made: {indexer.problem}")
    with closing(ConsumerOffsets(filesystem, StorePaths(root).config, clock)) as offsets:
        offsets.lower([])  # whoever keeps them makes their copies agree

"""What says how far delayed messages and transactions are, and what producers have sent: our files of them.

Also from where on the log is kept for what is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage import findings as kinds
from storage.clock import SystemClock
from storage.engine.system_group import SystemGroup
from storage.findings import NOTE, WARNING, Finding
from storage.format.consume_entry import SCHEDULE_TOPIC
from storage.format.names import HALF_TOPIC, TIMER_TOPIC, TRANSACTION_GROUP
from storage.format.timer_files import decode_rows
from storage.journal.states import read_states
from storage.tables.checked_json import file_problem
from storage.timers.progress import STATE as TIMERS
from storage.timers.progress import progress_in
from storage.transactions.progress import STATE as TRANSACTIONS
from storage.transactions.progress import load_progress
from storage.view.queues.unit_search import NO_UNIT

if TYPE_CHECKING:
    from storage.files.filesystem import ReadFileSystem
    from storage.offline.opened import OfflineStore
    from storage.view.layout import StorePaths

Place = tuple[str, int, int]  # topic, queue id, queue offset

READ_TRIES: Final = 3  # of files that a running store writes


def pending_files(disk: ReadFileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Yield which of them are not whole, of a running store too."""
    for folder, kind, look in (
        (paths.timers, kinds.TIMER_FILE, lambda: _damaged_rows(disk, paths)),
        (paths.journal, kinds.JOURNAL, lambda: read_states(disk, paths.journal).problems),
    ):
        for name, problem in _lasting(look):
            file = str((folder / name).relative_to(paths.root))
            yield Finding(severity=WARNING, kind=kind, file=file, message=problem)


def _damaged_rows(disk: ReadFileSystem, paths: StorePaths) -> dict[str, str]:
    """Return what is wrong with rows of delayed messages; a start reads their records again."""
    document = read_states(disk, paths.journal).document(TIMERS) or {"blocks": ()}
    found = {}
    for name, _ in document["blocks"]:
        try:
            decode_rows(disk.read_bytes(paths.timers / name))
        except FileNotFoundError:
            found[name] = "is missing; the writer's journal names it"
        except (OSError, ValueError) as error:
            found[name] = file_problem(error)
    return found


def _lasting(look: Callable[[], dict[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what each of some looks finds."""
    found = look()
    for _ in range(READ_TRIES if found else 0):
        again = look()
        found = {name: again[name] for name in found if name in again}
    yield from found.items()


def log_holds(store: OfflineStore) -> Iterator[Finding]:
    """Yield from where on retention keeps the log for what was pending when that was last saved."""
    queues = set(store.reader.queues_on_disk())
    for who, look in (("pending transactions", _halves), ("delayed messages", _timers)):
        places: list[Place] = []
        with suppress(OSError, ValueError):  # named by others
            places = [place for place in look(store) if place[:2] in queues]
        offsets = [each for place in places if (each := _commit_offset(store, place)) is not None]
        if offsets:
            message = f"{who} hold the log from commit offset {min(offsets)} on"
            yield Finding(severity=NOTE, kind=kinds.STATE, file="commitlog", message=message)


def _halves(store: OfflineStore) -> list[Place]:
    disk, paths = store.filesystem, store.paths
    document = read_states(disk, paths.journal).document(TRANSACTIONS)
    group = SystemGroup(disk, paths.config, SystemClock(), TRANSACTION_GROUP)
    return [(HALF_TOPIC, 0, load_progress(document, group, broker_ran=True).half_offset)]


def _timers(store: OfflineStore) -> list[Place]:
    disk, paths = store.filesystem, store.paths
    document = read_states(disk, paths.journal).document(TIMERS)
    if document is None:
        return []
    progress = progress_in(disk, paths.timers, document)
    first = min((block.base_offset for block in progress.blocks), default=None)
    return [
        (TIMER_TOPIC, 0, progress.queue_offset if first is None else first),
        *((SCHEDULE_TOPIC, level - 1, offset) for level, offset in progress.levels.items()),
    ]


def _commit_offset(store: OfflineStore, place: Place) -> int | None:
    """Return where the record at a queue offset is, None at the end of its queue."""
    topic, queue_id, queue_offset = place
    log, queue = store.reader.log, store.reader.queue_view(topic, queue_id)
    end = queue.max_offset(log.visible_offset)
    at = max(queue_offset, queue.min_offset(log.min_offset, end))
    unit = queue.unit(at) if at < end else NO_UNIT
    return unit.commit_offset if unit.size > 0 else None

"""The checkpoint page: its length, a broker's times, the slots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from storage import findings as kinds
from storage.findings import DAMAGE, NOTE, WARNING, Finding
from storage.format import checkpoint as layout
from storage.format.checkpoint import PAGE_SIZE, BrokerFields

if TYPE_CHECKING:
    from storage.checks.store import CheckedStore

DAY_MS: Final = 86_400_000
READ_TRIES: Final = 3  # of a page that a running store writes to


def checkpoint(store: CheckedStore) -> Iterator[Finding]:
    """Yield what is wrong with the page."""
    path, disk = store.paths.checkpoint, store.filesystem
    if not disk.exists(path):
        yield Finding(
            severity=WARNING, kind=kinds.CHECKPOINT, file="checkpoint",
            message="is missing: the whole log is checked at the next start",
        )  # fmt: skip
        return
    page = disk.read_bytes(path)
    if len(page) != PAGE_SIZE:
        yield Finding(
            severity=WARNING, kind=kinds.CHECKPOINT, file="checkpoint",
            message=f"has {len(page)} bytes, not {PAGE_SIZE}",
        )  # fmt: skip
    fields = BrokerFields.decode(page)
    times = (fields.physic_timestamp_ms, fields.logics_timestamp_ms, fields.index_timestamp_ms)
    newest_ms = store.check.last_timestamp_ms
    if any(time < 0 or time > newest_ms + DAY_MS // 2 for time in times):
        yield Finding(
            severity=WARNING, kind=kinds.CHECKPOINT, file="checkpoint",
            message=f"its times {times} do not fit the newest record's, {newest_ms}",
        )  # fmt: skip
    is_ours = store.view.settings.present
    # A store of ours that has records has slots, or a broker's times.
    if is_ours and newest_ms and not any(page):
        yield Finding(
            severity=DAMAGE, kind=kinds.CHECKPOINT, file="checkpoint",
            message="is zeros from end to end: the whole log is checked at the next start",
        )  # fmt: skip
    damaged = damaged_slots(page) if is_ours else {}
    for _ in range(READ_TRIES):
        if damaged:
            damaged = {
                at: name
                for at, name in damaged.items()
                if at in damaged_slots(disk.read_bytes(path))
            }
    for position, name in damaged.items():
        yield Finding(
            severity=DAMAGE, kind=kinds.CHECKPOINT_SLOT, file="checkpoint",
            message=f"the {name}'s slot at byte {position} does not match its checksum",
            begin=position, end=position + layout.SECTOR_SIZE,
        )  # fmt: skip
    if store.durable.store_id and not store.durable.trusted:
        yield Finding(
            severity=NOTE, kind=kinds.STATE, file="checkpoint",
            message="a broker has run since: the whole log is checked at the next start",
        )  # fmt: skip


def damaged_slots(page: bytes) -> dict[int, str]:
    """Return the positions of slots that were written and are not whole, with whose they are."""
    if len(page) < PAGE_SIZE:
        return {}
    whole = layout.writer_slots(page).keys() | layout.indexer_slots(page).keys()
    owners = {
        **dict.fromkeys(layout.WRITER_SLOT_POSITIONS, "writer"),
        **dict.fromkeys(layout.INDEXER_SLOT_POSITIONS, "indexer"),
    }
    return {
        position: owner
        for position, owner in owners.items()
        if position not in whole and any(page[position : position + layout.SECTOR_SIZE])
    }

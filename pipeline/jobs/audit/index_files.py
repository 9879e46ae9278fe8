"""What an audit sees in each index file by itself: its header, its slots, the links of its entries.

The header says twice what its first and its last entry say, so one of the two is wrong where they
differ. Which one the log decides, which has a record at the right place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.jobs.audit.findings import Finding, Findings
from storage.format.index import IndexHeader
from storage.format.record import decode_record
from storage.kernels.index.chains import follow_chains
from storage.view.index.entries import IndexEntries

if TYPE_CHECKING:
    from storage.view.store_view import StoreView

BAD_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class AuditedIndexFile:
    """An index file as tasks need it.

    Offsets and times are those of the records of its first and last entries, as the log has them;
    a header's word stands for records that are gone or damaged. Without entries offsets are -1.
    ``seed_timestamp_ms`` is the end of the file before, which entry 1 holds its time against; None
    of the first file, whose predecessor may be deleted.
    """

    file: IndexEntries
    header: IndexHeader
    entry_count: int = 0
    begin_offset: int = -1
    begin_timestamp_ms: int = 0
    end_offset: int = -1
    end_timestamp_ms: int = 0
    seed_timestamp_ms: int | None = None

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.file.name

    def entries(self) -> npt.NDArray[Any]:
        """Return its entries from number 1 on."""
        return self.file.entries(self.entry_count)


def look_at_index(store: StoreView, *, live: bool) -> list[AuditedIndexFile]:
    """Look at the header and the first and last entries of each index file, oldest first."""
    files: list[AuditedIndexFile] = []
    seed: int | None = None
    for opened in store.index_files():
        file = _look_at(store, opened, seed, live=live)
        files.append(file)
        if file.entry_count:
            seed = file.end_timestamp_ms
    return files


def _look_at(
    store: StoreView, file: IndexEntries, seed: int | None, *, live: bool
) -> AuditedIndexFile:
    header = file.header()
    count = _entry_count(file, header, live=live)
    if not count:
        return AuditedIndexFile(file, header)
    first, last = file.commit_offset(1), file.commit_offset(count)
    begin = _place(store, header.begin_commit_offset, header.begin_timestamp_ms, first)
    end = _place(store, header.end_commit_offset, header.end_timestamp_ms, last)
    return AuditedIndexFile(file, header, count, *begin, *end, seed)


def _entry_count(file: IndexEntries, header: IndexHeader, *, live: bool) -> int:
    """Return how many entries are written, which the header's count and its last offset say."""
    counted, last = file.counted(header), header.end_commit_offset
    if live or (counted and file.commit_offset(counted) == last):
        return counted
    written = file.written()
    if written and file.commit_offset(written) == last:
        return written
    return min(counted, written)


def _place(
    store: StoreView, header_offset: int, header_timestamp_ms: int, entry_offset: int
) -> tuple[int, int]:
    """Return offset and store time of the record that a header and an entry speak of."""
    times = {offset: _store_time(store, offset) for offset in (header_offset, entry_offset)}
    for offset, time in times.items():
        if time is not None and time == header_timestamp_ms:
            return offset, time
    for offset in (entry_offset, header_offset):
        if (time := times[offset]) is not None:
            return offset, time
    return entry_offset, header_timestamp_ms


def _store_time(store: StoreView, commit_offset: int) -> int | None:
    """Return the store time of the intact record at an offset, None if there is no such record."""
    record = store.log.record(commit_offset)
    return None if record is None else decode_record(record).store_timestamp_ms


def audit_index_file(file: AuditedIndexFile, findings: Findings, *, live: bool = False) -> None:
    """Check that slots lead to their newest entries, entries to the one before, and the header.

    A put writes entry, slot, header: of a ``live`` file, slots that are ahead of the header are good,
    and the header's counts and its end are those of a moment.
    """
    data, count = file.file.data(), file.entry_count
    slot_count = file.file.slot_count
    newest, bad = np.zeros(slot_count, np.int32), np.empty(BAD_MAX, np.int64)
    wrong, used = (int(n) for n in follow_chains(data, slot_count, count, newest, bad))
    slots = file.file.slots(data)
    wrong_slots = slots != newest
    if live:
        wrong_slots &= slots <= count
    astray = np.flatnonzero(wrong_slots)
    findings.add(_slots(file.name, slots, newest, astray), len(astray))
    findings.add(_entries(file, bad[: min(wrong, BAD_MAX)]), wrong)
    findings.add(_header(file, used, live=live))


def _header(file: AuditedIndexFile, used: int, *, live: bool) -> Iterator[Finding]:
    header, where = file.header, {"kind": "index", "file": file.name}
    counted = header.next_entry - 1
    if not live and counted != file.entry_count:
        problem = f"the header counts {counted} entries; {file.entry_count} are written"
        yield {**where, "problem": problem}
    if not live and header.used_slot_count != used:
        problem = f"the header counts {header.used_slot_count} slots in use, not {used}"
        yield {**where, "problem": problem}
    if not file.entry_count:
        return
    says = [
        ("first", "offset", header.begin_commit_offset, file.begin_offset),
        ("first", "store time", header.begin_timestamp_ms, file.begin_timestamp_ms),
    ]
    if not live:
        says += [
            ("last", "offset", header.end_commit_offset, file.end_offset),
            ("last", "store time", header.end_timestamp_ms, file.end_timestamp_ms),
        ]
    for which, what, said, known in says:
        if said != known:
            problem = f"the header says {said} for the {which} key's {what}, not {known}"
            yield {**where, "problem": problem}


def _slots(
    name: str, slots: npt.NDArray[Any], newest: npt.NDArray[Any], astray: npt.NDArray[np.int64]
) -> Iterator[Finding]:
    for slot in astray.tolist():
        problem = f"slot {slot} leads to entry {slots[slot]}, not {newest[slot]}"
        yield {"kind": "index", "file": name, "problem": problem}


def _entries(file: AuditedIndexFile, bad: npt.NDArray[np.int64]) -> Iterator[Finding]:
    entries = file.entries()
    for entry in bad.tolist():
        yield {
            "kind": "index",
            "file": file.name,
            "physicalOffset": int(entries["offset"][entry - 1]),
            "problem": f"entry {entry} leads to {entries['previous'][entry - 1]}, which is not the"
            " one before it in its slot",
        }


def audit_entries_after_log(
    index: Sequence[AuditedIndexFile], end_offset: int, findings: Findings
) -> None:
    """Name entries of the index that point to the end of the log or after it."""
    for file in index:
        if file.end_offset < end_offset:
            continue
        offsets = file.entries()["offset"]
        after = np.flatnonzero(offsets >= end_offset)
        findings.add(
            (
                {
                    "kind": "index",
                    "file": file.name,
                    "physicalOffset": int(offsets[place]),
                    "problem": f"entry {place + 1} points after the end of the log",
                }
                for place in after.tolist()
            ),
            len(after),
        )

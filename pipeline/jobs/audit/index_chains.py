"""Slots and chains of an index file, followed in one pass over its entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import types

from pipeline.files.index_files import index_entries
from pipeline.files.places import file_name_of, map_file
from pipeline.jobs.audit.findings import Finding, Findings
from storage.format.index import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from storage.kernels.primitives.big_endian import read_i32
from storage.kernels.primitives.jit import BYTES, WRITABLE_INT64S, i64, int64, kernel, results

WRITABLE_INT32S: Final = types.Array(types.int32, 1, "C")
BAD_MAX: Final = 1 << 20


@kernel(results(int64, 2)(BYTES, int64, int64, WRITABLE_INT32S, WRITABLE_INT64S))
def follow_chains(
    file: Any, slot_count: int, entry_count: int, newest: Any, bad: Any
) -> tuple[int, int]:
    """Follow entries ``[1, entry_count]``: each must lead to the one before it in its slot.

    ``newest`` (zeros, one a slot) becomes the number that each slot should have; ``bad`` the first
    entries that lead elsewhere. Returns how many do, and how many slots are in use; ``(-1, -1)`` if
    an argument does not fit.
    """
    begin = HEADER_SIZE + SLOT_SIZE * slot_count
    if (
        slot_count <= 0
        or newest.size < slot_count
        or begin + ENTRY_SIZE * (entry_count + 1) > file.size
    ):
        return i64(-1), i64(-1)
    wrong = i64(0)
    used = i64(0)
    for entry in range(1, entry_count + 1):
        position = begin + ENTRY_SIZE * entry
        slot = (read_i32(file, position) & 0x7FFFFFFF) % slot_count
        before = newest[slot]
        if before == 0:
            used += 1
        if read_i32(file, position + 16) != before:
            if wrong < bad.size:
                bad[wrong] = entry
            wrong += 1
        newest[slot] = entry
    return wrong, used


def audit_chains(path: str, slot_count: int, findings: Findings, *, live: bool = False) -> None:
    """Check that slots lead to their newest entries, entries to the one before, and the header.

    A put writes entry, slot, header: of a ``live`` file, slots that are ahead of the header are good,
    and the header's counts are those of a moment.
    """
    header, entries = index_entries(path, slot_count)
    data = map_file(path)
    name = file_name_of(path)
    newest, bad = np.zeros(slot_count, np.int32), np.empty(BAD_MAX, np.int64)
    wrong, used = (int(n) for n in follow_chains(data, slot_count, len(entries), newest, bad))
    slots = np.frombuffer(data[HEADER_SIZE : HEADER_SIZE + SLOT_SIZE * slot_count], ">i4")
    wrong_slots = slots != newest
    if live:
        wrong_slots &= slots <= len(entries)
    astray = np.flatnonzero(wrong_slots)
    findings.add(_slots(name, slots, newest, astray), len(astray))
    findings.add(_entries(name, entries, bad[: min(wrong, BAD_MAX)]), wrong)
    if header.used_slot_count != used and not live:
        problem = f"the header counts {header.used_slot_count} slots in use, not {used}"
        findings.add([{"kind": "index", "file": name, "problem": problem}])
    if header.next_entry - 1 > len(entries):
        problem = f"the header counts {header.next_entry - 1} entries; {len(entries)} fit in"
        findings.add([{"kind": "index", "file": name, "problem": problem}])


def _slots(
    name: str, slots: npt.NDArray[Any], newest: npt.NDArray[Any], astray: npt.NDArray[np.int64]
) -> Iterator[Finding]:
    for slot in astray.tolist():
        problem = f"slot {slot} leads to entry {slots[slot]}, not {newest[slot]}"
        yield {"kind": "index", "file": name, "problem": problem}


def _entries(name: str, entries: npt.NDArray[Any], bad: npt.NDArray[np.int64]) -> Iterator[Finding]:
    for entry in bad.tolist():
        yield {
            "kind": "index",
            "file": name,
            "physicalOffset": int(entries["offset"][entry - 1]),
            "problem": f"entry {entry} leads to {entries['previous'][entry - 1]}, which is not the"
            " one before it in its slot",
        }

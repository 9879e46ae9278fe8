"""Files of each kind cut, emptied, zeroed, removed, swapped, or replaced by an old copy, while stopped.

All but the log can be made again: nothing is lost then. Of the log a damage costs the records that it hit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flip_bed import FlipBed, Tally
from steps_to_try import steps_to_try

PAGE = 512  # as small as the files are
Changes = dict[Path, bytes | None]
Damage = Callable[[FlipBed, Path], Changes]


@pytest.fixture
def bed(whole_bed: FlipBed, fault_report: list[str]) -> Iterator[FlipBed]:
    whole_bed.tally = Tally()
    yield whole_bed
    fault_report += [f"files: {line}" for line in whole_bed.tally.lines()]


def cut_short(bed: FlipBed, path: Path) -> Changes:
    data = bed.files[path]
    return {path: data[: len(data.rstrip(b"\0")) // 2]}


def emptied(bed: FlipBed, path: Path) -> Changes:
    return {path: b""}


def page_zeroed(bed: FlipBed, path: Path) -> Changes:
    data = bytearray(bed.files[path])
    at = len(data.rstrip(b"\0")) // 2 // PAGE * PAGE
    data[at : at + PAGE] = bytes(len(data[at : at + PAGE]))
    return {path: bytes(data)}


def all_zeroed(bed: FlipBed, path: Path) -> Changes:
    return {path: bytes(len(bed.files[path]))}


def removed(bed: FlipBed, path: Path) -> Changes:
    return {path: None}


def swapped(bed: FlipBed, path: Path) -> Changes:
    """With the next file of its directory; of tables the broker's own."""
    suffixes = (".bak", ".checksum")
    others = [
        each
        for each in bed.files
        if each.parent == path.parent and each > path and each.suffix not in suffixes
    ]
    if not others or path.suffix in suffixes:
        return {}
    return {path: bed.files[others[0]], others[0]: bed.files[path]}


def old_copy(bed: FlipBed, path: Path) -> Changes:
    return {path: bed.old_files[path]} if path in bed.old_files else {}


DAMAGES: list[Damage] = [
    cut_short, emptied, page_zeroed, all_zeroed, removed, swapped, old_copy
]  # fmt: skip
KINDS = ["log", "queues", "index", "index checksums", "tables", "journal", "checkpoint"]


EVERY = [(damage, kind) for damage in DAMAGES for kind in KINDS]


@pytest.mark.parametrize(
    ("damage", "kind"), steps_to_try(EVERY, 5), ids=lambda each: getattr(each, "__name__", each)
)
def test_a_damaged_file_costs_what_the_log_lost(bed: FlipBed, kind: str, damage: Damage) -> None:
    for path in bed.of_kind(kind):
        changes = damage(bed, path)
        if not changes or all(bed.files[each] == data for each, data in changes.items()):
            continue
        for start in (
            (False, True) if kind != "queues" else (True,)
        ):  # which finds lost ends of queues
            bed.damage(
                changes, f"{damage.__name__} {path.relative_to(bed.directory)}",
                hit=(path, 0, len(changes) * len(bed.files[path])), start=start,
            )  # fmt: skip
    assert not bed.tally.failures, "\n".join(bed.tally.failures[:6])

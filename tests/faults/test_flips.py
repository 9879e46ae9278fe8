"""One flipped bit anywhere in a stopped store: nothing is lost in silence and no other byte is served.

``FLIPS=10000`` flips so many at random in each of log, queues and index, and every bit of the
checkpoint and the tables (``make faults``, which sets ``ALL_STEPS`` too). ``FLIPS_SEED`` chooses others, so that many can be flipped in parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from flip_bed import FlipBed, Tally
from steps_to_try import steps_to_try

FLIPS = int(os.environ.get("FLIPS", "24"))
SEED = int(os.environ.get("FLIPS_SEED", "1"))
ALL_BITS = FLIPS >= 10_000
LIVE_SECTORS = range(512, 1536)  # of the checkpoint: words without a checksum, of this boot alone


@pytest.fixture
def bed(whole_bed: FlipBed, fault_report: list[str]) -> Iterator[FlipBed]:
    whole_bed.tally = Tally()
    yield whole_bed
    fault_report += [f"flips: {line}" for line in whole_bed.tally.lines()]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["log", "queues", "index", "index checksums"])
def test_a_random_bit_of_what_is_stored(bed: FlipBed, kind: str) -> None:
    places = bed.random_bits(bed.of_kind(kind), FLIPS, seed=SEED)
    assert places
    for number, (path, bit) in enumerate(places):
        is_at_an_end = kind == "queues" and bed.in_last_unit(path, bit)
        bed.flip(path, bit, start=is_at_an_end or number % 4 == 0)
    assert not bed.tally.failures, bed.tally.failures[:5]


def test_any_bit_of_the_last_unit_of_a_queue(bed: FlipBed) -> None:
    for path in bed.of_kind("queues"):
        used = len(bed.files[path].rstrip(b"\0"))
        bits = [bit for bit in range(0, 8 * used, 3) if bed.in_last_unit(path, bit)]
        for bit in steps_to_try(bits, 9, start=1):
            bed.flip(path, bit, start=True)
    assert not bed.tally.failures, bed.tally.failures[:5]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["checkpoint", "tables", "journal", "others"])
def test_every_bit_of_the_checkpoint_and_of_tables(bed: FlipBed, kind: str) -> None:
    """All that is not zero; a sample of it where ``FLIPS`` is small."""
    bits = [
        (path, bit)
        for path in bed.of_kind(kind)
        for bit in range(8 * len(bed.files[path]))
        if (ALL_BITS or bed.files[path][bit // 8])
        and not (kind == "checkpoint" and bit // 8 in LIVE_SECTORS)
    ]
    assert bits
    stride = 1 if ALL_BITS else max(len(bits) // FLIPS, 1) | 1
    for number, (path, bit) in enumerate(bits[::stride]):
        bed.flip(path, bit, start=number % 4 == 0)
    assert not bed.tally.failures, bed.tally.failures[:5]

"""Trailers of the kernels are those of the format, whatever the CRC."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from storage.format.property_crc import CRC_MASK, property_crc_trailer
from storage.kernels.primitives.jit import WRITABLE_BYTES, boolean, int64, kernel
from storage.kernels.properties import crc_trailer_tells, write_crc_trailer


@kernel(int64(WRITABLE_BYTES, int64, int64))
def write_at(data: np.ndarray, position: int, crc: int) -> int:
    write_crc_trailer(data, position, crc)
    return 0


@kernel(boolean(WRITABLE_BYTES, int64, int64))
def tells_at(data: np.ndarray, position: int, crc: int) -> bool:
    return crc_trailer_tells(data, position, crc)


def written(crc: int) -> bytes:
    data = np.full(26, 0xEE, np.uint8)
    plain = data.copy()
    write_at(data, 3, crc)
    write_at.py_func(plain, 3, crc)
    assert data.tobytes() == plain.tobytes()
    assert (data[:3] == 0xEE).all() and (data[23:] == 0xEE).all()
    return data[3:23].tobytes()


@given(st.integers(0, CRC_MASK))
@example(0)
@example(99_999_999)
@example(100_000_000)
@example(CRC_MASK)
def test_a_trailer_has_the_digits_of_its_crc(crc: int) -> None:
    assert written(crc) == property_crc_trailer(crc)


def test_all_values_of_each_half_of_the_digits_are_written_right() -> None:
    data = np.zeros(20, np.uint8)
    for half in range(10_000):
        for crc in (half, half * 10_000, half * 10_000 + 9_999, half * 200_000 + 1_234):
            write_at(data, 0, crc)
            assert data.tobytes() == property_crc_trailer(crc)


@given(st.integers(0, CRC_MASK), st.integers(0, 9), st.integers(0, 255))
def test_a_trailer_matches_its_own_crc_and_no_other(crc: int, digit: int, byte: int) -> None:
    data = np.frombuffer(property_crc_trailer(crc), np.uint8).copy()
    other = random.Random(crc).randrange(CRC_MASK)
    for tells in (tells_at, tells_at.py_func):
        assert tells(data, 0, crc)
        assert tells(data, 0, other) == (other == crc)
    before, data[9 + digit] = data[9 + digit], byte
    for tells in (tells_at, tells_at.py_func):
        assert tells(data, 0, crc) == (before == byte)

"""The table of index checksums: it is read as it was written, or not at all."""

from __future__ import annotations

from storage.format.index import IndexHeader
from storage.format.index_checksums import ChecksumRow, decode_table, encode_table

ROWS = {
    number: ChecksumRow(number, IndexHeader(end_commit_offset=number).encode(), number % 997, 5)
    for number in (20260101000000000, 20260102000000000)
}


def test_a_table_is_read_as_it_was_written() -> None:
    assert decode_table(encode_table(ROWS.values())) == ROWS
    assert decode_table(encode_table([])) == {}


def test_a_table_with_a_flipped_bit_or_a_lost_end_has_no_rows() -> None:
    data = encode_table(ROWS.values())
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert decode_table(bytes(changed)) == {}
    assert all(decode_table(data[:end]) == {} for end in range(len(data)))

"""Copies of records have the topic, queue, flags and properties that were asked for, and all else of the record."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from plain_records import check_record, encode_record
from record_examples import as_array

from storage.format.properties import decode_properties, encode_properties
from storage.format.record import decode_record
from storage.format.stops import Stop
from storage.kernels import copies as kernels
from storage.kernels.columns import STOP_END, new_rows
from storage.kernels.scan import scan_records

names = st.sampled_from(["a", "WAIT", "REAL_TOPIC", "REAL_TOPICS", "TIMES", "TAGS"])
blocks = st.one_of(
    st.dictionaries(names, st.text("xyzäé", min_size=1, max_size=9)).map(encode_properties),
    st.lists(st.sampled_from([b"\x01", b"\x02", b"a", b"TIMES\x01", b"TIMES\x012\x02"])).map(
        b"".join
    ),
)
DROPPED = kernels.dropped_names(["TIMES", "a"])


@given(
    st.lists(
        st.tuples(
            blocks, st.booleans(), st.booleans(), st.dictionaries(names, st.just("new")),
            st.sampled_from(["t", "%RETRY%" + "g" * 200]),
        ),
        min_size=1, max_size=4,
    )
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_a_copy_is_its_record_but_for_its_target(
    given_records: list[tuple[bytes, bool, bool, dict[str, str], str]],
) -> None:
    records = [
        encode_record(
            topic="orders", queue_id=3, body=b"body%d" % number, properties_block=block,
            queue_offset=7, commit_offset=number, store_timestamp_ms=5, reconsume_times=1,
            born_host="[2001:db8::2]:1" if v6 else "1.2.3.4:5", append_property_crc=crc,
            store_host="[2001:db8::1]:1" if v6 else "1.2.3.4:5",
        )
        for number, (block, v6, crc, _, _) in enumerate(given_records)
    ]  # fmt: skip
    source = as_array(b"".join(records))
    rows = new_rows(len(records))
    count, _, stop = scan_records(source, 0, source.size, 0, 0, rows)
    assert (count, stop) == (len(records), STOP_END)
    text = b"?"
    targets = kernels.new_targets(count)
    for number, (_, _, _, pairs, topic) in enumerate(given_records):
        block = encode_properties(pairs)
        targets[number] = (
            len(text), len(topic), number + 2, 8, number, number * 10, len(text) + len(topic), len(block),
        )  # fmt: skip
        text += topic.encode() + block
    outcomes = []
    for function in (kernels.copy_records, kernels.copy_records.py_func):
        room = kernels.copies_size_max(rows, count, targets)
        copies = as_array(bytes(room)).copy()
        size = int(function(source, rows, count, as_array(text), targets, DROPPED, copies))
        outcomes.append(bytes(copies[:size]))
    assert outcomes[0] == outcomes[1]
    position = 0
    for number, (_, v6, _, pairs, topic) in enumerate(given_records):
        assert check_record(outcomes[0], position) is Stop.END
        before, copy = decode_record(records[number]), decode_record(outcomes[0], position)
        position += copy.total_size
        expected = decode_properties(before.properties_block)
        for name in ("__CRC32#", "TIMES", "a"):
            expected.pop(name, None)
        assert decode_properties(copy.properties_block) == expected | pairs
        assert (copy.topic, copy.queue_id, copy.body) == (topic, number + 2, before.body)
        assert copy.sys_flag == (8 | 0x10 if v6 else 8)
        assert (copy.born_host, copy.born_timestamp_ms) == (
            before.born_host, before.born_timestamp_ms,
        )  # fmt: skip
        assert (copy.reconsume_times, copy.prepared_transaction_offset) == (number, number * 10)
        assert (copy.commit_offset, copy.store_timestamp_ms) == (0, 0)
    assert position == len(outcomes[0])


def test_a_pair_without_room_is_left_out_and_targets_outside_the_text_are_refused() -> None:
    data = encode_record(
        topic="orders", queue_id=0, body=b"",
        properties_block=encode_properties({"big": "x" * 32_700}),
    )  # fmt: skip
    source, rows = as_array(data), new_rows(1)
    scan_records(source, 0, source.size, 0, 0, rows)
    text = as_array(b"t" + encode_properties({"long": "y" * 100, "k": "v"}))
    targets = kernels.new_targets(1)
    targets[0] = (0, 1, 0, 0, 0, 0, 1, text.size - 1)
    copies = as_array(bytes(kernels.copies_size_max(rows, 1, targets))).copy()
    size = int(kernels.copy_records(source, rows, 1, text, targets, DROPPED, copies))
    assert decode_record(bytes(copies[:size])).properties == {"big": "x" * 32_700, "k": "v"}
    for column, value in ((0, -1), (0, text.size), (1, 0), (1, 256), (6, -1), (7, text.size)):
        wrong = targets.copy()
        wrong[0, column] = value
        assert kernels.copy_records(source, rows, 1, text, wrong, DROPPED, copies) == -1
    assert kernels.copy_records(source, rows, 1, text, targets, DROPPED, copies[:-1]) == -1

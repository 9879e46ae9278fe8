"""The template encoder against the plain one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage.format.record import encode_for_batch
from storage.format.record_template import TRAILER, RecordTemplate


@given(
    topic=st.sampled_from(["t", "orders", "x" * 127, "%RETRY%" + "y" * 150]),
    queue_id=st.integers(0, 1000),
    flag=st.integers(-(2**31), 2**31 - 1),
    born_timestamp_ms=st.integers(0, 2**62),
    born_host=st.sampled_from(["0.0.0.0:0", "10.1.2.3:4567", "[2001:db8::1]:10911"]),
    body=st.binary(max_size=300),
    block=st.sampled_from([b"", b"KEYS\x01a b\x02", "TAGS\x01\u00fcn\x02".encode()]),
)
def test_a_template_encodes_what_the_plain_encoder_does(
    topic: str,
    queue_id: int,
    flag: int,
    born_timestamp_ms: int,
    born_host: str,
    body: bytes,
    block: bytes,
) -> None:
    """Same bytes for every version, host family, body and property block."""
    template = RecordTemplate(
        topic, queue_id, flag=flag, born_timestamp_ms=born_timestamp_ms, born_host=born_host
    )

    plain = encode_for_batch(topic, queue_id, body, block, flag, 0, born_timestamp_ms, born_host)

    assert template.encode(body, block + TRAILER) == plain

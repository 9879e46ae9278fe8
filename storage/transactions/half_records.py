"""Half messages as records: from messages, their copies for consumers, stored again for a check, and read back.

Body, flag, born time, born host, reconsumeTimes and all other properties stay as they are. The kernels find
the properties that say what each record is.

Op records say which half messages are ended. Their body is a broker's: decimal queue offsets of the half
queue, each with a comma after it. A broker ignores the property of ours that says how they ended::

    TAGS    d
    WAIT    true
    ended   commit, rollback, given-up or again (stored again for a check)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.copies import copied_to, own_targets, property_block, scanned
from storage.engine.repeats import body_crcs
from storage.errors import InvalidBatch
from storage.format.names import GIVEN_UP_TOPIC, HALF_REMOVAL_TOPIC, HALF_TOPIC
from storage.format.properties import (
    CHECK_IMMUNITY,
    CHECK_TIMES,
    FIRST_HALF_OFFSET,
    HALF_MESSAGE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_ID,
    UNIQ_KEY,
    WAIT,
    decode_properties,
    encode_properties,
)
from storage.format.record import Record, encode_for_batch
from storage.format.record_layout import (
    SYS_FLAG_COMMITTED,
    SYS_FLAG_TRANSACTION_MASK,
)
from storage.kernels.columns import (
    COMMIT_OFFSET,
    POSITION,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_OFFSET,
    SIZE,
    STORE_TIMESTAMP,
    UNIQ_KEY_LENGTH,
    UNIQ_KEY_POSITION,
)
from storage.kernels.copies import (
    BLOCK_SIZE_MAX,
    TARGET_FLAG,
    TARGET_PREPARED,
    TARGET_QUEUE,
    dropped_names,
)
from storage.transactions.halves import Half
from storage.view.filters.property_columns import PropertyColumns, Texts

if TYPE_CHECKING:
    from storage.engine.copies import Targets
    from storage.engine.writer_view import QueueRecords
    from storage.kernels.columns import ByteArray, Rows
    from storage.log.batches import Prepared

REMOVAL_TAG: Final = "d"
BODY_SIZE_MAX: Final = 4_096  # as a broker gathers them
_OFFSET_SIZE_MAX: Final = 20
_OFFSETS_MAX: Final = BODY_SIZE_MAX // _OFFSET_SIZE_MAX
_ENDED: Final = "ended"
_LIGHT: Final = (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET)
_DROPPED: Final = dropped_names(_LIGHT)
_DROPPED_AGAIN: Final = dropped_names((*_LIGHT, CHECK_TIMES))
_HALF_TOPIC: Final = HALF_TOPIC.encode()
_IMMUNITY: Final = CHECK_IMMUNITY.encode()
_NUMBER_DIGITS_MAX: Final = 9
_OFFSET_DIGITS_MAX: Final = 19
_TIME_MAX_MS: Final = 1 << 53  # far from where times that are added to it overflow
_IDS: Final = Texts((TRANSACTION_ID, UNIQ_KEY))
_ALL: Final = Texts(
    (
        TRANSACTION_ID, UNIQ_KEY, REAL_TOPIC, REAL_QID, CHECK_TIMES, CHECK_IMMUNITY,
        FIRST_HALF_OFFSET,
    )
)  # fmt: skip


def unique_keys(sent: Prepared) -> Iterator[str]:
    """Yield the unique key of each message. Raises InvalidBatch at one without."""
    places = sent.rows[: sent.record_count, (UNIQ_KEY_POSITION, UNIQ_KEY_LENGTH)].tolist()
    for row, (position, length) in enumerate(places):
        if length == 0:
            raise InvalidBatch(row, "a message of a transaction needs the property UNIQ_KEY")
        yield sent.data[position : position + length].tobytes().decode()


def stored_halves(
    sent: Prepared, chosen: Sequence[int], ids: Sequence[str], keys: Sequence[str], placed_rows: Rows,
    stored_ms: int, *, immunity_s: int, immunity_ms: int, age_max_ms: int,
) -> list[Half]:  # fmt: skip
    """Return the halves of the ``chosen`` rows of a batch, with which all others go; they were placed at ``stored_ms``."""
    queues = [sent.queues[int(sent.group_of[row])] for row in chosen]
    waits = [_immunity_ms(sent, row, immunity_s) or immunity_ms for row in chosen]
    placed = placed_rows[:, (QUEUE_OFFSET, COMMIT_OFFSET, SIZE)].tolist()
    crcs = body_crcs(sent.data, sent.rows[list(chosen)])
    return [
        Half(
            transaction_id, key, topic.decode(), queue_id, queue_offset, commit_offset, size,
            stored_ms, stored_ms + min(wait_ms, age_max_ms), 0, int.from_bytes(body_crc),
        )
        for transaction_id, key, (topic, queue_id), wait_ms, body_crc, (queue_offset, commit_offset, size)
        in zip(ids, keys, queues, waits, crcs, placed, strict=True)
    ]  # fmt: skip


def _immunity_ms(sent: Prepared, row: int, immunity_s: int) -> int:
    """Return how long a message's producer is not asked, by its own property first; 0 if nothing says so."""
    position, length = sent.rows[row, (PROPERTIES_POSITION, PROPERTIES_LENGTH)].tolist()
    block = sent.data[position : position + length].tobytes()
    if _IMMUNITY in block:
        immunity_s = number_in(decode_properties(block).get(CHECK_IMMUNITY, ""), immunity_s)
    return immunity_s * 1_000


def halves_of(
    sent: Prepared, transaction_ids: Sequence[str], chosen: Sequence[int], *, immunity_s: int
) -> ByteArray:
    """Return half messages for the ``chosen`` rows of a checked batch, to be placed.

    ``transaction_ids`` go with ``chosen``. Raises InvalidBatch if a record's properties get too long.
    """
    rows = np.ascontiguousarray(sent.rows[list(chosen)])
    pairs = [
        _half_pairs(sent, row, transaction_id, immunity_s)
        for row, transaction_id in zip(chosen, transaction_ids, strict=True)
    ]
    for row, added in zip(chosen, pairs, strict=True):
        if int(sent.rows[row, PROPERTIES_LENGTH]) + len(added) > BLOCK_SIZE_MAX:
            raise InvalidBatch(row, "properties: too long for a message of a transaction")
    targets = _targets(sent.data, rows)
    return copied_to([_HALF_TOPIC] * len(pairs), pairs, sent.data, rows, targets, _DROPPED)


def _half_pairs(sent: Prepared, row: int, transaction_id: str, immunity_s: int) -> bytes:
    topic, queue_id = sent.queues[int(sent.group_of[row])]
    block = property_block(sent.data, sent.rows[row])
    name = topic.decode()
    pairs = {
        HALF_MESSAGE: "true",
        TRANSACTION_ID: transaction_id,
        REAL_TOPIC: name,
        REAL_QID: str(queue_id),
    }
    group = f"{PRODUCER_GROUP}\x01".encode()
    if not block.startswith(group) and b"\x02" + group not in block:
        pairs[PRODUCER_GROUP] = name
    if immunity_s:
        pairs[CHECK_IMMUNITY] = str(immunity_s)
    return encode_properties(pairs)


def committed_copies(halves: Sequence[ByteArray], queues: Sequence[tuple[str, int]]) -> ByteArray:
    """Return copies of half messages for consumers, to be placed in the topic and queue of each."""
    source, rows = scanned(halves)
    targets = _targets(source, rows)
    targets[:, TARGET_FLAG] |= SYS_FLAG_COMMITTED
    targets[:, TARGET_PREPARED] = rows[:, COMMIT_OFFSET]
    targets[:, TARGET_QUEUE] = [queue_id for _, queue_id in queues]
    topics = [topic.encode() for topic, _ in queues]
    return copied_to(topics, [b""] * len(topics), source, rows, targets, _DROPPED)


def halves_again(halves: Sequence[ByteArray], check_counts: Sequence[int]) -> ByteArray:
    """Return half messages with other counts of checks, to be placed."""
    source, rows = scanned(halves)
    pairs = [encode_properties({CHECK_TIMES: str(count)}) for count in check_counts]
    targets = _targets(source, rows)
    return copied_to([_HALF_TOPIC] * len(pairs), pairs, source, rows, targets, _DROPPED_AGAIN)


def given_up_copies(halves: Sequence[ByteArray]) -> ByteArray:
    """Return copies of half messages that nobody ended, to be placed; each names its half, unlike a broker's."""
    return committed_copies(halves, [(GIVEN_UP_TOPIC, 0)] * len(halves))


def _targets(source: ByteArray, rows: Rows) -> Targets:
    """Return the records' own targets, without the bits of transactions."""
    targets = own_targets(source, rows)
    targets[:, TARGET_FLAG] &= ~SYS_FLAG_TRANSACTION_MASK
    return targets


def halves_in(
    records: QueueRecords, *, immunity_ms: int, interval_ms: int, age_max_ms: int
) -> Iterator[tuple[Half | None, int]]:
    """Yield the half that each record is, and the queue offset of the one that it was stored again for, -1: none.

    No half is what lacks something that each has; any text is a valid property otherwise.
    """
    number = cache(number_in)  # few queues, and few times
    stored = records.rows[:, (COMMIT_OFFSET, SIZE, STORE_TIMESTAMP)].tolist()
    texts = zip(*_texts(records, _ALL), strict=True)
    crcs = body_crcs(records.data, records.rows)
    for queue_offset, (commit_offset, size, born_ms), body_crc, (
        transaction_id, unique_key, topic, queue_text, checked_text, immunity_text, first,
    ) in zip(records.queue_offsets.tolist(), stored, crcs, texts, strict=True):  # fmt: skip
        former = number_in(first, -1, digits_max=_OFFSET_DIGITS_MAX) if first else -1
        queue_id = number(queue_text, -1)
        has_all = (transaction_id or unique_key) and topic and queue_id >= 0
        if not has_all or not 0 <= born_ms <= _TIME_MAX_MS:
            yield None, former
            continue
        checked = number(checked_text, 0)
        immunity_s = number(immunity_text, -1)
        wait_ms = immunity_ms if immunity_s < 0 else immunity_s * 1_000
        # A producer's clock may be wrong, and what is too old is found when it is due.
        due_ms = born_ms + min(interval_ms if checked else wait_ms, age_max_ms)
        yield Half(
            transaction_id or unique_key, unique_key, topic, queue_id, queue_offset, commit_offset,
            size, born_ms, due_ms, checked, int.from_bytes(body_crc),
        ), former  # fmt: skip


def ids_in(records: QueueRecords) -> Iterator[tuple[int, str]]:
    """Yield queue offset and transaction id of each record; empty where it has none."""
    texts = zip(*_texts(records, _IDS), strict=True)
    for queue_offset, (transaction_id, unique_key) in zip(
        records.queue_offsets.tolist(), texts, strict=True
    ):
        yield queue_offset, transaction_id or unique_key


def _texts(records: QueueRecords, names: Texts) -> list[list[str]]:
    """Return for each name the value that each record has of that property, empty where it has none."""
    if not len(records.rows):
        return [[] for _ in names.ends]
    positions = np.ascontiguousarray(records.rows[:, POSITION])
    columns = PropertyColumns(records.data, positions, names)
    return [columns[number].texts for number in range(len(names.ends))]


def number_in(text: str, default: int, *, digits_max: int = _NUMBER_DIGITS_MAX) -> int:
    """Return the number that the value of a property is, ``default`` if it is something else or too long."""
    is_number = text.isascii() and text.isdigit() and len(text) <= digits_max
    return int(text) if is_number else default


class HalfEnd(StrEnum):
    """How half messages ended."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    GIVEN_UP = "given-up"
    AGAIN = "again"


_ENDS: Final = {end.value: end for end in HalfEnd}


def removal_records(
    queue_offsets: Sequence[int], end: HalfEnd, *, now_ms: int, host: str
) -> Iterator[bytes]:
    """Yield op records for half messages, as they go into a batch."""
    block = encode_properties({TAGS: REMOVAL_TAG, WAIT: "true", _ENDED: end.value})
    for begin in range(0, len(queue_offsets), _OFFSETS_MAX):
        body = "".join(f"{offset}," for offset in queue_offsets[begin : begin + _OFFSETS_MAX])
        yield encode_for_batch(
            HALF_REMOVAL_TOPIC, 0, body.encode(), block, 0, 0, now_ms, host, False
        )


def removed_offsets(body: bytes) -> list[int]:
    """Return the queue offsets that an op record's body names; of a body that is not a broker's, none."""
    parts = body.split(b",")
    if any(part and not part.isdigit() for part in parts):
        return []
    return [int(part) for part in parts if part and len(part) < _OFFSET_SIZE_MAX - 1]


def end_of(record: Record) -> HalfEnd | None:
    """Return how the half messages of an op record ended; None if a broker wrote it."""
    return _ENDS.get(record.properties.get(_ENDED, ""))

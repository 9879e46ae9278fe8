"""Halves from half messages, many records at once: the kernels find the properties that say what each is."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.repeats import body_crcs
from storage.format.properties import (
    CHECK_IMMUNITY,
    CHECK_TIMES,
    FIRST_HALF_OFFSET,
    REAL_QID,
    REAL_TOPIC,
    TRANSACTION_ID,
    UNIQ_KEY,
)
from storage.kernels.columns import COMMIT_OFFSET, POSITION, SIZE, STORE_TIMESTAMP
from storage.transactions.halves import Half, number_in
from storage.view.filters.property_columns import PropertyColumns, Texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.engine.parked_queue import ParkedRecords

_OFFSET_DIGITS_MAX: Final = 19
_TIME_MAX_MS: Final = 1 << 53  # far from where times that are added to it overflow
_IDS: Final = Texts((TRANSACTION_ID, UNIQ_KEY))
_ALL: Final = Texts(
    (
        TRANSACTION_ID, UNIQ_KEY, REAL_TOPIC, REAL_QID, CHECK_TIMES, CHECK_IMMUNITY,
        FIRST_HALF_OFFSET,
    )
)  # fmt: skip


def halves_in(
    records: ParkedRecords, *, immunity_ms: int, interval_ms: int, age_max_ms: int
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


def ids_in(records: ParkedRecords) -> Iterator[tuple[int, str, str]]:
    """Yield queue offset, transaction id and unique key of each record; empty where it has none."""
    transaction_ids, unique_keys = _texts(records, _IDS)
    for queue_offset, transaction_id, unique_key in zip(
        records.queue_offsets.tolist(), transaction_ids, unique_keys, strict=True
    ):
        yield queue_offset, transaction_id or unique_key, unique_key


def _texts(records: ParkedRecords, names: Texts) -> list[list[str]]:
    """Return for each name the value that each record has of that property, empty where it has none."""
    if not len(records.rows):
        return [[] for _ in names.ends]
    positions = np.ascontiguousarray(records.rows[:, POSITION])
    columns = PropertyColumns(records.data, positions, names)
    return [columns[number].texts for number in range(len(names.ends))]

"""Rows of a scan as the columns that Spark asks for, by the names of ``pipeline.source.schemas``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipeline.source.schemas import CORRUPT
from storage.arrow.record_columns import COLUMNS as OF_RECORDS
from storage.arrow.record_columns import RecordColumns

LOG_APPEND_TIME: Final = 1  # Kafka's timestampType for a time that the store gave
_NAMES: Final = {
    "topic": "topic",
    "queueId": "queue_id",
    "queueOffset": "queue_offset",
    "physicalOffset": "commit_offset",
    "size": "size",
    "tags": "tag",
    "body": "body",
    "bornTimestamp": "born_timestamp",
    "storeTimestamp": "store_timestamp",
    "bornHost": "born_host",
    "storeHost": "store_host",
    "sysFlag": "sys_flag",
    "flag": "flag",
    "bodyCrc": "body_crc",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_offset",
    "value": "body",
    "partition": "queue_id",
    "offset": "queue_offset",
    "timestamp": "store_timestamp",
}
COLUMNS: Final[dict[str, Callable[[RecordColumns], Any]]] = {
    **{name: OF_RECORDS[ours] for name, ours in _NAMES.items()},
    "msgId": RecordColumns.message_id,
    "keys": RecordColumns.keys,
    "properties": RecordColumns.properties,
    "headers": RecordColumns.headers,
    "key": lambda batch: batch.keys().cast(pa.binary()),
    "timestampType": lambda batch: pa.array(np.full(len(batch), LOG_APPEND_TIME, np.int32)),
    CORRUPT: RecordColumns.reasons,
}


def columns_of(batch: RecordColumns, names: Sequence[str]) -> dict[str, Any]:
    """Return columns by name. The body is made before the reason for one that is as stored."""
    return {name: COLUMNS[name](batch) for name in sorted(names, key=lambda name: name == CORRUPT)}

"""Recalls: records in the timer topic that name a message which is then not delivered. A broker's form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.copies import prepared_copies
from storage.errors import InvalidMessage, TooLateToRecall
from storage.format.limits import check_topic, check_unique_key
from storage.format.properties import (
    TAGS,
    TIMER_DEL_UNIQKEY,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    WAIT,
    encode_properties,
)
from storage.format.record import encode_for_batch
from storage.log.unique_keys import is_cut_short
from storage.timers.parking import DELAY_MS_MAX

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.timers.parking import Parking

RECALL_TAG: Final = "_RECALL_TAG_"
RECALL_BODY: Final = b"0"


class Recalls:
    """Appends recalls. Safe to call from several threads."""

    def __init__(self, engine: Engine, appender: Appender, parking: Parking, clock: Clock) -> None:
        self._engine = engine
        self._appender = appender
        self._parking = parking
        self._clock = clock

    def recall(self, topic: str, unique_key: str, recall_ms: int, *, born_host: str) -> int:
        """Append the recall of a message; return its record's end. Does not wait for durability.

        Whether there is such a message is not looked at, as at a broker. Raises TopicNotFound, InvalidMessage,
        TooLateToRecall, StoreBusy, StoreFull, StoreFailed.
        """
        self._appender.check_open()
        check_topic(topic)
        check_unique_key(unique_key)
        self._engine.topics.get(topic)
        now_ms = self._clock.now_ms()
        if not unique_key:
            raise InvalidMessage("recall_handle", "names no message")
        if is_cut_short(unique_key, self._engine.store_host):
            raise InvalidMessage("recall_handle", "is cut short: give it as it was printed")
        if recall_ms <= now_ms:
            raise TooLateToRecall(unique_key)
        if recall_ms - now_ms > DELAY_MS_MAX:
            raise InvalidMessage("recall_handle", "names a time that no message has")
        properties = {
            UNIQ_KEY: unique_key,
            WAIT: "true",
            TAGS: RECALL_TAG,
            TIMER_DELIVER_MS: str(recall_ms),
            TIMER_DEL_UNIQKEY: f"{topic}+{unique_key}",
        }
        record = encode_for_batch(
            topic, 0, RECALL_BODY, encode_properties(properties), 0, 0, now_ms, born_host,
            self._engine.config.append_property_crc,
        )  # fmt: skip
        prepared = prepared_copies(
            np.frombuffer(record, np.uint8), 1,
            store_host_size=len(self._engine.store_host),
            append_crc=self._engine.config.append_property_crc,
        )  # fmt: skip
        too_late = TooLateToRecall(unique_key)
        parked = self._parking.park(prepared)
        if parked is None:
            raise too_late
        return self._appender.append_parked(parked, (recall_ms, too_late))

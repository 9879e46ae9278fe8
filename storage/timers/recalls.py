"""Recalls: records in the timer topic that name a message which is then not delivered. A broker's form.

A recall that was met takes back what was stored before it in its second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

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
from storage.format.timer_files import SECOND_MS, out_ms
from storage.kernels.timers import DUE_MS, RECALL_KEY, RECALLS, ROLL_COUNT
from storage.log.unique_keys import is_cut_short
from storage.timers.schedule import DELAY_MS_MAX

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.timers.schedule import Schedule

LOCAL_HOST: Final = "127.0.0.1:0"
RECALL_TAG: Final = "_RECALL_TAG_"
RECALL_BODY: Final = b"0"
Longs = npt.NDArray[np.int64]
NONE: Final = 0
_SPREAD: Final = np.int64(0x9E37_79B9_7F4A_7C15 - (1 << 64))
_BEFORE_ALL: Final = -1


class Recalls:
    """Appends recalls. Safe to call from several threads."""

    def __init__(
        self, engine: Engine, appender: Appender, schedule: Schedule, clock: Clock
    ) -> None:
        self._engine = engine
        self._appender = appender
        self._schedule = schedule
        self._clock = clock

    def recall(
        self, topic: str, unique_key: str, recall_ms: int, *, born_host: str = LOCAL_HOST
    ) -> int:
        """Have a delayed message not delivered; return the end of what was appended. Does not wait for durability.

        ``recall_ms`` is that of the message's PutResult. Whether there is such a message is not looked at, as at a
        broker. Raises TopicNotFound, InvalidMessage,
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
        prepared = prepared_copies(self._engine, np.frombuffer(record, np.uint8), 1)
        too_late = TooLateToRecall(unique_key)
        parked = self._schedule.park(prepared)
        if parked is None:
            raise too_late
        return self._appender.append_parked(parked, (recall_ms, too_late))


def ids_in_second(hashed: Longs, dues_ms: Longs) -> Longs:
    """Return what records of one hash that are due in one second have in common. NONE without a hash."""
    ids: Longs = hashed ^ (out_ms(dues_ms) // SECOND_MS * _SPREAD)
    return np.where(hashed == NONE, NONE, ids)


class Recalled(dict[int, tuple[int, int]]):
    """Recalls by id: the queue offset of each, and when the last message of its second is due."""

    def note(self, said: Longs, queue_offsets: Longs) -> None:
        """Add the recalls among some records, in any order; of several of one message the last one counts."""
        places = np.flatnonzero(said[:, RECALLS] != NONE)
        dues_ms = said[places, DUE_MS]
        ids = ids_in_second(said[places, RECALLS], dues_ms).tolist()
        until_ms = (out_ms(dues_ms) + SECOND_MS).tolist()
        for each, *recall in zip(ids, queue_offsets[places].tolist(), until_ms, strict=True):
            self[each] = max(self.get(each, (_BEFORE_ALL, 0)), tuple(recall))

    def takes_back(self, ids: Longs, stored_at: Longs) -> npt.NDArray[np.bool_]:
        """Return which records one of them takes back: not those that were stored after it."""
        if not self:
            return np.zeros(len(ids), np.bool_)
        never = (_BEFORE_ALL, 0)
        return stored_at < np.array([self.get(each, never)[0] for each in ids.tolist()], np.int64)

    def forget(self, next_due_ms: int | None) -> None:
        """Forget those whose messages are gone; the next pending row is due at ``next_due_ms``."""
        for each, (_, until_ms) in list(self.items()):
            if next_due_ms is None or until_ms < next_due_ms:
                del self[each]


def recallable(said: Longs, queue_offsets: Longs) -> tuple[Longs, Longs]:
    """Return for some records of the timer topic the id that a recall of each has, and when it was stored.

    What a broker rolled on was stored before each recall, wherever it lies now.
    """
    keys = np.where(said[:, RECALLS] == NONE, said[:, RECALL_KEY], NONE)
    ids = ids_in_second(keys, said[:, DUE_MS])
    return ids, np.where(said[:, ROLL_COUNT] > 0, _BEFORE_ALL, queue_offsets)

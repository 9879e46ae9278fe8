"""What a broker had handed out to orderly groups when it stopped, as ``config/consumerOrderInfo.json`` says.

The group's offset is then the first message that is not acknowledged. What is acknowledged after it, and
until when the others are somebody's, stands in that file alone. A broker writes it every five seconds, and
when it stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from storage.format.config_json import integer_keyed
from storage.tables.table_files import read_table, table_in

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import ReadFileSystem

ORDERS_FILE: Final = "consumerOrderInfo.json"
_TABLE: Final = "table"
COUNT_MAX: Final = 64  # of messages that a broker hands out at once, at most


class BrokerOrder(NamedTuple):
    """What a group was handed of one queue at once. Times are Unix ms.

    ``repeats`` has for each queue offset that is not acknowledged how often it was handed out before.
    """

    popped_ms: int
    end_ms: int
    last_offset: int
    repeats: dict[int, int]


class BrokerOrders:
    """The file of one store; it is read whenever something is asked of it."""

    def __init__(self, filesystem: ReadFileSystem, config_directory: Path) -> None:
        self._filesystem = filesystem
        self._directory = config_directory

    def find(self, group: str, topic: str, queue_id: int) -> BrokerOrder | None:
        """Return what is out of a queue; None if nothing is, or the file does not say it."""

        def parse(document: dict[str, Any]) -> BrokerOrder | None:
            queues = table_in(document, _TABLE).get(f"{topic}@{group}") or {}
            found = {int(number): order for number, order in queues.items()}.get(queue_id)
            return None if found is None else _order(found)

        return read_table(self._filesystem, self._directory, ORDERS_FILE, parse)


def _order(order: Mapping[str, Any]) -> BrokerOrder | None:
    first, *distances = map(int, order["o"])
    offsets = [first, *(first + distance for distance in distances)]
    done_bits = int(order.get("cm", 0))
    popped_ms = int(order["popTime"])
    ends_ms = integer_keyed(order.get("ot") or {})
    times = integer_keyed(order.get("oc") or {})
    left = [offset for bit, offset in enumerate(offsets) if not done_bits >> bit & 1]
    if not left or not 0 <= offsets[-1] - first < COUNT_MAX:
        return None
    end_ms = max(ends_ms.get(offset, popped_ms + int(order["i"])) for offset in left)
    return BrokerOrder(
        popped_ms, end_ms, offsets[-1], {offset: times.get(offset, 0) for offset in left}
    )

"""Damaged records: an exception in their place, or a call of the user's own."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import DataLoss, PenstockError
from penstock.record import Record
from penstock.tables import RecordRange
from penstock.values import Damage, UncoveredRange

OnDamaged = Callable[[str, int, Damage], None]
"""Called with the topic, the queue id and the damage; the record is then skipped."""

OnUncovered = Callable[[UncoveredRange], None]
"""Called with each range of which records may be missing."""

Item = Record | RecordRange | PenstockError


def damage_error(
    damage: Damage, *, topic: str, queue_id: int = -1, next_offset: int = -1
) -> DataLoss:
    """Return the exception for one damaged record."""
    where = f"queue {queue_id} of topic {topic!r}, offset {damage.queue_offset}"
    return DataLoss(
        f"the record at commit offset {damage.commit_offset} ({where}) is damaged: {damage.reason}",
        topic=topic,
        queue_id=queue_id,
        damage=damage,
        next_offset=next_offset,
    )

"""Offsets of a stream as Spark's checkpoint keeps them.

Version 1::

    {"version": 1, "stores": {"/data/store": {"id": "9f...", "queues": {"orders": {"0": 120}},
                                              "incarnations": {"orders": 70112}}}}
    {"version": 1, "stores": {"/data/store": {"id": "9f...", "log": 81234}}}

``queues`` has the next queue offset of every queue; a stream without ``subscribe`` has ``log``, the next
commit offset. ``id`` is what the writer named the store, null for a broker's. ``from``, of the same form,
is where those begin that an offset is the first to have: a batch that is run again starts where it
did, whatever ``latest`` or ``earliest`` mean by then. ``incarnations`` has those topics of the queues that
were deleted before and created again (``storage.view.incarnations``); it is not there where deletions are not
known, nor in offsets that were written before there was such a thing. The offset before the first has no
stores.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pipeline.errors import WrongCheckpoint
from pipeline.source.stream.look import WHOLE_LOG
from storage.view.queues.record_queues import QueueKey

VERSION: Final = 1


@dataclass(frozen=True)
class StoreOffset:
    """The next offset of every queue of a store, and where new queues begin."""

    store_id: str | None
    ends: Mapping[QueueKey, int]
    begins: Mapping[QueueKey, int] = field(default_factory=dict)
    incarnations: Mapping[str, int] | None = None

    def made_again(self, incarnations: Mapping[str, int] | None) -> set[str]:
        """Return the topics that have another incarnation by now, as far as both are known."""
        if self.incarnations is None or incarnations is None:
            return set()
        return {
            topic
            for topic, _ in self.ends
            if self.incarnations.get(topic, 0) != incarnations.get(topic, 0)
        }

    def without(self, topics: Collection[str]) -> StoreOffset:
        """Return the offset without the queues of some topics."""
        return replace(
            self,
            ends={queue: end for queue, end in self.ends.items() if queue[0] not in topics},
            begins={queue: begin for queue, begin in self.begins.items() if queue[0] not in topics},
        )


@dataclass(frozen=True)
class StreamOffset:
    """How far a stream has come, by the name of each store."""

    stores: Mapping[str, StoreOffset] = field(default_factory=dict)

    @property
    def is_initial(self) -> bool:
        """Whether nothing has been decided yet."""
        return not self.stores

    def encode(self) -> dict[str, Any]:
        """Return the form for JSON; equal offsets are equal as text, too."""
        stores = {}
        for name, store in sorted(self.stores.items()):
            is_log = WHOLE_LOG in store.ends
            stores[name] = {
                "id": store.store_id,
                ("log" if is_log else "queues"): _nest(store.ends),
            }
            if store.begins:
                stores[name]["from"] = _nest(store.begins)
            if store.incarnations is not None and not is_log:
                stores[name]["incarnations"] = {
                    topic: store.incarnations[topic]
                    for topic in sorted({topic for topic, _ in store.ends})
                    if store.incarnations.get(topic)
                }
        return {"version": VERSION, "stores": stores}

    @classmethod
    def decode(cls, document: Mapping[str, Any]) -> StreamOffset:
        """Read the form back; raises WrongCheckpoint for any other, and for a newer version."""
        version = document.get("version")
        if isinstance(version, int) and version > VERSION:
            raise WrongCheckpoint(
                f"the checkpoint has offsets of version {version}, this Penstock knows {VERSION};"
                " use the one that wrote it"
            )
        try:
            if version != VERSION:
                raise ValueError(f"version {version!r}")
            return cls(
                {
                    str(name): StoreOffset(
                        store["id"],
                        _flat(store["log"] if "log" in store else store["queues"]),
                        _flat(store.get("from", {})),
                        _incarnations(store.get("incarnations")),
                    )
                    for name, store in document["stores"].items()
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WrongCheckpoint(
                f"the checkpoint's offset is not one of this format ({error}); choose another"
                " checkpointLocation"
            ) from error


def _nest(offsets: Mapping[QueueKey, int]) -> Any:
    if WHOLE_LOG in offsets:
        return offsets[WHOLE_LOG]
    nested: dict[str, dict[str, int]] = {}
    for (topic, queue_id), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(queue_id)] = offset
    return nested


def _incarnations(given: Any) -> dict[str, int] | None:
    return None if given is None else {str(topic): int(each) for topic, each in given.items()}


def _flat(nested: Any) -> dict[QueueKey, int]:
    if isinstance(nested, int):
        return {WHOLE_LOG: nested}
    return {
        (str(topic), int(queue_id)): int(offset)
        for topic, queues in nested.items()
        for queue_id, offset in queues.items()
    }

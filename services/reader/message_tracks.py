"""A message's way: what each group that reads its queue did with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from penstock.v1 import leases_pb2
from services.reader.leases import ReaderLeases
from services.rpc.status import InvalidArgument
from storage.errors import StoreClosed
from storage.format.message_id import encode_message_id
from storage.format.names import DLQ_PREFIX
from storage.format.properties import (
    NAME_END,
    ORIGIN_MESSAGE_ID,
    PROPERTY_END,
)
from storage.format.record import Record, decode_record
from storage.leases.queues import NOWHERE
from storage.leases.values import LeaseTrack, TrackState
from storage.reader import StoreReader

_LETTERS: Final = 1_024  # that are read at once
_LETTER_BYTES: Final = 4 << 20


class MessageTracks:
    """Answers from a store and its leases; for threads."""

    def __init__(self, reader: StoreReader, leases: ReaderLeases) -> None:
        self._reader = reader
        self._leases = leases
        self._queues = leases.queues

    def of(
        self, request: leases_pb2.TrackMessageRequest, is_wanted: Callable[[], bool]
    ) -> leases_pb2.TrackMessageResponse:
        """Return what became of a message in each group.

        Raises TopicNotFound, QueueNotFound, InvalidArgument for a message that the queue does not have, and
        StoreClosed once ``is_wanted`` says no.
        """
        topic, queue_id, queue_offset = request.topic, request.queue_id, request.queue_offset
        record = self._record(topic, queue_id, queue_offset)
        if request.HasField("commit_offset") and request.commit_offset != record.commit_offset:
            raise InvalidArgument(
                "commit_offset",
                f"is {request.commit_offset}, and the queue has the message of {record.commit_offset} there: the"
                " topic was deleted and created again since",
            )
        origin_id = _origin_id(record)
        response = leases_pb2.TrackMessageResponse()
        for track in self._tracks(topic, queue_id, queue_offset):
            state, commit_offset = track.state, None
            if state in (TrackState.DONE, TrackState.DEAD):
                commit_offset = self._dead_letter(
                    track.group, origin_id, record.store_timestamp_ms, is_wanted
                )
                state = state if commit_offset is None else TrackState.DEAD
            response.groups.add(
                group=track.group,
                state=state.name,
                attempts=track.attempts,
                until_ms=track.until_ms,
                client_id=track.client_id,
                dead_letter_commit_offset=commit_offset,
            )
        return response

    def _record(self, topic: str, queue_id: int, queue_offset: int) -> Record:
        low = self._reader.min_offset(topic, queue_id)
        high = self._reader.max_offset(topic, queue_id)
        if not low <= queue_offset < high:
            raise InvalidArgument(
                "queue_offset",
                f"is {queue_offset}, and the queue has messages from {low} to {high}",
            )
        place = self._queues.place(topic, queue_id, queue_offset)
        if place == NOWHERE:
            raise InvalidArgument("queue_offset", f"is {queue_offset}, whose record cannot be read")
        return decode_record(self._reader.message(place.commit_offset))

    def _tracks(self, topic: str, queue_id: int, queue_offset: int) -> list[LeaseTrack]:
        tracks = {each.group: each for each in self._leases.tracks(topic, queue_id, queue_offset)}
        for group, offsets in self._reader.consumer_offsets.groups_of(topic).items():
            if group not in tracks and queue_id in offsets:
                is_done = queue_offset < offsets[queue_id]
                state = TrackState.DONE if is_done else TrackState.READY
                tracks[group] = LeaseTrack(group, state)
        return [tracks[group] for group in sorted(tracks)]

    def _dead_letter(
        self, group: str, origin_id: str, stored_ms: int, is_wanted: Callable[[], bool]
    ) -> int | None:
        """Look through what was stored in a group's dead letters since the message was.

        Returns the commit offset of the message's dead letter, None if there is none.
        """
        topic = f"{DLQ_PREFIX}{group}"
        if topic not in self._reader.topics:
            return None
        needle = f"{ORIGIN_MESSAGE_ID}{chr(NAME_END)}{origin_id}{chr(PROPERTY_END)}".encode()
        for queue_id in self._queues.queue_ids(topic):
            _, end = self._queues.bounds(topic, queue_id)
            at = self._reader.offset_by_time(topic, queue_id, timestamp_ms=stored_ms)
            while at < end:
                _check(is_wanted)
                offsets = np.arange(at, min(at + _LETTERS, end))
                records = self._queues.records_at(topic, queue_id, offsets, max_bytes=_LETTER_BYTES)
                views = [view for view in records.slices if needle in bytes(view)]
                found = _letter_among(views, origin_id)
                if found is not None:
                    return found
                if not records.looked_at:  # nothing more of this queue is shown
                    break
                at += records.looked_at
        return None


def _origin_id(record: Record) -> str:
    """Return what to know a dead letter of a record by: see ``storage.engine.dead_letters``."""
    own_id = encode_message_id(record.store_host, record.commit_offset)
    return record.properties.get(ORIGIN_MESSAGE_ID, own_id)


def _letter_among(views: Sequence[memoryview], origin_id: str) -> int | None:
    """Return the commit offset of the record that is a copy of a message, None if none is."""
    for view in views:
        position = 0
        while position < len(view):
            record = decode_record(view, position)
            if record.properties.get(ORIGIN_MESSAGE_ID) == origin_id:
                return record.commit_offset
            position += record.total_size
    return None


def _check(is_wanted: Callable[[], bool]) -> None:
    if not is_wanted():
        raise StoreClosed("nobody waits for the message's way any more")

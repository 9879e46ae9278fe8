"""The store behind a reader service as a stream sees it. An idle look is one small question."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

from pipeline.source.options import ReadOptions
from pipeline.source.pieces import Piece
from pipeline.source.remote import Endpoint, Listing, RemoteQueue
from pipeline.source.selection import check_topics, wants
from pipeline.source.stream.look import Look, Span
from storage.clock import SystemClock
from storage.view.queues.record_queues import QueueKey

SETTLE_S: Final = 0.05


class RemoteView:
    """A reader service, without a selection all of its queues; has the methods of FileView."""

    def __init__(self, options: ReadOptions) -> None:
        self._endpoint = Endpoint(options)
        self._selection = options.selection
        self._patience_s = options.endpoint_timeout_ms / 1e3
        self._clock = SystemClock()
        self._listing: Listing | None = None
        self._look: Look | None = None
        self._queues: dict[QueueKey, RemoteQueue] = {}

    @property
    def name(self) -> str:
        """The address; the store's id distinguishes it from others that come to serve there."""
        return self._endpoint.address

    def look(self) -> Look:
        """Return what can be read now. Raises ReaderUnavailable."""
        listing = self._listing
        # Only a writer of ours says how far its store goes; the queues of any other are looked at.
        if listing is not None and listing.store_id and self._endpoint.bounds() == listing.bounds:
            assert self._look is not None
            return self._look
        self._listing, self._queues = self._settled()
        spans = {key: Span(queue.begin, queue.end) for key, queue in self._queues.items()}
        known = {
            queue.topic: queue.incarnation
            for queue in self._queues.values()
            if queue.incarnation is not None
        }
        is_known = len(known) == len({topic for topic, _ in self._queues})
        look = Look(self._listing.store_id or None, spans, known if is_known else None)
        if look != self._look:
            self._look = look
        return self._look

    def _settled(self) -> tuple[Listing, dict[QueueKey, RemoteQueue]]:
        """Ask until no queue ends before it did: a writer that starts shows less for a moment."""
        until = self._clock.monotonic() + self._patience_s
        while True:
            listing = self._endpoint.list_queues(self._selection.topics)
            queues = {
                key: queue for key, queue in listing.queues.items() if wants(self._selection, *key)
            }
            is_less = any(
                queue.end < self._queues[key].end
                for key, queue in queues.items()
                if key in self._queues and queue.incarnation == self._queues[key].incarnation
            )
            if not is_less or self._clock.monotonic() > until:
                return listing, queues
            time.sleep(SETTLE_S)

    def check_selection(self) -> None:
        """Raise InvalidOption for a topic that the reader does not know."""
        assert self._listing is not None
        check_topics(self._selection, self._listing.topics, self.name)

    def offset_at_time(self, key: QueueKey, timestamp_ms: int) -> int | None:
        """Return the first offset stored at or after a time."""
        return self._endpoint.offset_at_time(*key, timestamp_ms)

    def stored_at(self, key: QueueKey, offset: int) -> int:
        """Return when the record at an offset was stored, 0 if that cannot be read."""
        return self._endpoint.stored_at(*key, offset)

    def bytes_of(self, key: QueueKey, span: Span) -> int:
        """Estimate the bytes of a span by the queue's mean."""
        return int(self._queues[key].mean_size * (span.end - span.begin))

    def after_records(self, key: QueueKey, span: Span, count: int) -> int:  # noqa: ARG002
        """Return the offset after the first records."""
        return min(span.end, span.begin + count)

    def after_bytes(self, key: QueueKey, span: Span, size: int) -> tuple[int, int]:
        """Return the offset after the first records that fit by the queue's mean."""
        mean = self._queues[key].mean_size
        count = min(span.end - span.begin, int(size / mean))
        return span.begin + count, int(count * mean)

    def pieces(self, spans: Mapping[QueueKey, Span], piece_bytes: int) -> Iterator[Piece]:
        """Cut spans into pieces."""
        for key, span in spans.items():
            yield from self._queues[key].pieces(self.name, *span, piece_bytes)

    def close(self) -> None:
        """Let go of the connection."""
        self._endpoint.close()

"""From where a stream has come to where its next batch ends; nothing here knows Spark or files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pipeline.errors import DataLost, InvalidOption, WrongCheckpoint
from pipeline.source.options import EARLIEST, LATEST, ReadOptions
from pipeline.source.selection import QueueBounds, resolve_point, wants
from pipeline.source.stream.look import WHOLE_LOG, Look, Span, queue_text
from pipeline.source.stream.offsets import StoreOffset, StreamOffset
from storage.view.queues.record_queues import QueueKey

if TYPE_CHECKING:
    from pipeline.source.stream.file_view import FileView
    from pipeline.source.stream.remote_view import RemoteView

LOG: Final = logging.getLogger(__name__)
StoreQueue = tuple[str, QueueKey]
"""A queue of a store."""
Looks = Mapping[str, Look]


@dataclass(frozen=True)
class Backlog:
    """What waits in each queue, and which of the queues are new."""

    spans: Mapping[StoreQueue, Span]
    new: frozenset[StoreQueue]

    @property
    def waiting(self) -> dict[StoreQueue, int]:
        """How much waits in each queue that has anything."""
        return {
            key: span.end - span.begin for key, span in self.spans.items() if span.end > span.begin
        }


@dataclass(frozen=True)
class Caps:
    """At most so many records and bytes in a batch; one record may be larger."""

    records: int | None = None
    size: int | None = None


class StreamProgress:
    """Plans the batches of one query over its stores."""

    def __init__(self, options: ReadOptions, views: Sequence[FileView | RemoteView]) -> None:
        self.options = options
        self.views = {view.name: view for view in views}
        self._warned: set[str] = set()

    def look(self) -> dict[str, Look]:
        """Look at every store."""
        return {name: view.look() for name, view in self.views.items()}

    # ---- from offset to backlog

    def backlog(self, offset: StreamOffset, looks: Looks) -> Backlog:
        """Return what waits after an offset; queues that it does not have begin as new ones do.

        At the first offset of all they begin where the options say, later at their earliest. Raises
        WrongCheckpoint, DataLost, InvalidOption.
        """
        recorded = self._recorded(offset, looks)
        spans: dict[StoreQueue, Span] = {}
        new: set[StoreQueue] = set()
        if offset.is_initial:
            for view in self.views.values():
                view.check_selection()
        for name, look in looks.items():
            known = recorded.get(name)
            for queue, span in look.spans.items():
                if known is not None and queue in known.ends:
                    begin = self._kept(name, queue, known.ends[queue], span)
                else:
                    new.add((name, queue))
                    begin = self._start(name, queue, span) if offset.is_initial else span.begin
                spans[name, queue] = Span(begin, span.end)
        return Backlog(spans, frozenset(new))

    def batch(
        self, start: StreamOffset, end: StreamOffset, looks: Looks
    ) -> dict[str, dict[QueueKey, Span]]:
        """Return the spans of a planned batch, by store. Raises as ``backlog`` does."""
        before, until = self._recorded(start, looks), self._recorded(end, looks)
        found: dict[str, dict[QueueKey, Span]] = {}
        for name, store in until.items():
            known = before[name].ends if name in before else {}
            for queue, stop in store.ends.items():
                if queue not in known and queue not in store.begins:
                    raise WrongCheckpoint(
                        f"the checkpoint does not say where {queue_text(queue)} of store {name} begins"
                    )
                first = known[queue] if queue in known else store.begins[queue]
                span = looks[name].spans.get(queue)
                if span is None or stop <= first:
                    continue
                self._check_end(name, queue, stop, span)
                first = self._kept(name, queue, first, Span(span.begin, stop))
                if first < stop:
                    found.setdefault(name, {})[queue] = Span(first, stop)
        return found

    def _recorded(self, offset: StreamOffset, looks: Looks) -> dict[str, StoreOffset]:
        """Match recorded stores and queues with those there are."""
        found: dict[str, StoreOffset] = {}
        for name, store in offset.stores.items():
            there = self._same_store(name, store, offset, looks)
            if there is None:
                continue
            queues = looks[there].spans
            if (WHOLE_LOG in store.ends) != (WHOLE_LOG in queues) and store.ends and queues:
                raise WrongCheckpoint(
                    "the checkpoint is of a stream of "
                    + ("the whole log" if WHOLE_LOG in store.ends else "queues")
                    + "; choose topics as in the query that wrote it, or another checkpointLocation"
                )
            made_again = store.made_again(looks[there].incarnations) & {
                topic for topic, _ in queues
            }
            for topic in sorted(made_again):
                self._made_again(there, topic, store.ends)
            store = store.without(made_again)
            gone = [queue for queue in store.ends if queue not in queues]
            for queue in gone:
                self._gone(there, queue, store.ends[queue])
            found[there] = store
        return found

    def _same_store(
        self, name: str, store: StoreOffset, offset: StreamOffset, looks: Looks
    ) -> str | None:
        """Return the name that a recorded store has now: it may have been moved."""
        if name in looks:
            there = looks[name].store_id
            if store.store_id is None or store.store_id == there:
                return name
            raise WrongCheckpoint(
                f"the checkpoint is of another store: {name} was {store.store_id} then and is"
                f" {there or 'a store without an id'} now; choose another checkpointLocation"
            )
        for other, look in looks.items():
            if store.store_id and look.store_id == store.store_id and other not in offset.stores:
                return other
        problem = (
            f"the checkpoint is of store {name} ({store.store_id or 'without an id'}), and the query"
            f" reads {', '.join(looks)}"
        )
        if self.options.fail_on_data_loss or not set(offset.stores) & set(looks):
            raise WrongCheckpoint(
                f"{problem}; give that store, too, or choose another checkpointLocation"
            )
        self._lose(problem, "go on without it")
        return None

    def _made_again(self, name: str, topic: str, recorded: Collection[QueueKey]) -> None:
        queues = [queue for queue in recorded if queue[0] == topic]
        if any(wants(self.options.selection, *queue) for queue in queues):
            self._lose(
                f"topic {topic!r} of store {name} was deleted and created again since this stream read it;"
                " its unread messages are lost",
                "read the new topic from its beginning",
            )

    def _gone(self, name: str, queue: QueueKey, recorded: int) -> None:
        if queue != WHOLE_LOG and not wants(self.options.selection, *queue):
            return  # the query does not ask for it any more
        self._lose(
            f"{queue_text(queue)} of store {name} is gone; offset {recorded} was reached",
            "go on without it",
        )

    def _kept(self, name: str, queue: QueueKey, recorded: int, span: Span) -> int:
        """Return where to go on from an offset that has been reached; the oldest if it is lost."""
        if recorded < span.begin:
            self._lose(
                f"offsets {recorded} to {min(span.begin, max(span.end, recorded))} of"
                f" {queue_text(queue)} of store {name} have been removed before they were read; the"
                f" oldest is {span.begin}",
                "go on from the oldest",
            )
            return span.begin
        self._check_end(name, queue, recorded, span)
        return recorded

    def _lose(self, problem: str, otherwise: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLost(f"{problem}. Set failOnDataLoss=false to {otherwise}")
        if problem not in self._warned:
            self._warned.add(problem)
            LOG.warning("%s; failOnDataLoss is false: %s", problem, otherwise)

    @staticmethod
    def _check_end(name: str, queue: QueueKey, recorded: int, span: Span) -> None:
        if recorded > span.end:
            raise WrongCheckpoint(
                f"{queue_text(queue)} of store {name} ends at {span.end}, and offset {recorded} has been"
                " reached before: the store was put back to an older state, lost its newest messages"
                " in a power cut, or a broker deleted the topic and made it again. If the writer has not run"
                " since a power cut, start that first; else choose another checkpointLocation"
            )

    def _start(self, name: str, queue: QueueKey, span: Span) -> int:
        view, point = self.views[name], self.options.start
        if queue != WHOLE_LOG:
            bounds = QueueBounds(*queue, span.begin, span.end)
            return resolve_point(
                bounds,
                point,
                self.options,
                lambda time: view.offset_at_time(queue, time),
                start=True,
            )
        if point.each is not None:
            raise InvalidOption(
                point.option, "names queues, so choose them: subscribe, subscribePattern or assign"
            )
        if point.is_time:
            assert point.everywhere is not None
            found = view.offset_at_time(queue, point.everywhere)
            if found is None and self.options.strategy == "error" and span.end > span.begin:
                raise InvalidOption(
                    point.option,
                    f"store {name} has nothing stored at or after {point.everywhere}; choose an"
                    " earlier time, or startingOffsetsByTimestampStrategy=latest",
                )
            return span.end if found is None else found
        assert point.everywhere in (EARLIEST, LATEST)
        return span.begin if point.everywhere == EARLIEST else span.end

    # ---- from backlog to the end of a batch

    def ends(self, backlog: Backlog, caps: Caps) -> dict[StoreQueue, int]:
        """Return where a batch ends in each queue."""
        spans = dict(backlog.spans)
        if caps.records is not None:
            shares = shares_of(backlog.waiting, caps.records, self._oldest_of(spans))
            for key, share in shares.items():
                end = self.views[key[0]].after_records(key[1], spans[key], share)
                spans[key] = Span(spans[key].begin, end)
        if caps.size is not None:
            spans |= self._within(spans, caps.size)
        return {key: span.end for key, span in spans.items()}

    def _within(self, spans: Mapping[StoreQueue, Span], size: int) -> dict[StoreQueue, Span]:
        waiting = {
            (name, queue): self.views[name].bytes_of(queue, span)
            for (name, queue), span in spans.items()
            if span.end > span.begin
        }
        if sum(waiting.values()) <= size:
            return {}
        found, taken = {}, 0
        for key, share in shares_of(waiting, size, self._oldest_of(spans)).items():
            end, used = self.views[key[0]].after_bytes(key[1], spans[key], share)
            found[key] = Span(spans[key].begin, end)
            taken += used
        rest = {key: Span(span.end, spans[key].end) for key, span in found.items()}
        open_keys = [key for key, span in rest.items() if span.end > span.begin]
        for key in sorted(open_keys, key=self._oldest_of(rest)):
            if taken >= size:
                break
            name, queue = key
            after = self.views[name].after_records(queue, rest[key], 1)
            one = self.views[name].bytes_of(queue, Span(rest[key].begin, after))
            if taken + one <= size or not taken:
                found[key] = Span(found[key].begin, after)
                taken += one
        return found

    def _oldest_of(self, spans: Mapping[StoreQueue, Span]) -> Callable[[StoreQueue], int]:
        """Return the key that orders queues by when their next record was stored."""
        return lambda key: self.views[key[0]].stored_at(key[1], spans[key].begin)

    def offset(
        self, backlog: Backlog, ends: Mapping[StoreQueue, int], looks: Looks
    ) -> StreamOffset:
        """Return the offset of a batch that ends there."""
        stores = {}
        for name, look in looks.items():
            queues = {queue: end for (store, queue), end in ends.items() if store == name}
            begins = {
                queue: backlog.spans[store, queue].begin
                for store, queue in backlog.new
                if store == name
            }
            stores[name] = StoreOffset(look.store_id, queues, begins, look.incarnations)
        return StreamOffset(stores)


def shares_of(
    waiting: Mapping[StoreQueue, int], cap: int, oldest: Callable[[StoreQueue], int]
) -> dict[StoreQueue, int]:
    """Share a cap in proportion to what waits in each queue, as Kafka's source does; together they get all of it, or all that waits.

    Each gets its part of the cap, rounded down; what is left goes, one by one, to those whose next
    record is the oldest. So a queue with little is served, too, when its record has waited longest.
    """
    total = sum(waiting.values())
    if total <= cap:
        return dict(waiting)
    shares = {key: cap * count // total for key, count in waiting.items()}
    left = cap - sum(shares.values())
    short = [key for key, count in waiting.items() if shares[key] < count]
    if left:
        for key in sorted(short, key=oldest)[:left]:
            shares[key] += 1
    return shares

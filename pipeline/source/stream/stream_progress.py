"""From where a stream has come to where its next batch ends; nothing here knows Spark or files."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.errors import DataLost, InvalidOption, WrongCheckpoint
from pipeline.source.options import EARLIEST, LATEST, ReadOptions
from pipeline.source.points import QueueBounds, resolve_point
from pipeline.source.selecting import wants
from pipeline.source.stream.log_view import WHOLE_LOG, Lane, LogView, Look, Span, lane_text
from pipeline.source.stream.shares import shares_of
from pipeline.source.stream.stream_offsets import StoreOffset, StreamOffset

LOG: Final = logging.getLogger(__name__)
Key = tuple[str, Lane]
"""A lane of a store."""
Looks = Mapping[str, Look]


@dataclass(frozen=True)
class Backlog:
    """What waits in each lane, and which of the lanes are new."""

    spans: Mapping[Key, Span]
    new: frozenset[Key]

    @property
    def waiting(self) -> dict[Key, int]:
        """How much waits in each lane that has anything."""
        return {
            key: span.end - span.begin for key, span in self.spans.items() if span.end > span.begin
        }


@dataclass(frozen=True)
class Caps:
    """At most so many records and, but for one record, bytes in a batch."""

    records: int | None = None
    size: int | None = None


class Progress:
    """Plans the batches of one query over its stores."""

    def __init__(self, options: ReadOptions, views: Sequence[LogView]) -> None:
        self.options = options
        self.views = {view.name: view for view in views}
        self._warned: set[str] = set()

    def look(self) -> dict[str, Look]:
        """Look at every store."""
        return {name: view.look() for name, view in self.views.items()}

    # ---- from offset to backlog

    def backlog(self, offset: StreamOffset, looks: Looks) -> Backlog:
        """Return what waits behind an offset; lanes that it does not have begin as new ones do.

        At the first offset of all they begin where the options say, later at their earliest. Raises
        WrongCheckpoint, DataLost, InvalidOption.
        """
        recorded = self._recorded(offset, looks)
        spans: dict[Key, Span] = {}
        new: set[Key] = set()
        if offset.is_initial:
            for view in self.views.values():
                view.check_selection()
        for name, look in looks.items():
            known = recorded.get(name)
            for lane, span in look.spans.items():
                if known is not None and lane in known.ends:
                    begin = self._kept(name, lane, known.ends[lane], span)
                else:
                    new.add((name, lane))
                    begin = self._start(name, lane, span) if offset.is_initial else span.begin
                spans[name, lane] = Span(begin, span.end)
        return Backlog(spans, frozenset(new))

    def batch(
        self, start: StreamOffset, end: StreamOffset, looks: Looks
    ) -> dict[str, dict[Lane, Span]]:
        """Return the spans of a planned batch, by store. Raises as ``backlog`` does."""
        before, until = self._recorded(start, looks), self._recorded(end, looks)
        found: dict[str, dict[Lane, Span]] = {}
        for name, store in until.items():
            known = before[name].ends if name in before else {}
            for lane, stop in store.ends.items():
                if lane not in known and lane not in store.begins:
                    raise WrongCheckpoint(
                        f"the checkpoint does not say where {lane_text(lane)} of store {name} begins"
                    )
                first = known[lane] if lane in known else store.begins[lane]
                span = looks[name].spans.get(lane)
                if span is None or stop <= first:
                    continue
                self._check_end(name, lane, stop, span)
                first = self._kept(name, lane, first, Span(span.begin, stop))
                if first < stop:
                    found.setdefault(name, {})[lane] = Span(first, stop)
        return found

    def _recorded(self, offset: StreamOffset, looks: Looks) -> dict[str, StoreOffset]:
        """Match recorded stores and lanes with those there are."""
        found: dict[str, StoreOffset] = {}
        for name, store in offset.stores.items():
            there = self._same_store(name, store, offset, looks)
            if there is None:
                continue
            lanes = looks[there].spans
            if (WHOLE_LOG in store.ends) != (WHOLE_LOG in lanes) and store.ends and lanes:
                raise WrongCheckpoint(
                    "the checkpoint is of a stream of "
                    + ("the whole log" if WHOLE_LOG in store.ends else "queues")
                    + "; choose topics as in the query that wrote it, or another checkpointLocation"
                )
            made_again = store.made_again(looks[there].incarnations) & {topic for topic, _ in lanes}
            for topic in sorted(made_again):
                self._made_again(there, topic, store.ends)
            store = store.without(made_again)
            gone = [lane for lane in store.ends if lane not in lanes]
            for lane in gone:
                self._gone(there, lane, store.ends[lane])
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

    def _made_again(self, name: str, topic: str, recorded: Collection[Lane]) -> None:
        queues = [lane for lane in recorded if lane[0] == topic]
        if any(wants(self.options.selection, *lane) for lane in queues):
            self._lose(
                f"topic {topic!r} of store {name} was deleted and made again since this stream read it;"
                " what it had that was not read is gone",
                "read the new topic from its beginning",
            )

    def _gone(self, name: str, lane: Lane, recorded: int) -> None:
        if lane != WHOLE_LOG and not wants(self.options.selection, *lane):
            return  # the query does not ask for it any more
        self._lose(
            f"{lane_text(lane)} of store {name} is gone; offset {recorded} was reached",
            "go on without it",
        )

    def _kept(self, name: str, lane: Lane, recorded: int, span: Span) -> int:
        """Return where to go on from an offset that has been reached; the oldest if it is lost."""
        if recorded < span.begin:
            self._lose(
                f"offsets {recorded} to {min(span.begin, max(span.end, recorded))} of"
                f" {lane_text(lane)} of store {name} have been removed before they were read; the"
                f" oldest is {span.begin}",
                "go on from the oldest",
            )
            return span.begin
        self._check_end(name, lane, recorded, span)
        return recorded

    def _lose(self, problem: str, otherwise: str) -> None:
        if self.options.fail_on_data_loss:
            raise DataLost(f"{problem}. Set failOnDataLoss=false to {otherwise}")
        if problem not in self._warned:
            self._warned.add(problem)
            LOG.warning("%s; failOnDataLoss is false: %s", problem, otherwise)

    @staticmethod
    def _check_end(name: str, lane: Lane, recorded: int, span: Span) -> None:
        if recorded > span.end:
            raise WrongCheckpoint(
                f"{lane_text(lane)} of store {name} ends at {span.end}, and offset {recorded} has been"
                " reached before: the store was put back to an older state, lost its newest messages"
                " in a power cut, or a broker deleted the topic and made it again. If the writer has not run"
                " since a power cut, start that first; else choose another checkpointLocation"
            )

    def _start(self, name: str, lane: Lane, span: Span) -> int:
        view, point = self.views[name], self.options.start
        if lane != WHOLE_LOG:
            bounds = QueueBounds(*lane, span.begin, span.end)
            return resolve_point(
                bounds,
                point,
                self.options,
                lambda time: view.offset_at_time(lane, time),
                start=True,
            )
        if point.each is not None:
            raise InvalidOption(
                point.option, "names queues, so choose them: subscribe, subscribePattern or assign"
            )
        if point.is_time:
            assert point.everywhere is not None
            found = view.offset_at_time(lane, point.everywhere)
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

    def ends(self, backlog: Backlog, caps: Caps) -> dict[Key, int]:
        """Return where a batch ends in each lane."""
        spans = dict(backlog.spans)
        if caps.records is not None:
            shares = shares_of(backlog.waiting, caps.records, _Oldest(self.views, spans))
            for key, share in shares.items():
                end = self.views[key[0]].after_records(key[1], spans[key], share)
                spans[key] = Span(spans[key].begin, end)
        if caps.size is not None:
            spans |= self._within(spans, caps.size)
        return {key: span.end for key, span in spans.items()}

    def _within(self, spans: Mapping[Key, Span], size: int) -> dict[Key, Span]:
        waiting = {
            (name, lane): self.views[name].bytes_of(lane, span)
            for (name, lane), span in spans.items()
            if span.end > span.begin
        }
        if sum(waiting.values()) <= size:
            return {}
        found, taken = {}, 0
        for key, share in shares_of(waiting, size, _Oldest(self.views, spans)).items():
            end, used = self.views[key[0]].after_bytes(key[1], spans[key], share)
            found[key] = Span(spans[key].begin, end)
            taken += used
        rest = {key: Span(span.end, spans[key].end) for key, span in found.items()}
        open_keys = [key for key, span in rest.items() if span.end > span.begin]
        for key in sorted(open_keys, key=_Oldest(self.views, rest)):
            if taken >= size:
                break
            name, lane = key
            after = self.views[name].after_records(lane, rest[key], 1)
            one = self.views[name].bytes_of(lane, Span(rest[key].begin, after))
            if taken + one <= size or not taken:
                found[key] = Span(found[key].begin, after)
                taken += one
        return found

    def offset(self, backlog: Backlog, ends: Mapping[Key, int], looks: Looks) -> StreamOffset:
        """Return the offset of a batch that ends there."""
        stores = {}
        for name, look in looks.items():
            lanes = {lane: end for (store, lane), end in ends.items() if store == name}
            begins = {
                lane: backlog.spans[store, lane].begin
                for store, lane in backlog.new
                if store == name
            }
            stores[name] = StoreOffset(look.store_id, lanes, begins, look.incarnations)
        return StreamOffset(stores)


class _Oldest:
    """Orders lanes by when their next record was stored."""

    def __init__(self, views: Mapping[str, LogView], spans: Mapping[Key, Span]) -> None:
        self._views = views
        self._spans = spans

    def __call__(self, key: Key) -> int:
        name, lane = key
        return self._views[name].stored_at(lane, self._spans[key].begin)

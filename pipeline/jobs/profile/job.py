"""The job ``profile``: what is in stores, and how it is spread over time, sizes, keys and queues."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pipeline.errors import InvalidOption
from pipeline.jobs.profile.counts import Counts, QueueName, Tally, class_floor, count_pieces
from pipeline.jobs.profile.figures import (
    ProfileFigures,
    QueueProfile,
    SizeClass,
    TopicProfile,
    TopicRate,
)
from pipeline.jobs.profile.hot_keys import HotKey, count_keys
from pipeline.jobs.profile.lags import lags_of
from pipeline.jobs.progress import job_progress
from pipeline.jobs.work import PIECE_BYTES, in_tasks, open_stores, pieces_of, run_tasks
from storage.view.pieces import LogPiece
from storage.view.store_plan import StorePlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVALS_MAX: Final = 240
INTERVALS_MS: Final = tuple(
    unit * count
    for unit, counts in (
        (1, (1, 10, 100)),
        (1_000, (1, 5, 10, 30)),
        (60_000, (1, 5, 10, 30)),
        (3_600_000, (1, 3, 6, 12)),
        (86_400_000, (1, 2, 5, 10, 30, 90, 365)),
    )
    for count in counts
)
QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile(ProfileFigures):
    """What a profile found, to be shown as JSON has it or as a page."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        value = asdict(self)
        value["hot_keys"] = [key._asdict() for key in self.hot_keys]
        return value

    def to_html(self) -> str:
        """Return a page with plots that needs nothing else."""
        from pipeline.jobs.profile.page import page  # plotly takes a second to load

        return page(self)


def profile(
    spark: SparkSession,
    stores: str | Path | Sequence[str | Path],
    *,
    top: int = 20,
    exact_keys: bool = False,
    piece_bytes: int = PIECE_BYTES,
    show_progress: bool = False,
) -> Profile:
    """Walk the logs of ``stores``, directories or globs, once; ``exact_keys`` walks them twice.

    Bodies are not read and nothing is verified. ``top`` is how many hot keys are returned. Raises
    InvalidOption and NotAStore.
    """
    began = perf_counter()
    if not 1 <= top <= 1000:
        raise InvalidOption("top", f"must be between 1 and 1000, not {top}")
    given = [stores] if isinstance(stores, str | Path) else list(stores)
    files = open_stores([path for store in given for path in _matching(store)])
    plans = [StorePlan(store) for store in files]
    pieces = [
        (number, piece)
        for number, plan in enumerate(plans)
        for piece in pieces_of(plan, piece_bytes)
    ]
    cost = sum(piece.cost for _, piece in pieces)
    begin, end = _time_range(plans)
    interval = next((each for each in INTERVALS_MS if (end - begin) // each < INTERVALS_MAX), 0)
    interval = interval or INTERVALS_MS[-1]
    begin -= begin % interval
    with job_progress(
        spark, "profile", total_bytes=cost * (1 + exact_keys), show=show_progress
    ) as progress:
        count = partial(
            count_pieces, begin_ms=begin, interval_ms=interval,
            interval_count=(end - begin) // interval + 1, approximate=not exact_keys,
            counter=progress.counter,
        )  # fmt: skip
        counts = Counts()
        for found in run_tasks(spark, in_tasks(spark, pieces, cost=_cost), count):
            counts.add(found)
        if exact_keys:
            progress.step = "keys"
            hot, distinct = count_keys(spark, [piece for _, piece in pieces], top, progress.counter)
        else:
            hot = [
                HotKey(topic, key.decode(errors="replace"), messages)
                for (topic, key), messages in counts.keys.most_common(top)
            ]
            distinct = counts.distinct_keys
    return _report(counts, plans, begin, end, interval, hot, distinct, exact_keys, began)


def _cost(item: tuple[int, LogPiece]) -> int:
    return item[1].cost


def _matching(store: str | Path) -> list[str | Path]:
    text = str(store)
    if "://" in text or not any(sign in text for sign in "*?["):
        return [store]
    found = sorted(path for path in glob.glob(text) if Path(path).is_dir())  # noqa: PTH207
    if not found:
        raise InvalidOption("stores", f"no directory matches {text!r}")
    return list(found)


def _time_range(plans: Sequence[StorePlan]) -> tuple[int, int]:
    """Return when the first and the last record of all queues of all stores were stored."""
    times = [
        plan.timestamp(queue, offset)
        for plan in plans
        for queue in plan.queues.values()
        if queue.begin < queue.end
        for offset in (queue.begin, queue.end - 1)
    ]
    known = [time for time in times if time > 0]
    return (min(known), max(known)) if known else (0, 0)


def _report(
    counts: Counts,
    plans: Sequence[StorePlan],
    begin: int,
    end: int,
    interval: int,
    hot: Sequence[HotKey],
    distinct: int,
    exact: bool,
    began: float,
) -> Profile:
    names = [str(plan.store) for plan in plans]
    total = Tally()
    for tally in counts.queues.values():
        total.add(tally)
    classes: dict[int, int] = {}
    for (_, number), times in counts.sizes.items():
        classes[number] = classes.get(number, 0) + times
    return Profile(
        stores=tuple(names),
        begin_ms=begin,
        end_ms=end,
        interval_ms=interval,
        messages=total.records,
        bytes=total.size,
        damaged_bytes=counts.damaged,
        topics=_topics(counts),
        rates=tuple(
            TopicRate(
                time_ms=begin + number * interval, topic=topic, messages=tally.records,
                bytes=tally.size,
            )
            for (topic, number), tally in sorted(counts.times.items(), key=lambda item: item[0][::-1])
        ),
        queues=tuple(
            QueueProfile(
                store=names[name.store], topic=name.topic, queue_id=name.queue_id,
                messages=tally.records, bytes=tally.size,
            )
            for name, tally in sorted(counts.queues.items())
        ),
        size_min=counts.size_min if total.records else 0,
        size_max=counts.size_max,
        size_quantiles=_quantiles(classes),
        size_classes=tuple(
            SizeClass(from_bytes=class_floor(number), to_bytes=class_floor(number + 1), messages=times)
            for number, times in sorted(classes.items())
        ),
        hot_keys=tuple(hot),
        hot_keys_missed=0 if exact else counts.missed,
        distinct_keys=distinct,
        keys_exact=exact,
        groups=tuple(lag for plan in plans for lag in lags_of(plan)),
        seconds=perf_counter() - began,
    )  # fmt: skip


def _topics(counts: Counts) -> tuple[TopicProfile, ...]:
    queues: dict[str, list[tuple[QueueName, Tally]]] = {}
    for name, tally in counts.queues.items():
        queues.setdefault(name.topic, []).append((name, tally))
    found = []
    for topic, parts in queues.items():
        total = Tally()
        for _, tally in parts:
            total.add(tally)
        fullest, most = max(parts, key=lambda part: part[1].records)
        classes = {number: times for (name, number), times in counts.sizes.items() if name == topic}
        found.append(
            TopicProfile(
                topic=topic,
                messages=total.records,
                bytes=total.size,
                body_bytes=total.body,
                queues=len(parts),
                skew=round(most.records * len(parts) / total.records, 2),
                fullest_queue=str(fullest.queue_id),
                quantiles=_quantiles(classes),
            )
        )
    return tuple(sorted(found, key=lambda topic: -topic.bytes))


def _quantiles(classes: dict[int, int]) -> dict[str, int]:
    """Return sizes that so many of the messages do not exceed, to the class's upper end."""
    if not classes:
        return {}
    numbers = sorted(classes)
    reached = np.cumsum([classes[number] for number in numbers])
    return {
        _name(share): class_floor(
            numbers[int(np.searchsorted(reached, share * reached[-1]))] + 1
        ) - 1
        for share in QUANTILES
    }  # fmt: skip


def _name(share: float) -> str:
    return f"p{share * 100:g}"

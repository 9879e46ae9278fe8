"""The log: its files in time, retention, damage, and what repairs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from penstock import StoredQueue
from services.console.page import Page
from services.console.pages.status import now_ms, statuses

FILES_SHOWN_MAX: Final = 400  # of the strip, the newest
MIX_FRESH_S: Final = 600.0  # it asks about all queues
NAMED_MAX: Final = 5  # topics with colours of their own


async def show(page: Page) -> Response:
    """Show the log's files and what is known of damage."""
    seen = await statuses(page)
    files = seen.retention.files if seen.retention is not None else ()
    strip = files[-FILES_SHOWN_MAX:]
    mix = await page.ask(
        "reader",
        ("mix", len(files), files[:1]),
        lambda: _mix(page, strip),
        fresh_s=MIX_FRESH_S,
        patience_s=0,
    )
    return page.show(
        "log.html",
        seen=seen,
        strip=strip,
        mix=mix.value,
        sheet=page.sheet(tuple(reversed(files))),
        total=sum(each.size_bytes for each in files),
        largest=max((each.size_bytes for each in files), default=1),
        now_ms=now_ms(),
    )


async def _mix(page: Page, strip: Sequence[Any]) -> TopicMix:
    queues = await page.client.stored_queues()
    return topic_mix(
        queues, [(each.start_offset, each.start_offset + each.size_bytes) for each in strip]
    )


class TopicMix(NamedTuple):
    """Which topics' messages a file of the log holds, estimated: no service counts them by file.

    Shares of messages by file: of each topic in ``names``, and of all others as the last.
    """

    names: tuple[str, ...]
    shares: tuple[tuple[float, ...], ...]


def topic_mix(queues: Sequence[StoredQueue], files: Sequence[tuple[int, int]]) -> TopicMix:
    """Return the mix of files ``[begin, end)``, as if each topic's messages lay evenly from its oldest to its newest.

    A file without messages has no shares.
    """
    import numpy as np

    spans: dict[str, tuple[int, int, int]] = {}
    for queue in queues:
        count = queue.max_offset - queue.min_offset
        if count and queue.end_commit_offset > queue.min_commit_offset:
            messages, begin, end = spans.get(queue.topic, (0, queue.min_commit_offset, 0))
            spans[queue.topic] = (
                messages + count,
                min(begin, queue.min_commit_offset),
                max(end, queue.end_commit_offset),
            )
    named = sorted(spans, key=lambda topic: (-spans[topic][0], topic))[:NAMED_MAX]
    begins, ends = np.array(files, np.int64).reshape(-1, 2).T
    found = np.zeros((len(named) + 1, len(files)))
    for topic, (messages, begin, end) in spans.items():
        row = named.index(topic) if topic in named else len(named)
        overlaps = np.clip(np.minimum(ends, end) - np.maximum(begins, begin), 0, None)
        found[row] += overlaps * (messages / (end - begin))
    totals = found.sum(axis=0)
    shares = (found / np.where(totals, totals, 1)).T.tolist()
    return TopicMix(
        tuple(named),
        tuple(
            tuple(each) if total else ()
            for each, total in zip(shares, totals.tolist(), strict=True)
        ),
    )

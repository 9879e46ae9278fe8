"""Which topics' messages a file of the log holds, estimated: no service counts them by file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock import StoredQueue

NAMED_MAX: Final = 5  # topics with colours of their own


class TopicMix(NamedTuple):
    """Shares of messages by file: of each topic in ``names``, and of all others as the last."""

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

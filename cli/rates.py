"""What `top` shows: two looks at the services, and the rates between them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cli.failures import answers_of

if TYPE_CHECKING:
    from penstock import Client, GroupLag

POSITIONS: Final = ("flushed", "dispatched", "indexed")


@dataclass(slots=True)
class ServicesLook:
    """What the services said at a moment of the monotonic clock; ``problems`` by service that did not answer."""

    at: float
    stored: dict[str, tuple[int, int]] = field(default_factory=dict)  # messages and bytes by topic
    sent: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)  # by topic and group
    lags: tuple[GroupLag, ...] = ()
    lags_at_ms: int = 0
    positions: dict[str, int] = field(default_factory=dict)  # commit offsets
    problems: dict[str, str] = field(default_factory=dict)


def look(client: Client) -> ServicesLook:
    """Ask writer, reader and indexer; who does not answer is a problem of the look."""
    found = ServicesLook(time.monotonic())
    answers, failed = answers_of(
        {
            "writer": client.traffic_in,
            "reader": client.traffic_out,
            "indexer": client.indexer_status,
        }
    )
    if "writer" in answers:
        found.stored = {each.topic: (each.messages, each.bytes) for each in answers["writer"]}
        # A user who sees topics may not see positions.
        statuses, refused = answers_of({"writer": client.writer_status})
        failed |= refused
        for status in statuses.values():
            for name in ("appended", "flushed", "dispatched"):
                found.positions[name] = getattr(status, f"{name}_offset")
    found.problems = {name: line for name, (line, _) in failed.items()}
    if "reader" in answers:
        out = answers["reader"]
        found.sent = {(each.topic, each.group): (each.messages, each.bytes) for each in out.sent}
        found.lags, found.lags_at_ms = out.lags, out.lags_at_ms
    if "indexer" in answers:
        found.positions["indexed"] = answers["indexer"].indexed_offset
    return found


class Looks:
    """The last two looks, and the one before whose groups the reader had looked up at another time than now."""

    def __init__(self, first: ServicesLook) -> None:
        self._before = self._lags_before = self.now = first

    def add(self, now: ServicesLook) -> None:
        """Take in one more."""
        if now.lags_at_ms != self.now.lags_at_ms:
            self._lags_before = self.now
        self._before, self.now = self.now, now

    def rates(self) -> dict[str, Any]:
        """Return topics, groups and services with what changed between two looks, a second; as JSON has it."""
        before, now = self._before, self.now
        seconds = max(now.at - before.at, 1e-3)
        return {
            "interval_s": round(seconds, 3),
            "lag_interval_s": (now.lags_at_ms - self._lags_before.lags_at_ms) / 1e3,
            "services": _services(now),
            "topics": _topics(before, now, seconds),
            "groups": _groups(before, now, seconds, self._lags_before),
        }


def _services(now: ServicesLook) -> dict[str, Any]:
    """Return how many bytes each position is behind what is appended, and who did not answer."""
    appended = now.positions.get("appended")
    behind = {
        f"{name}_behind_bytes": max(0, appended - now.positions[name])
        for name in POSITIONS
        if appended is not None and name in now.positions
    }
    return {"appended_offset": appended, **behind, "problems": now.problems}


def _topics(before: ServicesLook, now: ServicesLook, seconds: float) -> list[dict[str, Any]]:
    sent_before, sent = _by_topic(before.sent), _by_topic(now.sent)
    rows = []
    for topic in sorted({*now.stored, *sent}):
        count, size = _grown(before.stored, now.stored, topic)
        out, out_size = _grown(sent_before, sent, topic)
        if topic not in now.stored and not out:
            continue  # nothing happens to it, and it may have been deleted
        rows.append(
            {
                "topic": topic,
                "in_per_s": _per_second(count, seconds),
                "in_bytes_per_s": _per_second(size, seconds),
                "out_per_s": _per_second(out, seconds),
                "out_bytes_per_s": _per_second(out_size, seconds),
                "stored": now.stored.get(topic, (0, 0))[0],
            }
        )
    return rows


def _groups(
    before: ServicesLook, now: ServicesLook, seconds: float, lags_before: ServicesLook
) -> list[dict[str, Any]]:
    """Return where groups are in their topics; rates of lag lie between two looks of the reader's, None without two."""
    lag_seconds = (now.lags_at_ms - lags_before.lags_at_ms) / 1e3
    known = {(each.group, each.topic): each for each in lags_before.lags}
    rows = []
    for each in now.lags:
        earlier = known.get((each.group, each.topic), each)
        change, done = each.lag - earlier.lag, each.done - earlier.done
        out, _ = _grown(before.sent, now.sent, (each.topic, each.group))
        rows.append(
            {
                "group": each.group,
                "topic": each.topic,
                "lag": each.lag,
                "lag_change_per_s": _per_second(change, lag_seconds) if lag_seconds > 0 else None,
                "done_per_s": _per_second(max(0, done), lag_seconds) if lag_seconds > 0 else None,
                "out_per_s": _per_second(out, seconds),
                "leased": each.leased,
                "oldest_ms": each.oldest_ms,
            }
        )
    return rows


def _by_topic(
    sent: Mapping[tuple[str, str], tuple[int, int]],
) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for (topic, _), (count, size) in sent.items():
        before = found[topic]
        found[topic] = before[0] + count, before[1] + size
    return found


def _grown(
    before: Mapping[Any, tuple[int, int]], now: Mapping[Any, tuple[int, int]], key: Any
) -> tuple[int, int]:
    """Return by how much two counts have grown; after a restart they begin with 0."""
    count, size = now.get(key, (0, 0))
    count_before, size_before = before.get(key, (0, 0))
    if count < count_before:
        return count, size
    return count - count_before, size - size_before


def _per_second(count: int, seconds: float) -> float:
    return round(count / seconds, 1)

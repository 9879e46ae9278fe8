"""Options of a read, checked before anything is looked at on disk.

Names, defaults and precedence of offsets are those of Spark's Kafka source. Whatever is unknown,
contradicts something else or cannot be read is an InvalidOption that names the option and the way out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from penstock.tls import TLS
from pipeline.errors import InvalidOption, NotAStore
from pipeline.source.endpoints import TLS_OPTIONS, check_endpoint, endpoint_tls
from pipeline.source.schemas import TABLES
from storage.view.store_view import StoreLocation, StoreView

EARLIEST: Final = -2
LATEST: Final = -1
MODES: Final = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
MAX_PARTITION_BYTES: Final = 128 << 20
SIZES: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
SUBSCRIPTIONS: Final = ("subscribe", "subscribePattern", "assign")
MESSAGE_OPTIONS: Final = (
    *SUBSCRIPTIONS, *STARTING, *ENDING, "startingOffsetsByTimestampStrategy", "tags",
    "includeHeaders", "kafkaColumns", "minPartitions", "maxPartitionBytes", "decompress", "mode",
    "verify", "failOnDataLoss",
)  # fmt: skip
STREAM_OPTIONS: Final = (
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
)  # fmt: skip
MAX_TRIGGER_DELAY_S: Final = 900.0
UNITS_OF_TIME: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
OF_ENDPOINT: Final = ("endpointTimeoutMs", *TLS_OPTIONS)
PLACE_OPTIONS: Final = ("path", "store", "storageOptions", "endpoint", *OF_ENDPOINT)
OPTIONS: Final = (*PLACE_OPTIONS, "table", *MESSAGE_OPTIONS, *STREAM_OPTIONS)
ENDPOINT_TABLES: Final = ("messages", "queues")
ENDPOINT_TIMEOUT_MS: Final = 120_000


@dataclass(frozen=True)
class Point:
    """Where queues begin or end: a name for all, or a number for each; numbers may be times."""

    option: str
    everywhere: int | None = None
    each: Mapping[str, Mapping[int, int]] | None = None
    is_time: bool = False

    def of(self, topic: str, queue_id: int) -> int:
        """Return the number for one queue; InvalidOption if the option leaves it out."""
        if self.each is None:
            assert self.everywhere is not None
            return self.everywhere
        try:
            return self.each[topic][queue_id]
        except KeyError:
            raise InvalidOption(
                self.option,
                f"gives nothing for queue {queue_id} of topic {topic!r}; name every queue, with"
                f" {EARLIEST} for its earliest offset and {LATEST} for its latest",
            ) from None


@dataclass(frozen=True)
class Selection:
    """Which queues: those of some topics, of topics that match, or the assigned ones; or all."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None

    @property
    def is_everything(self) -> bool:
        """Whether nothing was chosen: every record of the log counts, queued or not."""
        return not self.topics and self.pattern is None and self.assigned is None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """A read as asked for: of stores, or of the one behind a reader service's ``endpoint``."""

    stores: tuple[StoreLocation, ...]
    endpoint: str | None
    endpoint_timeout_ms: int
    tls: TLS | None
    several: bool
    table: str
    selection: Selection
    start: Point
    end: Point
    strategy: str
    tags: tuple[str, ...]
    include_headers: bool
    kafka_columns: bool
    min_partitions: int
    max_partition_bytes: int
    decompress: bool
    mode: str
    verify: bool | None
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_s: float


def parse_options(given: Mapping[str, str], *, streaming: bool | None = False) -> ReadOptions:
    """Check the options of a read; raises InvalidOption. Names are compared without case.

    ``streaming`` is None while it is not known whether a batch or a stream will be read.
    """
    values = _Values(given)
    table = values.choice("table", tuple(TABLES), "messages")
    values.check_names(table, streaming)
    endpoint = values.endpoint(table)
    pattern, several = ("", False) if endpoint else values.store_pattern()
    least, most = values.number("minOffsetsPerTrigger"), values.number("maxOffsetsPerTrigger")
    if least and most and least > most:
        raise InvalidOption("minOffsetsPerTrigger", f"{least} is more than the maximum, {most}")
    return ReadOptions(
        stores=() if endpoint else _expand(pattern, several, values),
        endpoint=endpoint,
        endpoint_timeout_ms=values.number("endpointTimeoutMs") or ENDPOINT_TIMEOUT_MS,
        tls=values.tls(),
        several=several,
        table=table,
        selection=_selection(values),
        start=_point(values, STARTING, EARLIEST if streaming is False else LATEST),
        end=_point(values, ENDING, LATEST),
        strategy=values.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),
        tags=_tags(values),
        include_headers=values.flag("includeHeaders", default=False),
        kafka_columns=values.flag("kafkaColumns", default=False),
        min_partitions=values.number("minPartitions") or 1,
        max_partition_bytes=values.number("maxPartitionBytes") or MAX_PARTITION_BYTES,
        decompress=values.flag("decompress", default=True),
        mode=values.choice("mode", MODES, "PERMISSIVE"),
        verify=values.flag("verify", default=False) if values.get("verify") else None,
        fail_on_data_loss=values.flag("failOnDataLoss", default=True),
        max_offsets_per_trigger=most,
        max_bytes_per_trigger=values.number("maxBytesPerTrigger"),
        min_offsets_per_trigger=least,
        max_trigger_delay_s=values.delay("maxTriggerDelay", needs="minOffsetsPerTrigger"),
    )


def check_name(name: str, known: Mapping[str, str]) -> None:
    """Raise InvalidOption for a name that is not among those ``known`` by their lower case."""
    if name.lower().startswith("kafka."):
        raise InvalidOption(name, "there is no Kafka client here; leave it out")
    if name.lower() not in known:
        close = get_close_matches(name.lower(), known, 1)
        hint = (
            f"did you mean {known[close[0]]!r}?" if close else f"known: {', '.join(known.values())}"
        )
        raise InvalidOption(name, f"unknown; {hint}")


def open_store(store: StoreLocation | Path | str) -> StoreView:
    """Return a view of a store that the options name. Raises NotAStore, with the option's name."""
    try:
        return StoreView.open(store)
    except NotAStore as error:
        raise NotAStore(f"option 'store': {error}") from error


class _Values:
    """Options by name, without regard to case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(value) for name, value in given.items()}

    def get(self, name: str) -> str | None:
        value = self._given.get(name.lower())
        return value.strip() if value is not None else None

    def check_names(self, table: str, streaming: bool | None) -> None:
        if streaming and table != "messages":
            raise InvalidOption("table", f"{table!r} cannot be read as a stream, only 'messages'")
        known = {name.lower(): name for name in OPTIONS}
        for name in self._given:
            check_name(name, known)
            if table != "messages" and known[name] in MESSAGE_OPTIONS:
                raise InvalidOption(known[name], f"means nothing for table {table!r}; leave it out")
            if streaming and known[name] in ENDING:
                raise InvalidOption(known[name], "a stream has no end; leave it out")
            if streaming is False and known[name] in STREAM_OPTIONS:
                raise InvalidOption(known[name], "is for readStream; leave it out")

    def store_pattern(self) -> tuple[str, bool]:
        path, store = self.get("path"), self.get("store")
        if path and store:
            raise InvalidOption("store", "the path of load() says it already; give one of the two")
        pattern = store or path
        if not pattern:
            raise InvalidOption(
                "store", "missing; give the directory of a store, a glob, or a JSON list of them"
            )
        return pattern, pattern.startswith("[") or any(sign in pattern for sign in "*?")

    def endpoint(self, table: str) -> str | None:
        endpoint = self.get("endpoint")
        if endpoint is None:
            for name in OF_ENDPOINT:
                if self.get(name) is not None:
                    raise InvalidOption(name, "is for 'endpoint'; leave it out")
            return None
        for name in ("store", "path", "storageOptions"):
            if self.get(name) is not None:
                given = "the path of load()" if name == "path" else repr(name)
                raise InvalidOption("endpoint", f"{given} is given, too; give one of the two")
        check_endpoint(endpoint, "a reader service")
        if table not in ENDPOINT_TABLES:
            raise InvalidOption(
                "table",
                f"a reader service gives {' and '.join(ENDPOINT_TABLES)}; {table!r} needs 'store'",
            )
        return endpoint

    def tls(self) -> TLS | None:
        return endpoint_tls({name: text for name in TLS_OPTIONS if (text := self.get(name))})

    def storage_options(self) -> Mapping[str, Any] | None:
        if self.get("storageOptions") is None:
            return None
        document = self.document("storageOptions")
        if not isinstance(document, dict):
            raise InvalidOption("storageOptions", 'must look like {"key": "...", "secret": "..."}')
        return document

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = self.get(name)
        if value is None:
            return default
        for candidate in allowed:
            if value.lower() == candidate.lower():
                return candidate
        raise InvalidOption(name, f"{value!r} is not one of {', '.join(allowed)}")

    def flag(self, name: str, *, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str) -> int | None:
        value = self.get(name)
        if value is None:
            return None
        match = re.fullmatch(r"(\d+)\s*([bkmg]?)b?", value.lower())
        if not match or not int(match[1]):
            raise InvalidOption(name, f"{value!r} is not a number above 0 (with b, k, m or g)")
        return int(match[1]) * SIZES[match[2]]

    def delay(self, name: str, *, needs: str) -> float:
        value = self.get(name)
        if value is None:
            return MAX_TRIGGER_DELAY_S
        match = re.fullmatch(r"(\d+)\s*(ms|s|m|h)", value.lower())
        if not match:
            raise InvalidOption(name, f"{value!r} is not a time like 30s, 15m or 1h")
        if self.get(needs) is None:
            raise InvalidOption(name, f"means nothing without {needs!r}")
        return int(match[1]) * UNITS_OF_TIME[match[2]]

    def document(self, name: str) -> Any:
        try:
            return json.loads(self.get(name) or "")
        except ValueError as error:
            raise InvalidOption(name, f"not JSON: {error}") from error


def _expand(pattern: str, several: bool, values: _Values) -> tuple[StoreLocation, ...]:
    given = values.storage_options()
    patterns = [pattern]
    if pattern.startswith("["):
        try:
            patterns = [str(item) for item in json.loads(pattern)]
        except ValueError as error:
            raise InvalidOption("store", f"not a JSON list of directories: {error}") from error
    places = [StoreLocation.of(item, given) for item in patterns]
    if given is not None and not any(place.is_url for place in places):
        raise InvalidOption(
            "storageOptions", "is for stores behind a URL such as s3://; leave it out"
        )
    if not several:
        return (places[0],)
    found: list[StoreLocation] = []
    for place in places:
        matches = [place]
        if any(sign in place.text for sign in "*?["):
            try:
                matches = place.matches()
            except NotAStore as error:
                raise InvalidOption("store", str(error)) from error
        if not matches:
            raise InvalidOption("store", f"no directory matches {place.text!r}")
        found += matches
    return tuple(dict.fromkeys(found))


def _selection(values: _Values) -> Selection:
    given = [name for name in SUBSCRIPTIONS if values.get(name) is not None]
    if len(given) > 1:
        raise InvalidOption(given[1], f"{given[0]!r} is given, too; choose one")
    if not given:
        return Selection()
    name, text = given[0], values.get(given[0]) or ""
    if name == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise InvalidOption(name, "names no topic")
        return Selection(topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidOption(name, f"not a regular expression: {error}") from error
        return Selection(pattern=text)
    document = values.document(name)
    try:
        assigned = {
            str(topic): tuple(int(queue_id) for queue_id in ids) for topic, ids in document.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise InvalidOption(name, 'must look like {"orders": [0, 1]}') from None
    if not assigned:
        raise InvalidOption(name, "assigns no queue")
    return Selection(assigned=assigned)


def _point(values: _Values, names: tuple[str, ...], default: int) -> Point:
    timestamp, by_timestamp, offsets = names
    is_start = names is STARTING
    text = values.get(timestamp)
    if text is not None:
        if not text.isdigit():
            raise InvalidOption(timestamp, f"{text!r} is not a time in Unix milliseconds")
        return Point(timestamp, everywhere=int(text), is_time=True)
    if values.get(by_timestamp) is not None:
        return Point(by_timestamp, each=_each(values, by_timestamp), is_time=True)
    text = values.get(offsets)
    if text is None:
        return Point(offsets, everywhere=default)
    if text.lower() in ("earliest", "latest"):
        everywhere = EARLIEST if text.lower() == "earliest" else LATEST
        if default == EARLIEST and everywhere == LATEST:
            raise InvalidOption(offsets, "a batch that starts at 'latest' is empty")
        if not is_start and everywhere == EARLIEST:
            raise InvalidOption(offsets, "nothing ends at 'earliest'")
        return Point(offsets, everywhere=everywhere)
    each = _each(values, offsets)
    for numbers in each.values():
        if is_start and default == EARLIEST and LATEST in numbers.values():
            raise InvalidOption(offsets, f"a batch cannot start at {LATEST}, the latest offset")
        if not is_start and EARLIEST in numbers.values():
            raise InvalidOption(offsets, f"nothing ends at {EARLIEST}, the earliest offset")
    return Point(offsets, each=each)


def _each(values: _Values, name: str) -> dict[str, dict[int, int]]:
    document = values.document(name)
    try:
        each = {
            str(topic): {int(queue_id): int(number) for queue_id, number in numbers.items()}
            for topic, numbers in document.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise InvalidOption(name, 'must look like {"orders": {"0": 23, "1": -2}}') from None
    if any(number < EARLIEST for numbers in each.values() for number in numbers.values()):
        raise InvalidOption(name, f"a number below {EARLIEST} means nothing")
    return each


def _tags(values: _Values) -> tuple[str, ...]:
    text = values.get("tags")
    if text is None or text == "*":
        return ()
    tags = tuple(tag.strip() for tag in text.split("||") if tag.strip())
    if not tags:
        raise InvalidOption("tags", "must look like 'paid || open', or be '*' for all")
    return tags

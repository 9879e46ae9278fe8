"""A real broker opens what we wrote, serves all of it, and we open what it appended.

For each flush mode, with and without the pool, after an orderly stop and after kill -9.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from ask.answers import ask
from golden import golden_copy, golden_spec
from oracle import oracle_ask, oracle_dump, oracle_open
from plain_reader import in_dumps_shape, records_of
from store_workload import SMALL, TOPICS, broker_settings, kill_workload, run_workload

from storage.config import StoreConfig
from storage.format.properties import split_keys
from storage.format.record import decode_record
from storage.message import PullStatus
from storage.offline import dump
from storage.reader import StoreReader
from storage.writer import StoreWriter

Line = dict[str, Any]
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

KINDS = frozenset(
    {"topic", "consumerOffsets", "delayOffsets", "groups", "queue", "message", "gap", "unqueued",
     "commitlog", "index"}
)  # fmt: skip
MODES = {
    "sync": {"flush_mode": "sync"},
    "async": {"flush_mode": "async", "store_host": "[2001:db8::5]:10911"},
    "sync-pool": {"flush_mode": "sync", "transient_pool": True},
    "async-pool": {"flush_mode": "async", "transient_pool": True, "append_property_crc": False},
}
SLOW_TO_FILL = {"index_entry_count": 2_000}
"""No index file fills before a kill: a broker indexes the last record of a full one a second time, we do not.
And a broker that makes two index files within one millisecond gives them one name, and loses one."""
KEEPS_KEYS = {"messageIndexSafe": True}
"""After a kill a broker goes back to where its full index files end. By default it goes back three
seconds at most, and keys from before are gone: ours as well as its own."""


OFTEN = ("sync", "async-pool")


@pytest.fixture(
    params=[name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in MODES]
)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Configuration of one mode, small files, a pool of its own."""
    pool = tmp_path / "pool"
    pool.mkdir()
    return SMALL | {"transient_pool_directory": str(pool)} | MODES[request.param]


def place(line: Line) -> tuple[str, int, int]:
    return line["topic"], line["queueId"], line["queueOffset"]


def messages(lines: list[Line]) -> dict[tuple[str, int, int], Line]:
    found = {place(line): line for line in lines if line["type"] == "message"}
    assert len(found) == sum(line["type"] == "message" for line in lines)
    return found


def assert_all_there(acked: list[Line], served: dict[tuple[str, int, int], Line]) -> None:
    """Every acknowledged message is served at its place, with everything it was made of."""
    assert acked
    for told in acked:
        line = served[place(told)]
        properties = line["properties"]
        assert line["bodySha256"] == hashlib.sha256(bytes.fromhex(told["body"])).hexdigest()
        assert split_keys(properties.get("KEYS", "")) == tuple(told["keys"])
        assert properties.get("TAGS", "") == told["tag"]
        assert properties["UNIQ_KEY"] == told["uniqueKey"]
        assert properties.items() >= told["properties"].items()


def without_a_brokers_own(lines: list[Line], ours: list[Line]) -> list[Line]:
    """Leave out the topics that every broker creates for itself, and the names it gives."""
    known = {line["topic"] for line in ours if line["type"] == "topic"}
    return [
        line
        for line in lines
        if line["type"] in KINDS and (line["type"] != "topic" or line["topic"] in known)
    ]


def unnamed(lines: list[Line]) -> list[Line]:
    """Leave out the names of index files, which recovery gives by the clock."""
    return [{k: v for k, v in line.items() if k != "name"} for line in lines]


def assert_opens(
    directory: Path, settings: dict[str, Any], *, keep: Path | None = None, records: int
) -> None:
    opened = oracle_open(directory, settings=settings, keep=keep)
    assert opened.good, (opened.report, opened.stderr[-500:])
    assert opened.report["records"] == records
    assert opened.report["unserved"] == 0
    assert opened.report["uniqueIdsFound"] == opened.report["uniqueIdsAsked"]


def count_records(directory: Path) -> int:
    return sum(1 for _ in records_of(directory))


def assert_we_go_on(directory: Path, config: dict[str, Any], before: dict[Any, Line]) -> int:
    """Open what a broker appended to, read everything, write, and return the number of records."""
    with StoreWriter.open(directory, StoreConfig(**config)) as writer:
        assert writer.recovered.damage == ()
        with StoreReader.open(directory) as reader:
            result = reader.pull("OracleOpen", 0, queue_offset=0)
            assert result.status is PullStatus.FOUND
            bodies = []
            for part in result.slices:
                at = 0
                while at < len(part):
                    record = decode_record(part, at)
                    bodies.append(record.body)
                    at += record.total_size
            assert bodies == [f"oracle {i}".encode() for i in range(10)]
        assert {topic.name for topic in writer.list_topics()} >= {*TOPICS, "OracleOpen"}
    after = {
        place(line): line
        for line in (in_dumps_shape(decode_record(raw), raw) for _, raw in records_of(directory))
    }
    for where, line in before.items():
        assert after[where].items() <= line.items()
    assert len(after) == len(before) + 10
    return len(after)


def test_clean_store(config: dict[str, Any], tmp_path: Path) -> None:
    """After an orderly stop the broker's dump is ours, line for line, and each goes on in turn."""
    store, kept = tmp_path / "store", tmp_path / "kept"
    acked = run_workload(store, config=config, rounds=120)
    settings = broker_settings(config)
    theirs = oracle_dump(store, settings=settings)
    ours = list(dump(store, {"store": settings}))
    assert ours == without_a_brokers_own(theirs, ours)
    assert_all_there(acked, messages(theirs))
    assert len(acked) == len(messages(theirs)) == count_records(store)
    assert_opens(store, settings, keep=kept, records=len(acked))
    count = assert_we_go_on(kept, config, messages(theirs))
    more = run_workload(kept, config=config, rounds=20, seed=2)
    assert_opens(kept, settings, records=count + len(more))


def test_killed_store(config: dict[str, Any], tmp_path: Path) -> None:
    """After kill -9 the broker opens what is there, and nothing acknowledged is lost by us."""
    store, kept = tmp_path / "store", tmp_path / "kept"
    config |= SLOW_TO_FILL
    acked = kill_workload(store, config=config, after=600)
    settings = broker_settings(config) | KEEPS_KEYS
    if not config.get("transient_pool"):  # what is in the pool only we can bring back
        theirs = oracle_dump(store, settings=settings)
        assert_all_there(acked, messages(theirs))
        recovered = shutil.copytree(store, tmp_path / "recovered")
        run_workload(recovered, config=config, rounds=0)
        ours = list(dump(recovered, {"store": settings}))
        assert unnamed(ours) == unnamed(without_a_brokers_own(theirs, ours))
        assert_opens(store, settings, keep=kept, records=count_records(store))
        assert_we_go_on(kept, config, messages(theirs))
    more = run_workload(store, config=config, rounds=20, seed=2)
    theirs = oracle_dump(store, settings=settings)
    assert_all_there(acked + more, messages(theirs))
    assert_opens(store, settings, records=count_records(store))


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    """Five kills in a row lose nothing, and a broker opens the result."""
    config = SMALL | SLOW_TO_FILL | {"flush_mode": "sync"}
    store = tmp_path / "store"
    acked = []
    for seed in range(5):
        acked += kill_workload(store, config=config, after=60 + 10 * seed, seed=seed)
    settings = broker_settings(config) | KEEPS_KEYS
    assert_opens(store, settings, records=count_records(store))
    assert_all_there(acked, messages(oracle_dump(store, settings=settings)))


def questions_about(line: Line) -> list[Line]:
    """Questions whose answers have to do with one message."""
    topic, stored = line["topic"], line["storeTimestamp"]
    where = {"topic": topic, "queue": line["queueId"]}
    keys = (*split_keys(line["properties"].get("KEYS", "")), line["properties"]["UNIQ_KEY"])
    window = {"begin": 0, "end": 2**63 - 1}
    return [
        {"kind": "id", "msgId": line["offsetMsgId"]},
        *(
            {"kind": "offsetByTime", **where, "timestamp": timestamp, "boundary": boundary}
            for timestamp in (stored - 1, stored, stored + 1)
            for boundary in ("LOWER", "UPPER")
        ),
        *(
            {"kind": "get", **where, "offset": line["queueOffset"], "max": 32, "filter": expression}
            for expression in ("*", "TagA", "Aa || 標籤", "größe||Tag😀", "none")
        ),
        *(
            {"kind": "key", "topic": topic, "key": key, "max": limit, **window}
            for key in keys
            for limit in (1, 64)
        ),
    ]


def test_answers_about_ours_are_the_brokers(tmp_path: Path) -> None:
    """Offsets by time, keys, pulls with tags: asked about our store, the broker answers as we do."""
    config = SMALL | {"flush_mode": "async"}
    store = tmp_path / "store"
    run_workload(store, config=config, rounds=60)
    settings = broker_settings(config)
    lines = [line for line in dump(store, {"store": settings}) if line["type"] == "message"]
    questions: list[Line] = []
    for line in lines[:: len(lines) // 25]:
        questions += questions_about(line)
    theirs = oracle_ask(store, questions, settings=settings)
    ours = list(ask(store, questions, {"store": settings}))
    assert [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize(
    "name",
    [
        "features",
        "killed",
        pytest.param("cleaned", marks=pytest.mark.slow),
        pytest.param("torn/flip-near-end-body", marks=pytest.mark.slow),
    ],
)
def test_broker_opens_a_store_of_its_own_after_us(name: str, tmp_path: Path) -> None:
    """A broker's directory, opened and closed by us, opens in a broker and has lost nothing."""
    spec = golden_spec(name.partition("/")[0])["store"]
    store = golden_copy(name, tmp_path)
    before = [line for line in dump(store, {"store": spec}) if line["type"] == "message"]
    StoreWriter.open(store, StoreConfig()).close()
    after = [line for line in dump(store, {"store": spec}) if line["type"] == "message"]
    assert all(line in after for line in before)  # and what was delayed and has fallen due since
    opened = oracle_open(store, settings=spec)
    if name.startswith("torn/"):  # the broker walks no further than the damaged record
        assert opened.report["loaded"]
        assert opened.report["readBack"] == 10
    else:
        assert opened.good, opened.report
        assert opened.report["records"] == len(after)

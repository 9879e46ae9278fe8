"""Writes every kind of message that we write, in a process that can be killed.

``python store_workload.py DIRECTORY JSON``: ``config`` (of StoreConfig), ``seed``, ``rounds``; without
a number of rounds it goes on until it is killed. Prints one JSON line for each acknowledged message: what was
stored, and where. Stops in order at the end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from storage.clock import SystemClock
from storage.config import StoreConfig
from storage.errors import StoreBusy
from storage.files.filesystem import FileSystem
from storage.format.compression import Compression, compress
from storage.format.limits import checked_properties
from storage.format.record import encode_for_batch
from storage.indexer import StoreIndexer
from storage.message import Message
from storage.writer import StoreWriter

LONG_TOPIC = "%RETRY%" + "long-" * 30
TOPICS = {"orders": 4, "payments-2_|%": 2, LONG_TOPIC: 1}
TAGS = ("", "TagA", "TagB", "Aa", "BB", "größe", "標籤", "Tag😀")
KEYS = ("k1", "k2", "ключ", "键", "😀", "AaAa", "BBBB", "AaBB", "polygenelubricants", "a#b")
SMALL = {
    "commit_log_file_size": 65_536,
    "consume_queue_file_size": 1_000,
    "index_slot_count": 50,
    "index_entry_count": 200,
}


def broker_settings(config: dict[str, Any]) -> dict[str, Any]:
    """A broker's names for the sizes of a store."""
    sizes = StoreConfig(**{key: value for key, value in config.items() if key in SMALL})
    return {
        "mappedFileSizeCommitLog": sizes.commit_log_file_size,
        "mappedFileSizeConsumeQueue": sizes.consume_queue_file_size,
        "maxHashSlotNum": sizes.index_slot_count,
        "maxIndexNum": sizes.index_entry_count,
        "timerWheelEnable": False,
    }


def run_workload(directory: Path, **options: Any) -> list[dict[str, Any]]:
    """Run to the orderly end, in this process; return what was acknowledged."""
    return list(_acknowledged(directory, **options))


def kill_workload(directory: Path, *, after: int, **options: Any) -> list[dict[str, Any]]:
    """Kill with signal 9 once so many messages are acknowledged; return all that were."""
    process = subprocess.Popen(
        [sys.executable, __file__, directory, json.dumps({"rounds": None} | options)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if len(lines) == after:
            os.kill(process.pid, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    return [json.loads(line) for line in lines if line.endswith("\n")]


def wait_for_topics(directory: Path, names: Collection[str]) -> None:
    """Return when ``topics.json`` has these topics, as it has within a second, so that a broker knows them."""
    table = directory / "config" / "topics.json"
    deadline = time.monotonic() + 30
    while (
        not table.exists()
        or not {*names} <= json.loads(table.read_bytes())["topicConfigTable"].keys()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _messages(rng: random.Random, count: int) -> Iterator[Message]:
    for _ in range(count):
        topic = rng.choice(list(TOPICS))
        size = rng.choice((0, 1, 20, 20, 200, 200, 3000))
        yield Message(
            topic=topic,
            body=rng.randbytes(size),
            keys=tuple(rng.choices(KEYS, k=rng.choice((0, 1, 1, 2, 5)))),
            tag=rng.choice(TAGS),
            properties={"colour": "grün", "n": str(size)} if rng.random() < 0.4 else {},
            queue_id=rng.randrange(TOPICS[topic]),
            unique_key=rng.randbytes(16).hex().upper(),
            flag=rng.choice((0, 7, -1)),
        )


def _batch(rng: random.Random, messages: list[Message]) -> tuple[bytes, list[bytes]]:
    records, bodies = [], []
    for message in messages:
        compression: Compression = rng.choice(("none", "none", "zlib", "lz4", "zstd"))
        body, bits = compress(message.body, compression)
        crc = rng.random() < 0.5
        block = checked_properties(
            keys=message.keys,
            tag=message.tag,
            properties=message.properties,
            unique_key=message.unique_key,
        )
        assert message.queue_id is not None
        bodies.append(body)
        records.append(
            encode_for_batch(
                message.topic,
                message.queue_id,
                body,
                block,
                message.flag,
                bits,
                1_700_000_000_000 + rng.randrange(1000),
                rng.choice(("127.0.0.1:50000", "[2001:db8::7]:40000")),
                crc,
            )
        )
    return b"".join(records), bodies


def _told(message: Message, body: bytes, queue_offset: int) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": queue_offset,
        "body": body.hex(),
        "keys": list(message.keys),
        "tag": message.tag,
        "uniqueKey": message.unique_key,
        "properties": dict(message.properties),
    }


def _one_round(writer: StoreWriter, rng: random.Random) -> list[dict[str, Any]]:
    messages = list(_messages(rng, rng.choice((1, 1, 3, 20))))
    if rng.random() < 0.5:
        results = writer.put(messages)
        end = writer.appended_offset
        told = [_told(m, m.body, r.queue_offset) for m, r in zip(messages, results, strict=True)]
    else:
        records, bodies = _batch(rng, messages)
        result = writer.append_batch(records)
        end = result.end_commit_offset
        offsets = {(r.topic, r.queue_id): r.first_queue_offset for r in result.ranges}
        told = []
        for message, body in zip(messages, bodies, strict=True):
            place = message.topic, message.queue_id or 0
            told.append(_told(message, body, offsets[place]))
            offsets[place] += 1
    assert writer.wait_acknowledged(end, 30)
    return told


def _acknowledged(
    directory: Path, *, config: dict[str, Any], rounds: int | None, seed: int = 1
) -> Iterator[dict[str, Any]]:
    """Write so many rounds, or for ever, and stop in order; yield what is acknowledged."""
    rng = random.Random(seed)
    settings = StoreConfig(**config)
    with StoreWriter.open(directory, settings) as writer:
        existing = {topic.name for topic in writer.list_topics()}
        for name, count in TOPICS.items():
            if name not in existing:
                writer.create_topic(name, count)
        wait_for_topics(directory, TOPICS)  # we may be killed, and a broker asked
        indexer = StoreIndexer.open(
            directory, settings, filesystem=FileSystem(), clock=SystemClock()
        )
        indexer.start()
        done = 0
        while rounds is None or done < rounds:
            try:
                told = _one_round(writer, rng)
            except StoreBusy as busy:
                time.sleep(busy.retry_delay_ms / 1000)
                continue
            done += 1
            yield from told
        assert writer.wait_dispatched(writer.appended_offset, 30)
        deadline = time.monotonic() + 30
        while indexer.indexed_offset < writer.appended_offset and time.monotonic() < deadline:
            time.sleep(0.01)
        indexer.close()


if __name__ == "__main__":
    for each in _acknowledged(Path(sys.argv[1]), **json.loads(sys.argv[2])):
        print(json.dumps(each), flush=True)

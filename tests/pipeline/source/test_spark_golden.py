"""What Spark reads of every store that a broker wrote is what the broker's own dump says of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import pytest
from golden import CLEAN, KILLED, golden_dump, golden_store
from steps_to_try import steps_to_try

from pipeline import read_messages

SAME = {
    "topic": "topic",
    "queueId": "queueId",
    "queueOffset": "queueOffset",
    "size": "size",
    "sysFlag": "sysFlag",
    "flag": "flag",
    "bodyCrc": "bodyCRC",
    "bornHost": "bornHost",
    "storeHost": "storeHost",
    "reconsumeTimes": "reconsumeTimes",
    "preparedTransactionOffset": "preparedTransactionOffset",
    "properties": "properties",
}


def dumped(name: str, *kinds: str) -> dict[int, dict[str, Any]]:
    lines = [line for line in golden_dump(name) if line["type"] in kinds]
    return {line["commitLogOffset"]: line for line in lines}


@pytest.mark.parametrize("name", steps_to_try(CLEAN + KILLED, 4))
def test_every_record_of_a_brokers_store_field_by_field(spark: Any, name: str) -> None:
    """A read of everything gives each record of the log, queued or not, with every field."""
    wanted = dumped(name, "message", "unqueued")
    store = str(golden_store(name))
    rows = spark.read.format("penstock").option("decompress", "false").load(store).collect()

    assert len(rows) == len(wanted)
    for row in rows:
        line = wanted[row.physicalOffset]
        assert {column: row[column] for column in SAME} == {
            column: line[field] for column, field in SAME.items()
        }
        properties = line["properties"]
        assert row.tags == properties.get("TAGS")
        assert row["keys"] == properties.get("KEYS")
        assert row.msgId == properties.get("UNIQ_KEY", line["offsetMsgId"])
        assert row.bornTimestamp.timestamp() * 1000 == pytest.approx(line["bornTimestamp"], abs=0.1)
        assert row.storeTimestamp.timestamp() * 1000 == pytest.approx(
            line["storeTimestamp"], abs=0.1
        )
        assert hashlib.sha256(row.body).hexdigest() == line["bodySha256"]
        assert row._corrupt is None


@pytest.mark.parametrize("name", ["basic", "lmq", "cleaned", "syncflushkilled"])
def test_each_topic_alone_is_what_its_queues_serve(spark: Any, name: str) -> None:
    """By topic, through units or the log, also where queues of a killed store lag the log."""
    counts = Counter(
        line.get("servedAs", line["topic"]).split("/")[0]
        for line in golden_dump(name)
        if line["type"] == "message"
    )
    offsets = {
        topic: sorted(
            line["commitLogOffset"]
            for line in golden_dump(name)
            if line["type"] == "message"
            and line.get("servedAs", line["topic"]).split("/")[0] == topic
        )
        for topic in counts
    }
    store = str(golden_store(name))
    for topic, wanted in offsets.items():
        df = read_messages(spark, store, columns=["physicalOffset"], subscribe=topic)
        assert sorted(row[0] for row in df.collect()) == wanted, topic

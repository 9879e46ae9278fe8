"""The example script does what its comments say, cell after cell."""

from __future__ import annotations

import json
import random
import runpy
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from storage import Message, MessageStore

SCRIPT = Path(__file__).parents[3] / "docs" / "examples" / "flights_spark.py"


def test_the_example_computes_the_same_in_a_batch_and_a_stream(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mean delay by carrier, as computed from the rows; cancelled flights have no delay."""
    rng = random.Random(1)
    delays: dict[str, list[int]] = defaultdict(list)
    messages = []
    for number in range(3000):
        carrier, origin = rng.choice(("UA", "AA", "DL")), rng.choice(("EWR", "JFK"))
        delay = rng.choice((None, rng.randint(-30, 300)))
        if delay is not None:
            delays[carrier].append(delay)
        body = json.dumps({"carrier": carrier, "origin": origin, "arr_delay": delay}).encode()
        messages.append(
            Message(topic="flights", queue_id=number % 4, body=body, tag=origin, keys=(carrier,))
        )
    with MessageStore.open(tmp_path / "store") as store:
        store.create_topic("flights", 4)
        store.put_all(messages)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), str(tmp_path / "store")])
    spark.catalog.dropTempView("delays")
    names = runpy.run_path(str(SCRIPT))

    wanted = {carrier: pytest.approx(mean(each)) for carrier, each in delays.items()}
    assert {row.carrier: row.mean_delay for row in names["by_carrier"].collect()} == wanted
    assert {row.carrier: row.mean_delay for row in names["streamed"].collect()} == wanted
    newark = sum(message.tag == "EWR" for message in messages)
    assert f"from Newark: {newark}" in capsys.readouterr().out

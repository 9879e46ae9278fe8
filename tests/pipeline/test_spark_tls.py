"""Spark reads and writes where services ask for TLS, and for the certificate of who connects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from engine_store import small_config
from real_processes import SMALL_STORE, one_service

from penstock import Client
from pipeline import replay
from pipeline.errors import InvalidOption
from pipeline.sink.write_options import parse_write
from pipeline.source.options import parse_options
from storage import Message, MessageStore

VALUE = [("value", "binary")]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def tls(certificates: Certificates) -> Mapping[str, str]:
    cert, key = certificates.client
    return {"tlsCa": str(certificates.ca), "tlsCert": str(cert), "tlsKey": str(key)}


def test_options_hold_what_is_in_the_files_for_executors(
    tls: Mapping[str, str], certificates: Certificates
) -> None:
    given = {"endpoint": "db:5802", **tls}
    for options in (
        parse_options(given),
        parse_write({**given, "topic": "t"}, VALUE, streaming=False),
    ):
        assert options.tls == certificates.alice.loaded()
        assert "PRIVATE" not in repr(options)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tlsCa": "/nowhere.pem"}, "option 'tlsCa': /nowhere.pem: No such file"),
        ({"tlsServerName": "db"}, "option 'tlsCa': missing beside 'tlsServerName'"),
        ({"tlsCa": "public", "tlsCert": "/c"}, "option 'tlsCa': a certificate and its key go"),
    ],
)
def test_options_that_do_not_do_are_named(given: dict[str, str], problem: str) -> None:
    endpoint = {"endpoint": "db:5802"}
    with pytest.raises(InvalidOption, match=problem):
        parse_options(endpoint | given)
    with pytest.raises(InvalidOption, match=problem):
        parse_write({**endpoint, "topic": "t", **given}, VALUE, streaming=False)
    with pytest.raises(InvalidOption, match="is for 'endpoint'; leave it out"):
        parse_options({"store": "/s", **given})


@pytest.fixture(scope="module")
def addresses(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[dict[str, str]]:
    """Of a writer and a reader with mutual TLS."""
    store = tmp_path_factory.mktemp("tls") / "store"
    flags = [
        word
        for name, value in certificates.mutual.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    with (
        one_service("writer", store, *SMALL_STORE, *flags) as writer,
        one_service("reader", store, *flags) as reader,
    ):
        yield {
            "writer": writer.wait_serving("writer")[0],
            "reader": reader.wait_serving("reader")[0],
        }


def test_rows_are_written_read_and_replayed(
    spark: Any,
    addresses: dict[str, str],
    tls: Mapping[str, str],
    certificates: Certificates,
    tmp_path: Path,
) -> None:
    store = tmp_path / "other"
    with MessageStore.open(store, small_config()) as other:
        other.create_topic("old", 1)
        other.put(Message(topic="old", body=b"-1"))
    with Client(**addresses, tls=certificates.alice) as client:
        client.create_topic("rows", queues=2)
    rows = spark.range(100).selectExpr("cast(id as string) value")
    places = {name: {"endpoint": address, **tls} for name, address in addresses.items()}
    rows.write.format("penstock").options(topic="rows", **places["writer"]).mode("append").save()
    read = spark.read.format("penstock").options(subscribe="rows", **places["reader"]).load()
    assert sorted(int(row.body) for row in read.select("body").collect()) == list(range(100))
    report = replay(
        spark, store, "old", endpoint=addresses["writer"], tls=certificates.alice, to_topic="rows"
    )
    assert report.messages == 1
    assert "PRIVATE KEY" not in read._jdf.queryExecution().toString()

    stream = spark.readStream.format("penstock").options(
        subscribe="rows", startingOffsets="earliest", **places["reader"]
    )
    query = (
        stream.load()
        .writeStream.format("memory")
        .queryName("tls")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    assert query.awaitTermination(60)
    assert spark.table("tls").count() == 101

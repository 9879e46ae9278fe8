"""What a write can ask for, and that what is wrong is reported before anything runs."""

from __future__ import annotations

import pytest

from pipeline.errors import PipelineError
from pipeline.sink.write_options import parse_write

ENDPOINT = {"endpoint": "localhost:5801"}
GOOD = ENDPOINT | {"topic": "t"}
VALUE = [("value", "string")]


def test_columns_are_known_by_either_name_and_without_case() -> None:
    options = parse_write(
        ENDPOINT,
        [
            ("Body", "binary"), ("keys", "array<string>"), ("TAGS", "string"), ("topic", "string"),
            ("headers", "array<struct<key:string,value:binary>>"), ("partition", "int"),
            ("properties", "map<string,string>"),
        ],
        streaming=False,
    )  # fmt: skip
    columns = options.columns
    assert (columns.body, columns.keys, columns.one_key) == ("Body", "keys", False)
    assert (columns.tags, columns.topic, columns.queue_id) == ("TAGS", "topic", "partition")
    assert options.topic is None


def test_names_of_staged_commits_go_together() -> None:
    options = parse_write(GOOD | {"txnAppId": "job", "TXNVERSION": "7"}, VALUE, streaming=False)
    assert (options.app_id, options.version) == ("job", 7)
    options = parse_write(
        GOOD | {"txnappid": "s", "checkpointLocation": "/c", "endpointTimeoutMs": "500"},
        VALUE, streaming=True,
    )  # fmt: skip
    assert (options.app_id, options.version, options.timeout_s) == ("s", None, 0.5)


@pytest.mark.parametrize(
    ("given", "columns", "streaming", "message"),
    [
        ({}, VALUE, False, "'endpoint': missing; give HOST:PORT"),
        (ENDPOINT, VALUE, False, "'topic': missing; give it, or a column 'topic'"),
        (ENDPOINT | {"topic": "a b"}, VALUE, False, "option 'topic'"),
        (GOOD | {"path": "/s"}, VALUE, False, "'path': a writer has none"),
        (GOOD | {"store": "/s"}, VALUE, False, "'store': a store is written through its writer"),
        (GOOD | {"kafka.acks": "1"}, VALUE, False, "there is no Kafka client"),
        (GOOD | {"topik": "x"}, VALUE, False, "did you mean 'topic'?"),
        (GOOD | {"zzz": "x"}, VALUE, False, "known: endpoint"),
        (GOOD | {"txnAppId": "a"}, VALUE, False, "'txnVersion': missing"),
        (GOOD | {"txnVersion": "1"}, VALUE, False, "'txnAppId': missing"),
        (GOOD | {"txnAppId": "a", "txnVersion": "-1"}, VALUE, False, "is not a number from 0"),
        (GOOD | {"txnAppId": "", "txnVersion": "1"}, VALUE, False, "'txnAppId': is empty"),
        (GOOD | {"txnVersion": "1"}, VALUE, True, "a stream's batches have numbers"),
        (GOOD | {"endpointTimeoutMs": "0"}, VALUE, False, "is not a number above 0"),
        (GOOD, [("key", "string")], False, "column 'value': is missing"),
        (GOOD, [*VALUE, ("body", "string")], False, "column 'body': says the same as 'value'"),
        (GOOD, [*VALUE, ("key", "string"), ("keys", "string")], False, "drop one of them"),
        (GOOD, [*VALUE, ("Value", "string")], False, "is there twice"),
        (GOOD, [("value", "int")], False, "column 'value': is int, not binary or string; cast it"),
        (GOOD, [*VALUE, ("queueId", "bigint")], False, "column 'queueId': is bigint"),
        (GOOD, [*VALUE, ("physicalOffset", "bigint")], False, "'physicalOffset': is not a column"),
    ],
)  # fmt: skip
def test_what_is_wrong_names_the_option_or_column(
    given: dict[str, str], columns: list[tuple[str, str]], streaming: bool, message: str
) -> None:
    with pytest.raises(PipelineError, match=message.replace("?", r"\?").replace("<", r"\<")):
        parse_write(given, columns, streaming=streaming)

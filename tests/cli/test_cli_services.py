"""The command line against the real three services."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from run_cli import Penstock, json_lines, penstock
from typer.testing import Result

from cli.failures import ExitCode
from services.local_services import LocalServices


def bodies(result: Result) -> list[str]:
    return [line["body"] for line in json_lines(result)]


def test_a_created_topic_is_listed_and_described(run: Penstock, topic: str) -> None:
    """`topic list` names it and `topic describe` shows each queue, as tables and as JSON."""
    listed = json_lines(run("topic", "list", "--json"))
    described = json_lines(run("topic", "describe", topic, "--json"))

    assert topic in [line["topic"] for line in listed]
    assert [queue["queue"] for queue in described[0]["queues"]] == [0, 1]
    assert topic in run("topic", "list").stdout
    assert "0 messages" in run("topic", "describe", topic).stdout


def test_a_topic_is_changed_and_deleted(run: Penstock, topic: str) -> None:
    """`topic update --queues` adds queues; after `topic delete` it is gone."""
    updated = json_lines(run("topic", "update", topic, "--queues", 5, "--json"))
    deleted = run("topic", "delete", topic, "--yes")

    assert updated[0]["write_queues"] == 5
    assert deleted.exit_code == ExitCode.DONE
    assert run("topic", "describe", topic).exit_code == ExitCode.NOT_FOUND


def test_deleting_asks_first_and_no_means_no(run: Penstock, topic: str) -> None:
    """Without --yes an answer other than y leaves the topic alone."""
    assert run("topic", "delete", topic, stdin="n\n").exit_code == ExitCode.INTERRUPTED
    program = run("topic", "delete", topic, "--json", stdin="y\n")
    assert program.exit_code == ExitCode.USAGE and "--yes" in program.stderr
    assert run("topic", "describe", topic).exit_code == ExitCode.DONE


def test_one_message_goes_in_and_comes_out_with_all_it_has(run: Penstock, topic: str) -> None:
    """pub stores body, keys, tag, property and queue; sub --json prints them."""
    stored = json_lines(
        run(
            "pub", topic, "ein Stift ✒", "--key", "k1", "--key", "k2", "--tag", "new",
            "--property", "colour=blue", "--queue", 1, "--json",
        )
    )  # fmt: skip
    read = json_lines(run("sub", topic, "--json"))

    assert [(r["body"], r["keys"], r["tag"], r["properties"], r["queue"]) for r in read] == [
        ("ein Stift ✒", ["k1", "k2"], "new", {"colour": "blue"}, 1)
    ]
    assert read[0]["message_id"] == stored[0]["message_id"]


def test_a_message_is_found_by_its_ids_and_by_its_keys(run: Penstock, topic: str) -> None:
    """query finds by key and by unique id, message by message id and by commit offset."""
    body = "findable" + "." * 500
    stored = json_lines(run("pub", topic, body, "--key", "needle", "--json"))[0]

    for command in (
        ("query", topic, "needle"),
        ("query", topic, stored["unique_key"], "--unique"),
        ("message", stored["message_id"]),
        ("message", stored["commit_offset"]),
    ):
        found = run(*command, "--json")
        assert bodies(found) == [body], command
    assert f"{body}\n" in run("message", stored["message_id"]).stdout
    assert "needle" in run("query", topic, "needle").stdout


def test_who_finds_nothing_says_so(run: Penstock, topic: str) -> None:
    """A key, or a group: exit code 8, a line on stderr and nothing on stdout."""
    for command, told in (
        (("query", topic, "no-such-key"), f"no message of {topic} has the key no-such-key"),
        (("offsets", "nobody"), "group nobody has committed nothing"),
        (("offsets", "nobody", "--topic", topic), f"nobody has committed nothing in topic {topic}"),
    ):
        for more in ((), ("--json",)):
            found = run(*command, *more)
            assert (found.exit_code, found.stdout) == (ExitCode.NOT_FOUND, "")
            assert len(found.stderr.splitlines()) == 1
            assert told in found.stderr


def test_lines_of_stdin_become_messages_in_their_order(run: Penstock, topic: str) -> None:
    """pub --lines - stores one message a line, --bodies prints them again."""
    lines = [f"line {number}" for number in range(2_500)]
    stored = run("pub", topic, "--lines", "-", "--queue", 0, "--tag", "t", stdin="\n".join(lines))
    read = run("sub", topic, "--bodies", "--tag", "t")

    assert stored.exit_code == 0, stored.stderr
    assert read.stdout.splitlines() == lines


def test_json_lines_carry_keys_tag_properties_and_queue(
    run: Penstock, topic: str, tmp_path: Path
) -> None:
    """pub --json-lines FILE takes one object a line; a body that is not text is stored as JSON."""
    messages = [
        {"body": "a", "keys": ["k"], "tag": "x", "properties": {"p": "1"}, "queue": 1},
        {"body": {"price": 3}, "keys": "single"},
        {"body_base64": "/wA="},
    ]
    file = tmp_path / "messages.jsonl"
    file.write_text("\n".join(json.dumps(message) for message in messages))
    stored = run("pub", topic, "--json-lines", file, "--json")
    read = json_lines(run("sub", topic, "--json"))
    by_body = {line.get("body", line.get("body_base64")): line for line in read}

    assert json_lines(stored)[0]["stored"] == 3
    assert by_body["a"]["tag"] == "x"
    assert by_body["a"]["queue"] == 1
    assert by_body["a"]["properties"] == {"p": "1"}
    assert by_body['{"price":3}']["keys"] == ["single"]
    assert "/wA=" in by_body


def test_what_sub_prints_pub_takes_back(run: Penstock, topic: str) -> None:
    """sub --json of one topic is valid input of pub --json-lines for another."""
    run("pub", topic, "copied", "--key", "k", "--tag", "t", "--property", "p=v")
    run("topic", "create", f"{topic}-copy", "--queues", 2)
    printed = run("sub", topic, "--json").stdout
    assert run("pub", f"{topic}-copy", "--json-lines", "-", stdin=printed).exit_code == 0
    copy = json_lines(run("sub", f"{topic}-copy", "--json"))

    assert [(c["body"], c["keys"], c["tag"], c["properties"]) for c in copy] == [
        ("copied", ["k"], "t", {"p": "v"})
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "Expecting property name"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "recursion"),
        ("{}", 'no "body"'),
        ('{"body":"b","keys":3}', '"keys" is not a list of texts'),
        ('{"body":"b","properties":{"a":1}}', '"properties" is not an object of texts'),
        ('{"body":"b","queue":"0"}', '"queue" is not a number'),
        ('{"body":"b","tag":null}', '"tag" is not a text'),
        ('{"body_base64":"?"}', '"body_base64"'),
    ],
)
def test_a_bad_json_line_is_named(run: Penstock, topic: str, line: str, problem: str) -> None:
    """Exit code 2 and one line with the line's number and what is wrong with it."""
    result = run("pub", topic, "--json-lines", "-", stdin='{"body":"fine"}\n' + line)

    assert result.exit_code == ExitCode.USAGE
    assert "line 2" in result.stderr
    assert problem in result.stderr
    assert "1 line sent, 1 stored; not stored, correct that, then --only 2-\n" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_reading_starts_where_from_says(run: Penstock, topic: str) -> None:
    """--from earliest, an offset, a time ago and latest; --max stops early."""
    run("pub", topic, "--lines", "-", "--queue", 0, stdin="a\nb\nc")

    assert bodies(run("sub", topic, "--queue", 0, "--json")) == ["a", "b", "c"]
    assert bodies(run("sub", topic, "--queue", 0, "--from", 1, "--json")) == ["b", "c"]
    assert bodies(run("sub", topic, "--from", "1h", "--json")) == ["a", "b", "c"]
    assert bodies(run("sub", topic, "--from", "latest", "--json")) == []
    assert bodies(run("sub", topic, "--max", 2, "--json")) == ["a", "b"]


def test_a_group_resumes_where_it_stopped(run: Penstock, topic: str) -> None:
    """sub --group commits what it printed, the last message of --max too; offsets shows the lag."""
    run("pub", topic, "--lines", "-", "--queue", 0, stdin="a\nb\nc")
    first = run("sub", topic, "--group", f"{topic}-g", "--max", 2, "--json")
    lag = json_lines(run("offsets", f"{topic}-g", "--json"))
    second = run("sub", topic, "--group", f"{topic}-g", "--json")

    assert bodies(first) == ["a", "b"]
    assert [(row["queue"], row["committed"], row["lag"]) for row in lag if row["lag"]] == [
        (0, 2, 1)
    ]
    assert bodies(second) == ["c"]


def test_a_groups_offset_is_set_by_hand(run: Penstock, topic: str) -> None:
    """offsets GROUP --topic --reset QUEUE=OFFSET commits that offset."""
    run("pub", topic, "--lines", "-", "--queue", 0, stdin="a\nb\nc")
    rows = json_lines(run("offsets", f"{topic}-r", "--topic", topic, "--reset", "0=1", "--json"))

    assert [(row["queue"], row["committed"]) for row in rows if row["queue"] == 0] == [(0, 1)]
    assert bodies(run("sub", topic, "--group", f"{topic}-r", "--json")) == ["b", "c"]


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("pub", "no-such-topic", "b"), ExitCode.NOT_FOUND, "no-such-topic"),
        (("sub", "no-such-topic"), ExitCode.NOT_FOUND, "no-such-topic"),
        (("topic", "create", "bad name"), ExitCode.USAGE, "contains ' '"),
        (("topic", "update", "any"), ExitCode.USAGE, "nothing to change"),
        (("pub", "any"), ExitCode.USAGE, "give one of BODY"),
        (("pub", "any", "b", "--property", "x"), ExitCode.USAGE, "NAME=VALUE"),
        (("pub", "any", "--lines", "/no/such/file"), ExitCode.NOT_FOUND, "/no/such/file"),
        (("query", "any", "k", "--since", "yesterday"), ExitCode.USAGE, "is not a time"),
        (("message", "zz"), ExitCode.USAGE, "neither a message id"),
        (("message", 987654321), ExitCode.NOT_FOUND, "987654321"),
        (("offsets", "g", "--reset", "0=1"), ExitCode.USAGE, "--topic"),
        (("topic", "list", "--writer", "nonsense"), ExitCode.USAGE, "--writer: 'nonsense' is not"),
        (("sub", "any", "--reader", "host:port"), ExitCode.USAGE, "'host:port' is not HOST:PORT"),
        (("health", "127.0.0.1"), ExitCode.USAGE, "'127.0.0.1' is not HOST:PORT"),
        (("pub", "any", "--file", "."), ExitCode.USAGE, "Is a directory"),
        (("sub", "TOPIC", "--max", "-1"), ExitCode.USAGE, "--max"),
        (("sub", "TOPIC", "--from", "9" * 20), ExitCode.USAGE, ""),
        (("sub", "TOPIC", "--from", "-1"), ExitCode.USAGE, ""),
        (("sub", "TOPIC", "--from", "0001-01-01"), ExitCode.USAGE, ""),
        (("sub", "TOPIC", "--queue", 1 << 40), ExitCode.USAGE, ""),
        (("query", "TOPIC", "k", "--since", "9" * 5000), ExitCode.USAGE, ""),
        (("query", "TOPIC", ""), ExitCode.USAGE, ""),
        (("pub", "TOPIC", "x", "--queue", 1 << 40), ExitCode.USAGE, ""),
        (("pub", "TOPIC", "x", "--at", "0001-01-01"), ExitCode.USAGE, ""),
        (("pub", "TOPIC", "x", "--tag", "a|b"), ExitCode.USAGE, ""),
    ],
)
def test_a_refusal_is_one_line_and_an_exit_code(
    run: Penstock, topic: str, arguments: tuple[object, ...], code: ExitCode, problem: str
) -> None:
    """Every refusal names the problem on one line of stderr, and nothing is on stdout."""
    result = run(*(topic if each == "TOPIC" else each for each in arguments))

    assert result.exit_code == code, result.stderr
    assert problem in result.stderr and "internal error" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_a_line_for_a_queue_that_the_topic_has_not_is_to_be_corrected(
    run: Penstock, topic: str
) -> None:
    """To send the same line again cannot help."""
    lines = run("pub", topic, "--json-lines", "-", stdin='{"body": "b", "queue": 9}\n')

    assert lines.exit_code == ExitCode.USAGE
    assert "queues 0 to 1, not 9" in lines.stderr
    assert "correct that, then --only 1\n" in lines.stderr


def test_status_shows_all_three_services(run: Penstock) -> None:
    """status prints each service's positions, as a table and as JSON."""
    status = json_lines(run("status", "--json"))[0]

    assert status["writer"]["writable"] is True
    assert status["reader"]["writer_alive"] is True
    assert "indexed_offset" in status["indexer"]
    assert "indexer" in run("status").stdout


def test_health_of_a_serving_service_is_exit_code_0(run: Penstock, services: object) -> None:
    """health asks the service's own health RPC; an unknown name is not found."""
    address = services.addresses["reader"]  # type: ignore[attr-defined]
    for service in ("writer", "reader", "indexer"):
        assert run("health", service).stdout.endswith("SERVING\n")

    assert json_lines(run("health", address, "--json"))[0]["status"] == "SERVING"
    assert run("health", address, "--service", "penstock.v1.Reader").exit_code == ExitCode.DONE
    assert run("health", address, "--service", "nobody").exit_code == ExitCode.NOT_FOUND


def test_no_service_is_exit_code_9() -> None:
    """An address where nothing listens is one line and exit code 9, for status and health too."""
    nobody = ("--writer", "127.0.0.1:1", "--reader", "127.0.0.1:1", "--indexer", "127.0.0.1:1")

    health = penstock("health", "127.0.0.1:1", "--timeout", 2)
    assert health.exit_code == ExitCode.UNREACHABLE
    assert len(health.stderr.splitlines()) == 1
    assert "penstock serve" in health.stderr
    status = penstock("status", *nobody, "--timeout", 1, "--json")
    assert status.exit_code == ExitCode.UNREACHABLE
    assert "penstock serve" in json_lines(status)[0]["writer"]["problem"]
    listed = penstock("topic", "list", *nobody, "--timeout", 1)
    assert listed.exit_code == ExitCode.UNREACHABLE
    assert len(listed.stderr.splitlines()) == 1


def test_bytes_that_are_not_text_are_stored_as_they_are(
    run: Penstock, topic: str, tmp_path: Path
) -> None:
    """A line of a file or of stdin is a body, whatever it holds; only its end is left out."""
    file = tmp_path / "lines"
    file.write_bytes(b"a\r\n\xff\xfe\n\nlast")
    assert run("pub", topic, "--lines", file, "--queue", 0).exit_code == 0
    assert run("pub", topic, "--lines", "-", "--queue", 0, stdin=b"\xf0\n").exit_code == 0
    read = json_lines(run("sub", topic, "--json"))

    assert [line.get("body", line.get("body_base64")) for line in read] == [
        "a", "//4=", "", "last", "8A==",
    ]  # fmt: skip


def test_a_missing_index_file_is_rebuilt(
    run: Penstock, topic: str, services: LocalServices
) -> None:
    """`query` names the range until then, and exits as for damage."""
    run("pub", topic, "found", "--key", "needle")
    assert bodies(run("query", topic, "needle", "--json")) == ["found"]
    index = services.log.with_name("store") / "index"
    count, newest = len(list(index.iterdir())), max(index.iterdir())
    newest.unlink()
    until = time.monotonic() + 60
    while True:  # for a moment the reader answers from the file that it has mapped
        asked = run("query", topic, "needle")
        if asked.exit_code == ExitCode.DONE and len(list(index.iterdir())) == count:
            break
        if asked.exit_code == ExitCode.DAMAGED:
            assert newest.name in asked.stderr
        assert time.monotonic() < until
        time.sleep(0.1)
    assert bodies(run("query", topic, "needle", "--json")) == ["found"]


def test_an_end_of_an_unknown_transaction_is_not_found(run: Penstock) -> None:
    ended = run("transactions", "commit", "nosuch")
    assert ended.exit_code == ExitCode.NOT_FOUND and "1 of 1 are not committed" in ended.stderr

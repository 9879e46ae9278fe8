"""What an operator looks at: a message's way, top, report, bench and completion, against real services."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from real_processes import until
from run_cli import Penstock, json_lines, penstock

from cli.failures import ExitCode
from cli.message import body_text, message_way
from cli.rates import Looks, ServicesLook
from penstock import Client, GroupLag, Message
from services.local_services import LocalServices

ROOT = Path(__file__).resolve().parents[2]
UNIQUE_ID = "7F000001000A18B4AAC2123456780001"


@pytest.fixture
def client(services: LocalServices) -> Iterator[Client]:
    with Client(**services.addresses) as opened:
        yield opened


def only_json(result: object) -> dict:
    [line] = json_lines(result)
    return line


# ---- a message's way


def test_a_message_shows_what_each_group_did_with_it(
    run: Penstock, client: Client, topic: str
) -> None:
    stored = client.produce(topic, b"pen", queue_id=0, keys=["order-1"])
    billing, post = f"{topic}-billing", f"{topic}-post"
    client.dead_letter(client.receive(topic, group=billing, wait_ms=5_000))
    client.receive(topic, group=post, lease_ms=600_000)
    end_offset = client.writer_status().appended_offset
    client.wait_indexed(end_offset)
    until(lambda: client.writer_status().flushed_offset >= end_offset)

    by_offset = only_json(run("message", stored.commit_offset, "--json"))
    by_key = only_json(run("message", "--topic", topic, "--key", "order-1", "--json"))

    assert by_offset == by_key
    assert by_offset["found_by_key"] is True
    states = {each["group"]: each["state"] for each in by_offset["groups"]}
    assert states == {billing: "dead", post: "in_flight"}
    [letter] = [
        each["dead_letter_commit_offset"]
        for each in by_offset["groups"]
        if "billing" in each["group"]
    ]
    shown = run("message", stored.commit_offset).stdout
    assert re.search(rf"{post} +in flight +1 +20..-", shown)
    assert re.search(rf"{billing} +dead +penstock message {letter}", shown)
    assert f"%DLQ%{billing}" in run("message", letter).stdout


def test_a_unique_id_is_found_in_all_topics(run: Penstock, client: Client, topic: str) -> None:
    """RocketMQ's clients show their users nothing else."""
    client.produce_many([Message(topic=topic, body=b"old", unique_key=UNIQUE_ID)])
    client.produce_many([Message(topic=topic, body=b"new", unique_key=UNIQUE_ID)])
    client.wait_indexed(client.writer_status().appended_offset)

    assert only_json(run("message", UNIQUE_ID, "--json"))["body"] == "new"
    assert only_json(run("message", UNIQUE_ID, "--topic", topic, "--json"))["body"] == "new"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("7F000001000A18B4AAC21234567800FF",), ExitCode.NOT_FOUND),
        (("9" * 15,), ExitCode.NOT_FOUND),
        (("--topic", "TOPIC", "--key", "no-such-key"), ExitCode.NOT_FOUND),
        (("--topic", "nowhere", "--key", "k"), ExitCode.NOT_FOUND),
        (("short", "--topic", "TOPIC"), ExitCode.NOT_FOUND),
        (("short",), ExitCode.USAGE),
        (("--key", "k"), ExitCode.USAGE),
        (("1", "--key", "k", "--topic", "TOPIC"), ExitCode.USAGE),
        ((), ExitCode.USAGE),
    ],
)
def test_a_message_that_is_not_there_is_one_line(
    run: Penstock, topic: str, arguments: tuple[str, ...], code: ExitCode
) -> None:
    done = run("message", *(topic if each == "TOPIC" else each for each in arguments))
    assert (done.exit_code, done.stdout) == (code, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(("short_by", "is_done"), [(0, True), (1, False)])
def test_a_message_is_flushed_and_indexed_from_its_last_byte_on(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch, short_by: int, is_done: bool
) -> None:
    stored = client.produce(topic, b"some")
    record = client.message(stored.commit_offset)
    end = record.commit_offset + record.size - short_by
    monkeypatch.setattr(client, "writer_status", lambda: SimpleNamespace(flushed_offset=end))
    monkeypatch.setattr(client, "reader_status", lambda: SimpleNamespace(indexed_offset=end))

    way = message_way(client, record)

    assert (way["flushed"], way["found_by_key"]) == (is_done, is_done)


def test_what_a_producer_chose_does_not_steer_the_terminal(
    run: Penstock, client: Client, topic: str
) -> None:
    stored = client.produce(
        topic, b"\x1b[2J", keys=["k\x1b[1A"], tag="t\x1b[2K", properties={"p\x1b": "\u202ev"}
    )
    client.wait_indexed(client.writer_status().appended_offset)

    for command in (
        ("message", stored.commit_offset),
        ("query", topic, "k\x1b[1A"),
        ("sub", topic),
    ):
        shown = run(*command).stdout
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert r"k\x1b[1A" in shown
        assert r"t\x1b[2K" in shown


def test_the_way_of_a_message_of_a_deleted_topic_is_not_that_of_the_next_one(
    run: Penstock, client: Client, topic: str
) -> None:
    stored = client.produce(topic, b"former", queue_id=0)
    client.receive(topic, group=f"{topic}-group", wait_ms=5_000)
    client.delete_topic(topic)
    client.create_topic(topic, queues=2)
    client.produce(topic, b"next", queue_id=0)

    found = only_json(run("message", stored.commit_offset, "--json"))

    assert (found["body"], found["groups"]) == ("former", [])
    assert "created again" in found["problem"]


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"plain \x1b[31m", "text", "plain \\x1b[31m"),
        (
            b'{"a":[1,{"b":"\xc3\xa9"}]}',
            "JSON",
            '{\n  "a": [\n    1,\n    {\n      "b": "é"\n    }\n  ]\n}',
        ),
        (
            b'{"a":1,"a":2, "b":1.10,"c":12345678901234567.5,"d":{},"e":"\\u00e9 , [\\"]"}',
            "JSON",
            '{\n  "a": 1,\n  "a": 2,\n  "b": 1.10,\n  "c": 12345678901234567.5,\n  "d": {},\n  "e": "\\u00e9 , [\\"]"\n}',
        ),
        (
            b"[" * 700 + b"1," * 700 + b"1" + b"]" * 700,
            "text",
            "[" * 700 + "1," * 700 + "1" + "]" * 700,
        ),
        (b"{not json", "text", "{not json"),
        (b"[" * 100_000, "text", "[" * 100_000),
        (b"\xff\x00ab", "hexadecimal", f"00000000  {'ff 00 61 62':<48} ..ab"),
        (b"", "text", ""),
    ],
    ids=["text", "json", "tokens", "wide", "broken", "deep", "bytes", "empty"],
)
def test_a_body_is_shown_as_what_it_is(body: bytes, kind: str, text: str) -> None:
    assert body_text(body) == (kind, text)


# ---- top and report


def test_rates_lie_between_two_looks_and_begin_anew_with_a_restart() -> None:
    def lag(lag: int, done: int) -> tuple[GroupLag, ...]:
        return (GroupLag(group="g", topic="t", lag=lag, leased=1, ready=0, done=done, oldest_ms=5),)

    looks = Looks(
        ServicesLook(
            10.0,
            {"t": (100, 1_000)},
            {("t", "g"): (50, 500), ("deleted", ""): (5, 50)},
            lag(10, 90),
            1_000,
        )
    )
    looks.add(
        ServicesLook(
            12.0,
            {"t": (300, 5_000)},
            {("t", "g"): (20, 200), ("t", ""): (4, 40), ("deleted", ""): (5, 50)},
            lag(30, 130),
            5_000,
        )
    )
    found = looks.rates()

    assert found["topics"] == [
        {"topic": "t", "in_per_s": 100.0, "in_bytes_per_s": 2_000.0, "out_per_s": 12.0, "out_bytes_per_s": 120.0, "stored": 300}
    ]  # fmt: skip
    [group] = found["groups"]
    assert (group["lag_change_per_s"], group["done_per_s"], group["out_per_s"]) == (5.0, 10.0, 10.0)
    looks.add(ServicesLook(14.0, {"t": (300, 5_000)}, {("t", "g"): (20, 200)}, lag(30, 130), 5_000))
    [group] = looks.rates()["groups"]  # the reader has not looked again: the last rates stand
    assert (group["lag_change_per_s"], group["done_per_s"]) == (5.0, 10.0)


def test_top_counts_what_goes_in_and_out(run: Penstock, client: Client, topic: str) -> None:
    client.produce(topic, b"before", queue_id=0)
    client.receive(topic, group=f"{topic}-group", wait_ms=5_000)
    client.produce(topic, b"waits", queue_id=0)

    found = only_json(run("top", "--once", "--json", "--filter", topic))

    assert [(each["topic"], each["stored"]) for each in found["topics"]] == [(topic, 2)]
    [group] = found["groups"]
    assert (group["group"], group["lag"], group["leased"]) == (f"{topic}-group", 2, 1)
    assert found["services"]["problems"] == {}
    assert found["services"]["dispatched_behind_bytes"] == 0
    page = run("top", "--once", "--filter", topic).stdout
    assert topic in page
    assert "appended" in page


def test_top_without_services_says_so_and_ends() -> None:
    nobody = ("--writer", "127.0.0.1:1", "--reader", "127.0.0.1:1", "--indexer", "127.0.0.1:1")
    done = penstock("top", "--once", "--json", "--timeout", 1, *nobody)
    assert done.exit_code == ExitCode.UNREACHABLE
    assert set(only_json(done)["services"]["problems"]) == {"writer", "reader", "indexer"}
    assert penstock("top", "--sort-topics", "size").exit_code == ExitCode.USAGE


class Screen:
    """``penstock top`` in a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        own, its = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "top", "--interval", "0.3", *arguments],
            stdin=its, stdout=its, stderr=its, cwd=ROOT, start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"},
        )  # fmt: skip
        os.close(its)
        self._own = own
        self._seen = ""

    def shows(self, text: str) -> None:
        """Return once the screen has shown a text since the last key."""
        until = time.monotonic() + 60
        while text not in self._seen:
            assert time.monotonic() < until, self._seen[-2_000:]
            if select.select([self._own], [], [], 0.1)[0]:
                self._seen += os.read(self._own, 65_536).decode(errors="replace")

    def press(self, keys: str) -> None:
        self._seen = ""
        os.write(self._own, keys.encode())

    def end(self) -> int:
        self.press("q")
        until = time.monotonic() + 60
        while self._process.poll() is None and time.monotonic() < until:
            if select.select([self._own], [], [], 0.1)[0]:
                try:
                    os.read(self._own, 65_536)
                except OSError:  # it has closed the terminal
                    break
        os.close(self._own)
        return self._process.wait(60)


def test_top_takes_keys_in_a_terminal(services: LocalServices, client: Client, topic: str) -> None:
    client.produce(topic, b"a")
    flags = [
        part for name, address in services.addresses.items() for part in (f"--{name}", address)
    ]
    screen = Screen(*flags)
    screen.shows("in/s ▾")
    screen.press("t")
    screen.shows("out/s ▾")
    screen.press("/no-such-name\r")
    screen.shows("only *no-such-name*")
    screen.press("p")
    screen.shows("paused")
    assert screen.end() == 0


def test_the_report_names_the_topic_whose_queues_are_skewed(
    run: Penstock, client: Client, topic: str
) -> None:
    client.produce_many([Message(topic=topic, body=b"x", queue_id=0) for _ in range(1_100)])
    client.receive(topic, group=f"{topic}-group", max_messages=10, wait_ms=5_000)
    # The reader's look at groups may be a moment old.
    until(lambda: any(each.group == f"{topic}-group" for each in client.traffic_out().lags))

    found = only_json(run("report", "--json"))

    [row] = [each for each in found["topics"] if each["topic"] == topic]
    assert row == {"topic": topic, "queues": 2, "messages": 1_100, "skew": 2.0, "fullest_queue": 0}
    [group] = [each for each in found["groups"] if each["group"] == f"{topic}-group"]
    assert (group["lag"], group["leased"], group["topics"]) == (1_100, 10, 1)
    assert found["disk"]["files"] >= 1
    assert found["problems"] == []
    page = run("report").stdout
    assert f"{topic} (2)" in page
    assert "the disk is" in page


def test_a_report_without_services_says_what_it_lacks() -> None:
    nobody = ("--writer", "127.0.0.1:1", "--reader", "127.0.0.1:1")
    done = penstock("report", "--json", "--timeout", 1, *nobody)
    assert done.exit_code == ExitCode.UNREACHABLE
    assert len(only_json(done)["problems"]) == 4


# ---- bench


def test_bench_leaves_no_topic_and_its_result_is_compared_with_a_later_one(
    run: Penstock, tmp_path: Path
) -> None:
    before, topics = tmp_path / "before.json", run("topic", "list", "--json").stdout
    load = ("bench", "-n", 500, "-s", 50, "--singles", 20)
    assert run(*load, "--out", before).exit_code == ExitCode.DONE
    kept = json.loads(before.read_text())
    assert sum(each["messages"] for each in kept["histogram"]) == 20
    [latency] = [row for row in kept["rows"] if row["what"] == "store, one by one"]
    assert latency["p50_ms"] <= latency["p90_ms"] <= latency["p99_ms"] <= latency["max_ms"]

    found = only_json(run(*load, "--compare", before, "--json"))

    p99 = [each for each in found["compared"] if each["number"] == "p99 ms"]
    assert [each["before"] for each in p99] == [latency["p99_ms"]]
    assert "beside" in run(*load, "--compare", before).stdout
    assert run("topic", "list", "--json").stdout == topics


@pytest.mark.parametrize("text", ["{}", "no json", '{"format": 2, "load": {}, "rows": []}', "[1]"])
def test_what_is_no_result_of_bench_is_refused_before_anything_is_stored(
    run: Penstock, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    done = run("bench", "--compare", file)
    assert (done.exit_code, str(file) in done.stderr) == (ExitCode.USAGE, True)


# ---- completion


def completed(shell: str, line: str, *flags: str) -> list[str]:
    """Return what a shell's script asks for and gets, for a line with the cursor at its end."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_PENSTOCK_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [sys.executable, "-m", "cli.main"], env=environment, capture_output=True, text=True,
        check=True, cwd=ROOT, timeout=60,
    )  # fmt: skip
    return list(filter(None, done.stdout.splitlines()))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_completes_commands(shell: str) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "cli.main"], env={**os.environ, "_PENSTOCK_COMPLETE": f"source_{shell}"},
        capture_output=True, text=True, check=True, cwd=ROOT, timeout=60,
    ).stdout  # fmt: skip
    assert f"_PENSTOCK_COMPLETE=complete_{shell}" in script
    if path := shutil.which(shell):
        subprocess.run([path, "-n"], input=script, text=True, check=True, timeout=60)
    found = "\n".join(completed(shell, "penstock to"))
    assert "topic" in found
    assert "top" in found
    assert "bench" not in found


def test_a_topic_s_name_is_completed_from_the_running_store(
    services: LocalServices, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"penstock --writer {services.addresses['writer']} topic describe {topic[:-1]}"
    assert topic in completed("bash", line)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    penstock("profile", "add", "here", "--writer", services.addresses["writer"])
    assert topic in completed("bash", f"penstock --profile here topic describe {topic[:-1]}")
    assert completed("bash", "penstock --writer 127.0.0.1:1 topic describe c") == []

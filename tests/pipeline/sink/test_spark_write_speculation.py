"""Speculation: two attempts of a task stage the same rows beside each other; they are stored once.

Spark starts a second attempt only on another host than the first one's, and takes hosts by their
names: hence a master with two workers, of which each calls this machine by a name of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from engine_store import records_on_disk
from files_below import files_below
from free_ports import free_port
from service_process import WriterProcess
from spark_speculation_job import BODY_SIZE, FIRST_PART_ROWS, JAVA_OPTIONS, PARTITIONS, ROWS

from storage.format.properties import decode_properties
from storage.format.stage import stage_prefix

SUPPORT = Path(__file__).parents[2] / "support" / "spark_support"
NAMES = ("127.0.0.1", "localhost")
pytestmark = [pytest.mark.timeout(170), pytest.mark.spark, pytest.mark.slow]
CASES = ("second", "first", "both", "failure", "given-up")


class Cluster(NamedTuple):
    writer: WriterProcess
    driver: subprocess.Popen[str]
    directory: Path


def spark_class(environment: dict[str, str], log: Path, *words: str) -> subprocess.Popen[bytes]:
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as out:
        return subprocess.Popen([program, *words], stdout=out, stderr=out, env=environment)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    from pipeline.session.java import find_java_home

    directory = tmp_path_factory.mktemp("speculation")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(SUPPORT), str(SUPPORT.parents[2])]),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
    }
    if home := find_java_home(environment):
        environment["JAVA_HOME"] = home
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        writer = stack.enter_context(
            WriterProcess(directory / "store", "--commit-log-file-size", "64MiB")
        )

        def started(name: str, *words: str) -> None:
            process = spark_class(environment, directory / f"{name}.log", *words)
            stack.callback(process.wait, 20)
            stack.callback(process.terminate)

        started(
            "master", f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port),
            "--webui-port", "0",
        )  # fmt: skip
        for name in NAMES:
            started(
                name, f"{deploy}.worker.Worker", "--host", name, "--cores", "1", "--memory", "1g",
                "--webui-port", "0", "--work-dir", str(directory / name), master,
            )  # fmt: skip
        with (directory / "driver.log").open("wb") as log:
            driver = subprocess.Popen(
                [sys.executable, str(SUPPORT / "spark_speculation_job.py"), master, writer.address,
                 str(directory)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env=environment,
            )  # fmt: skip
        stack.callback(driver.wait, 20)
        stack.callback(driver.kill)
        with writer.client() as client:
            for case in CASES:
                client.create_topic(case, queues=2)
                (directory / case).mkdir()
        yield Cluster(writer, driver, directory)


def staged_twice(writer: WriterProcess) -> tuple[str, int, list[str]]:
    """Wait until two tasks of partition 0 have staged a part; return these stages, in turn."""
    until = time.monotonic() + 120
    with writer.client() as client:
        while True:
            for app in client.staged_commits():
                for each in app.open:
                    tasks = {
                        int(stage.attempt.split("-")[1]): stage.attempt
                        for stage in each.stages
                        if stage.attempt.startswith("0-") and stage.record_count == FIRST_PART_ROWS
                    }
                    if len(tasks) == 2:
                        return app.app_id, each.version, [tasks[task] for task in sorted(tasks)]
            assert time.monotonic() < until, "no second attempt"
            time.sleep(0.05)


def run(
    cluster: Cluster, case: str, gates: dict[int, str], **options: str
) -> tuple[str, int, list[str]]:
    """Write, open the gates when both attempts have staged; return the staged commit and their stages."""
    driver, directory = cluster.driver, cluster.directory / case
    assert driver.stdin is not None
    driver.stdin.write(f"{case} {json.dumps(options)}\n")
    driver.stdin.flush()
    app_id, version, attempts = staged_twice(cluster.writer)
    assert {path.name.rpartition("-")[0] for path in directory.glob("read-*")} == {
        "read-0", "read-1",
    }  # fmt: skip
    for attempt, what in gates.items():
        open_gate(cluster, case, attempt, what)
    return app_id, version, attempts


def open_gate(cluster: Cluster, case: str, attempt: int, what: str) -> None:
    closed = cluster.directory / case / f"closed-{attempt}"
    closed.write_text(what)
    closed.rename(closed.with_name(f"go-{attempt}"))


def ended(cluster: Cluster) -> str:
    assert cluster.driver.stdout is not None
    return cluster.driver.stdout.readline().strip()


def check_stored_once(cluster: Cluster, case: str, app_id: str, version: int) -> set[str]:
    """Check rows and what is left; return the prefixes of the unique keys of partition 0."""
    with cluster.writer.client() as client:
        (app,) = [each for each in client.staged_commits() if each.app_id == app_id]
    assert app.last_version == version
    assert not app.open
    assert not files_below(cluster.writer.store / "staged", ".stage")
    found = [each for each in records_on_disk(cluster.writer.store) if each.topic == case]
    assert sorted(int(each.body.rstrip(b".")) for each in found) == list(range(PARTITIONS * ROWS))
    return {
        decode_properties(each.properties_block)["UNIQ_KEY"][:-8]
        for each in found
        if len(each.body) == BODY_SIZE
    }


@pytest.mark.parametrize(
    ("case", "gates", "chosen"),
    [
        ("second", {1: "end"}, {1}),
        ("first", {0: "end"}, {0}),
        ("both", {0: "end", 1: "end"}, {0, 1}),
    ],
)
def test_rows_that_two_attempts_staged_are_stored_once(
    cluster: Cluster, case: str, gates: dict[int, str], chosen: set[int]
) -> None:
    named = {"txnAppId": case, "txnVersion": "7"} if case == "first" else {}
    app_id, version, attempts = run(cluster, case, gates, **named)
    assert ended(cluster) == "ended"
    prefixes = check_stored_once(cluster, case, app_id, version)
    assert prefixes in [parts_of(app_id, version, attempts[number]) for number in chosen]


def test_an_attempt_that_fails_beside_its_copy_leaves_nothing(cluster: Cluster) -> None:
    app_id, version, attempts = run(cluster, "failure", {0: "fail"})
    wait_for_end_of(cluster.writer, attempts[0])
    open_gate(cluster, "failure", 1, "end")
    assert ended(cluster) == "ended"
    prefixes = check_stored_once(cluster, "failure", app_id, version)
    assert prefixes == parts_of(app_id, version, attempts[1])


def test_a_named_write_that_is_given_up_leaves_nothing(cluster: Cluster) -> None:
    """What its failed tasks staged goes too, of which Spark does not inform the sink."""
    options = {"txnAppId": "given-up", "txnVersion": "0"}
    app_id, _, attempts = run(cluster, "given-up", {0: "fail"}, **options)
    wait_for_end_of(cluster.writer, attempts[0])
    open_gate(cluster, "given-up", 1, "fail")
    assert ended(cluster) == "failed"
    failed = attempts[0].removesuffix("1-0")
    with cluster.writer.client() as client:
        left = [
            stage.attempt
            for app in client.staged_commits()
            if app.app_id == app_id
            for each in app.open
            for stage in each.stages
        ]
    assert not [attempt for attempt in left if attempt.startswith(failed) or attempt == attempts[1]]
    assert "given-up" not in {each.topic for each in records_on_disk(cluster.writer.store)}


def parts_of(app_id: str, version: int, first: str) -> set[str]:
    """Return what the unique keys of the two parts of a task begin with."""
    second = first.removesuffix("-1-0") + "-2-0"
    return {stage_prefix(app_id, version, attempt) for attempt in (first, second)}


def wait_for_end_of(writer: WriterProcess, attempt: str) -> None:
    """Wait until the task of a stage stages the rest too, or removes it: the sink saw its input end."""
    task = attempt.removesuffix("1-0")
    until = time.monotonic() + 30
    with writer.client() as client:
        while True:
            stages = [
                stage.attempt
                for app in client.staged_commits()
                for each in app.open
                for stage in each.stages
                if stage.attempt.startswith(task)
            ]
            if len(stages) != 1:
                return
            assert time.monotonic() < until, stages
            time.sleep(0.05)

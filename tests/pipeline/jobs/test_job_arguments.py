"""What is wrong with a job's arguments is reported before Spark starts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from golden import golden_store
from pyspark.errors import PythonException
from typer.testing import CliRunner, Result

import pipeline
from cli.failures import ExitCode
from cli.main import app
from pipeline.errors import InvalidOption, PipelineError, TaskFailed
from pipeline.jobs.export.manifest import held_export
from pipeline.jobs.new_directory import new_directory
from pipeline.jobs.work import task_failures_raised

USAGE, NO_STORE = ExitCode.USAGE, ExitCode.NOT_A_STORE


class Started(Exception):
    """Spark would have been started."""


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The masters that sessions were asked of; none starts."""
    masters: list[str] = []

    def refuse(master: str, *_: Any) -> None:
        masters.append(master)
        raise Started

    monkeypatch.setitem(vars(pipeline), "build_session", refuse)
    return masters


def run(arguments: str, tmp_path: Path) -> Result:
    places = {
        "STORE": golden_store("basic"), "NEW": tmp_path / "new", "NONE": tmp_path / "none",
        "EMPTY": tmp_path / "empty", "TAKEN": tmp_path / "taken",
    }  # fmt: skip
    places["EMPTY"].mkdir()
    places["TAKEN"].mkdir()
    (places["TAKEN"] / "file").touch()
    words = [str(places.get(word, word)) for word in arguments.split()]
    return CliRunner().invoke(app, ["job", *words])


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("audit NONE", NO_STORE, "no such directory"),
        ("audit EMPTY", NO_STORE, "empty"),
        ("audit STORE STORE", USAGE, "name it once"),
        ("audit STORE --findings TAKEN", USAGE, "'findings'"),
        ("rebuild NONE --to NEW", NO_STORE, "no such directory"),
        ("rebuild STORE", USAGE, "give either --to, a new directory, or --in-place"),
        ("rebuild STORE --to NEW --in-place", USAGE, "give either --to, a new directory, or --in-place"),
        ("rebuild STORE --to TAKEN", USAGE, "exists"),
        ("rebuild STORE --to NEW --what some", USAGE, "'some' is not one of"),
        ("rebuild STORE --to NEW --queue-file-size 7", USAGE, "consume_queue_file_size"),
        ("rebuild STORE --to NEW --index-slots 7", USAGE, "index_"),
        ("rebuild STORE --to NEW --index-slots 30 --index-entries 1", USAGE, "cannot be"),
        ("export NONE --to NEW", NO_STORE, "no such directory"),
        ("export STORE --to TAKEN", USAGE, "holds something else"),
        ("export STORE --to NEW --format csv", USAGE, "csv"),
        ("export STORE --to NEW --pattern (", USAGE, "pattern"),
        ("export STORE --to NEW --topic nope", USAGE, "nope"),
        ("export STORE --to NEW --topic orders --pattern o.*", USAGE, "pattern"),
        ("compact NONE --to NEW", NO_STORE, "no such directory"),
        ("compact STORE --to TAKEN", USAGE, "exists"),
        ("compact STORE --to NEW --keyless maybe", USAGE, "'maybe' is not one of"),
        ("compact STORE --to NEW --format csv", USAGE, "'csv' is not one of"),
        ("compact STORE --to NEW --topics nope", USAGE, "'nope'"),
        ("compact STORE --to NEW --log-file-size 7", USAGE, "log_file_size"),
        ("merge NONE --to NEW", NO_STORE, "no such directory"),
        ("merge STORE STORE --to NEW", USAGE, "name it once"),
        ("merge STORE --to TAKEN", USAGE, "exists"),
        ("merge STORE --to NEW --without nope", USAGE, "'nope'"),
        ("split NONE --to NEW", NO_STORE, "no such directory"),
        ("split STORE --to TAKEN", USAGE, "exists"),
        ("split STORE --to NEW --rest", USAGE, "'rest'"),
        ("split STORE --to NEW --topics x=orders --topics y=orders", USAGE, "is in 'x' already"),
        ("split STORE --to NEW --topics x=few --topics x=orders", USAGE, "two stores would be called 'x'"),
        ("split STORE --to NEW --topics ../x=few", USAGE, "cannot be called"),
        ("split STORE --to NEW --topics =", USAGE, "is not like"),
        ("split STORE --to NEW --log-file-size 1000", USAGE, "a multiple of 4096"),
        ("replay STORE orders", USAGE, "give either --endpoint"),
        ("replay STORE orders --to NEW --endpoint x:1", USAGE, "give either --endpoint"),
        ("replay STORE orders --endpoint x:1", USAGE, "give --to-topic"),
        ("replay STORE orders --to NEW --to-topic no/topic", USAGE, "the topic contains"),
        ("replay NONE orders --to NEW", NO_STORE, "no such directory"),
        ("replay STORE nope --to NEW", USAGE, "'nope'"),
        ("replay STORE orders --to TAKEN", USAGE, "exists"),
        ("replay STORE orders --to NEW --replay-id x", USAGE, "replay_id"),
        ("replay STORE orders --to NEW --since 9 --until 8", USAGE, "end_ms"),
        ("replay STORE orders --endpoint here --to-topic t", USAGE, "'endpoint'"),
        ("replay STORE orders --endpoint 127.0.0.1:1 --to-topic t", ExitCode.UNREACHABLE, ":1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_without_spark(
    arguments: str, code: ExitCode, words: str, tmp_path: Path, starts: list[str]
) -> None:
    result = run(arguments, tmp_path)

    assert not starts
    assert (result.exit_code, words in result.output) == (code, True), result.output
    assert not list(tmp_path.rglob("new/**/*.parquet"))
    assert not (tmp_path / "new").exists() or arguments.startswith("export")  # it goes on there


@pytest.mark.parametrize(
    "arguments",
    [
        "audit STORE",
        "rebuild STORE --to NEW",
        "export STORE --to NEW",
        "compact STORE --to NEW",
        "merge STORE --to NEW",
        "split STORE --to NEW",
        "replay STORE orders --to NEW",
    ],
)
def test_spark_starts_once_all_is_well(arguments: str, tmp_path: Path, starts: list[str]) -> None:
    result = run(f"{arguments} --master local[3]", tmp_path)

    assert starts == ["local[3]"], result.output


def test_a_time_of_an_export_that_has_no_unix_time_names_its_option(tmp_path: Path) -> None:
    moment = datetime(1, 1, 1, tzinfo=UTC)
    for times in ({"since": moment}, {"until": moment}):
        with pytest.raises(InvalidOption, match="before 1970"):
            pipeline.export(None, golden_store("basic"), tmp_path / "new", **times)  # type: ignore[arg-type]


LOCKS = [(new_directory, PipelineError), (held_export, InvalidOption)]


@pytest.mark.parametrize(("hold", "refusal"), LOCKS)
def test_a_directory_that_another_job_holds_is_refused(
    tmp_path: Path,
    hold: Callable[[Path], AbstractContextManager[object]],
    refusal: type[Exception],
) -> None:
    with (
        hold(tmp_path / "new"),
        pytest.raises(refusal, match="another job"),
        hold(tmp_path / "new"),
    ):
        pass


SAID = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted: Traceback (most recent call last):
  File "work.py", line 1, in run
    write()
OSError: [Errno 28] No space left on device: '/new/0.parquet'

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
"""


def test_the_tasks_own_words_are_left_of_an_error_of_sparks() -> None:
    with pytest.raises(TaskFailed) as told, task_failures_raised():
        raise PythonException(SAID)
    assert str(told.value) == (
        "a task failed: OSError: [Errno 28] No space left on device: '/new/0.parquet'"
    )


@pytest.mark.parametrize("error", [KeyError("a bug"), KeyboardInterrupt()])
def test_what_the_driver_raises_itself_goes_through(error: BaseException) -> None:
    with pytest.raises(type(error)) as told, task_failures_raised():
        raise error
    assert told.value is error

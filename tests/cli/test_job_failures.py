"""Errors of jobs as exit codes, and stores named as they are typed; without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.failures import CommandFailed, ExitCode
from cli.jobs.spark import failures_in_one_line
from cli.main import app
from pipeline import errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidOption("tags", "is wrong"), ExitCode.USAGE),
        (errors.NotAStore("no log"), ExitCode.NOT_A_STORE),
        (errors.UnsupportedFormat("newer"), ExitCode.NEWER_FORMAT),
        (errors.StoreLocked("held"), ExitCode.LOCKED),
        (errors.TaskFailed("disk full"), ExitCode.FAILED),
        (errors.DataLost("removed"), ExitCode.FAILED),
        (errors.WriterUnavailable("nobody answers"), ExitCode.UNREACHABLE),
    ],
)
def test_each_error_has_its_exit_code(error: Exception, code: ExitCode) -> None:
    with pytest.raises(CommandFailed) as told, failures_in_one_line():
        raise error
    assert (told.value.code, str(told.value)) == (code, str(error))


@pytest.mark.parametrize(
    ("text", "line", "code"),
    [
        ("pipeline.errors.DataLost: it is gone", "it is gone", ExitCode.FAILED),
        ("storage.errors.NotAStore: no log", "no log", ExitCode.NOT_A_STORE),
        ("OSError: [Errno 28] full", "OSError: [Errno 28] full", ExitCode.FAILED),
    ],
)
def test_what_spark_wraps_is_reported_as_it_was_raised(
    text: str, line: str, code: ExitCode
) -> None:
    """By a query of Spark's, whose own error has the worker's and Java's tracebacks in it."""
    traceback = (
        f'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\n{text}\n'
    )
    wrapped = type("PythonException", (Exception,), {"__module__": "pyspark.errors.captured"})
    with pytest.raises(CommandFailed) as told, failures_in_one_line():
        raise wrapped(f"Job aborted: {traceback}\n\tat org.apache.spark.Java(X.scala:1)\n")
    assert (told.value.code, str(told.value)) == (code, line)


def test_what_a_task_raised_keeps_its_exit_code() -> None:
    with pytest.raises(CommandFailed) as told, failures_in_one_line():
        raise errors.TaskFailed("a task failed: storage.errors.NotAStore: no log: none")
    assert (told.value.code, str(told.value)) == (ExitCode.NOT_A_STORE, "no log: none")


def test_what_is_not_the_pipelines_own_goes_through() -> None:
    with pytest.raises(KeyError), failures_in_one_line():
        raise KeyError("a bug")


@pytest.mark.parametrize("job", ["audit", "export", "merge", "split", "compact", "replay"])
def test_a_url_reaches_the_job_as_it_was_typed(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path would lose one of its two slashes."""
    given: list[Any] = []

    def record(_spark: object, stores: Any, *_: object, **__: object) -> None:
        given.extend([stores] if isinstance(stores, str) else stores)
        raise errors.NotAStore("none")

    # In the dictionary: the job itself, which needs Spark, is not imported to be put back later.
    import pipeline

    monkeypatch.setitem(vars(pipeline), "audit_stores" if job == "audit" else job, record)
    monkeypatch.setattr("cli.jobs.spark.start_spark", lambda *_: None)
    more = ["orders"] if job == "replay" else []
    to = [] if job == "audit" else ["--to", str(tmp_path / "new")]

    told = CliRunner().invoke(app, ["job", job, "s3://bucket/store", *more, *to])

    assert given == ["s3://bucket/store"], told.output
    assert told.exit_code == ExitCode.NOT_A_STORE

"""What the commands of ``penstock job`` share: Spark, the options of all, and errors as one line."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import Session, session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[str, typer.Option(help="Where Spark runs: local[N], or a cluster's address.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
LOCAL = "local[*]"
_RAISED_IN_A_TASK: Final = re.compile(
    r"(?:^|: )(?:pipeline|storage)\.errors\.(\w+): (.*)", re.DOTALL
)


def run_job(
    context: typer.Context, name: str, master: str, *given: Any, quiet: bool, **options: Any
) -> tuple[Session, Any]:
    """Call a function of the pipeline with Spark; return the session of the command, and the report."""
    session = session_of(context)
    with failures_in_one_line():
        import pipeline

        spark = start_spark(session, master)
        show_progress = not quiet and not session.as_json
        return session, getattr(pipeline, name)(
            spark, *given, show_progress=show_progress, **options
        )


def start_spark(session: Session, master: str) -> SparkSession:
    """Return a session for a job; it starts when the job first uses it.

    A job checks stores, target and options before that, so what is wrong with them is reported at once
    and not after the seconds that Spark takes to start. With ``--debug`` Spark prints everything.
    """
    return cast("SparkSession", _LateSession(master, verbose=session.debug))


class _LateSession:
    """Makes the session when an attribute of it is first asked for."""

    def __init__(self, master: str, *, verbose: bool) -> None:
        self._master = master
        self._verbose = verbose
        self._started: SparkSession | None = None

    def __getattr__(self, name: str) -> Any:
        if self._started is None:
            from cli.jobs.spark_start import start_session

            self._started = start_session(self._master, "penstock job", {}, verbose=self._verbose)
        return getattr(self._started, name)


@contextlib.contextmanager
def failures_in_one_line() -> Iterator[None]:
    """Turn what the pipeline raises into one line and an exit code."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "pyarrow"):
            raise
        raise CommandFailed(
            "Spark is not installed: make setup-spark, or pip install 'penstock[spark]'",
            ExitCode.USAGE,
        ) from error
    except Exception as error:
        if not type(error).__module__.startswith(
            ("pipeline.", "storage.errors", "pyspark.", "py4j.")
        ):
            raise
        from pipeline import errors
        from pipeline.jobs.work import cause_of

        kind: type[Exception] = type(error)
        line = str(error)
        if not isinstance(error, errors.PipelineError | errors.StoreError):
            kind, line = errors.TaskFailed, cause_of(line)
        if raised := _RAISED_IN_A_TASK.search(line):
            kind, line = getattr(errors, raised[1], kind), raised[2]
        codes: dict[type[Exception], ExitCode] = {
            errors.NotAStore: ExitCode.NOT_A_STORE,
            errors.StoreLocked: ExitCode.LOCKED,
            errors.UnsupportedFormat: ExitCode.NEWER_FORMAT,
            errors.TaskFailed: ExitCode.FAILED,
            errors.DataLost: ExitCode.FAILED,
            errors.WriterUnavailable: ExitCode.UNREACHABLE,
        }
        raise CommandFailed(line, codes.get(kind, ExitCode.USAGE)) from error

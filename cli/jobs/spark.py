"""What the commands of ``penstock job`` share: Spark, the options of all, reports, and errors as one line.

Java, Spark and what they load say some ten lines on stderr at every start, by several ways of which no
setting silences all. So they are given a file in place of stderr, which is shown if the start fails.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from cli.failures import CommandFailed, ExitCode
from cli.session import Session, session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[str, typer.Option(help="Where Spark runs: local[N], or a cluster's address.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Directory = Annotated[str, typer.Argument(metavar="DIR", help="Store directory, or URL of a copy.")]
Directories = Annotated[
    list[str], typer.Argument(metavar="DIR...", help="Store directories, or URLs of copies.")
]
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


def values(report: Any, *names: str, **renamed: str) -> dict[str, Any]:
    """Return fields of a report as JSON has them: ``log_bytes`` as logBytes, others by names of their own."""
    fields = {_camel(name): name for name in names} | renamed
    return {
        name: round(value, 3) if field == "seconds" else value
        for name, field in fields.items()
        for value in [getattr(report, field)]
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


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
            self._started = start_session(self._master, "penstock job", {}, verbose=self._verbose)
        return getattr(self._started, name)


def start_session(
    master: str, app_name: str, config: Mapping[str, str], *, verbose: bool = False
) -> SparkSession:
    """Start Spark, or return the running session; it says nothing by itself.

    ``verbose`` leaves everything as Spark has it, from warnings on. Raises what ``build_session`` raises.
    """
    from pipeline import build_session

    if verbose:
        return build_session(master, app_name, config)
    with quiet_start():
        return build_session(master, app_name, {**config, "spark.log.level": "ERROR"})


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Keep from stderr what comes inside, and later of processes that start there, unless the block raises."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(stderr, said.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)


@contextlib.contextmanager
def failures_in_one_line() -> Iterator[None]:
    """Turn what the pipeline raises into one line and an exit code."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "pyarrow"):
            raise
        raise CommandFailed(
            "Spark is not installed: make setup-spark, or install penstock with its extra spark",
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

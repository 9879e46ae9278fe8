"""What the commands of ``penstock job`` share: Spark, the options of all, and errors as one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cli.failures import CommandFailed, ExitCode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cli.session import Session

Master = Annotated[str, typer.Option(help="Where Spark runs: local[N], or a cluster's address.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
LOCAL = "local[*]"


def shows_progress(session: Session, quiet: bool) -> bool:
    """Tell whether a job is to show how far it is."""
    return not quiet and not session.as_json


def start_spark(master: str) -> SparkSession:
    """Return a session for a job; it starts when the job first uses it.

    A job checks stores, target and options before that, so what is wrong with them is told at once
    and not after the seconds that Spark takes to start.
    """
    return cast("SparkSession", _LateSession(master))


class _LateSession:
    """Stands for a session until an attribute of it is asked for."""

    def __init__(self, master: str) -> None:
        self._master = master
        self._started: SparkSession | None = None

    def __getattr__(self, name: str) -> Any:
        if self._started is None:
            from pipeline import build_session

            config = {"spark.log.level": "ERROR"}
            self._started = build_session(self._master, "penstock job", config)
        return getattr(self._started, name)


@contextlib.contextmanager
def failures_told() -> Iterator[None]:
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
        if not type(error).__module__.startswith("pipeline."):
            raise
        from pipeline import errors

        codes: dict[type[Exception], ExitCode] = {
            errors.NotAStore: ExitCode.NOT_A_STORE,
            errors.StoreInUse: ExitCode.LOCKED,
            errors.TaskFailed: ExitCode.FAILED,
            errors.DataLost: ExitCode.FAILED,
            errors.WriterUnavailable: ExitCode.UNREACHABLE,
        }
        code = codes.get(type(error), ExitCode.USAGE)
        raise CommandFailed(str(error), code) from error

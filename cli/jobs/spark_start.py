"""Spark started in silence: its greetings are dropped, its later output is passed on.

Java, Spark and what they load say some ten lines on stderr at every start, by several ways of which
no setting silences all. So they are given a pipe in place of stderr; a thread of ours reads it to the
end of this process, drops what comes until the session is there, and passes on the rest.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNK_BYTES: Final = 1 << 16
ALL_READ_SECONDS: Final = 10.0
# They print a page of Java and Python about what ends the job, which our own line reports.
LOUD_LOGGERS: Final = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.util.Utils",
    "org.apache.spark.sql.execution.datasources",
)


def start_session(
    master: str, app_name: str, config: Mapping[str, str], *, verbose: bool = False
) -> SparkSession:
    """Start Spark, or return the running session; its errors and those of its tasks are shown, little else.

    ``verbose`` leaves everything as Spark has it, from warnings on. Where the start fails, all that
    was said is shown. Raises what ``build_session`` raises.
    """
    from pipeline import build_session

    if verbose:
        return build_session(master, app_name, config)
    with quiet_start():
        spark = build_session(master, app_name, {**config, "spark.log.level": "ERROR"})
    log4j = spark.sparkContext._jvm.org.apache.logging.log4j
    for name in LOUD_LOGGERS:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
    return spark


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Drop what comes to stderr inside, of processes too that start there, unless the block raises.

    What those processes say after the block comes to stderr.
    """
    source, target = os.pipe()
    relay = _Relay(source)
    sys.stderr.flush()
    stderr = os.dup(2)
    os.dup2(target, 2)
    try:
        yield
    except BaseException:
        relay.prints_all = True
        raise
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        os.write(target, relay.mark)
        os.close(target)
        relay.all_read.wait(ALL_READ_SECONDS)


class _Relay:
    """Reads a pipe to its end: holds what precedes the mark, and writes the rest to stderr."""

    def __init__(self, source: int) -> None:
        self.mark: Final = secrets.token_bytes(16)
        self.all_read = threading.Event()
        self.prints_all = False
        self._source = source
        threading.Thread(target=self._run, name="penstock-spark-stderr", daemon=True).start()

    def _run(self) -> None:
        held = b""
        while chunk := os.read(self._source, CHUNK_BYTES):
            if self.all_read.is_set():
                _print(chunk)
                continue
            held += chunk
            before, mark, after = held.partition(self.mark)
            if mark:
                _print((before if self.prints_all else b"") + after)
                held = b""
                self.all_read.set()
        os.close(self._source)


def _print(data: bytes) -> None:
    # A writer to the pipe would wait for ever if it were no longer read.
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(2, data) :]

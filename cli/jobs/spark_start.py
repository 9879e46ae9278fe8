"""Spark started in silence: what Java, Spark and what they load say is shown if the start fails.

They say some ten lines on stderr at every start, by several ways of which no setting silences all. So they
are given a file in place of stderr.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

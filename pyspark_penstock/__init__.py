"""What Spark finds by itself: ``format("penstock")``. Nothing heavy is imported here.

Spark imports every module named ``pyspark_*`` when it looks for a format, and one that fails to
import hides all others; so this one imports nothing but Spark's own interface.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Store directories as tables; see docs/pipeline.md for the options."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "penstock"

    def schema(self) -> str:
        """Return the columns that the options ask for; raises InvalidOption."""
        from pipeline.source import declared_schema

        return declared_schema(dict(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns in ``schema``, a user's or ours; raises InvalidOption."""
        from pipeline.source import make_reader

        return make_reader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ARG002  Spark's names
        """Refuse: writing is not there yet."""
        from pipeline.source import refuse_writing

        refuse_writing()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Return a reader of messages as they come; raises InvalidOption."""
        from pipeline.stream import make_stream_reader

        return make_stream_reader(dict(self.options), schema)

"""What Spark finds by itself: ``format("penstock")``. Nothing heavy is imported here.

Spark imports every module named ``pyspark_*`` when it looks for a format, and one that fails to
import hides all others; so this one imports nothing but Spark's own interface.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Store directories as tables; see docs/pipeline.md for the options."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "penstock"

    def schema(self) -> str:
        """Return the columns that the options ask for; raises InvalidOption."""
        from pipeline.source.source import declared_schema

        return declared_schema(dict(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns in ``schema``, a user's or ours; raises InvalidOption."""
        from pipeline.source.source import make_reader

        return make_reader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer of messages; raises InvalidOption, InvalidColumn, WriteFailed."""
        from pipeline.sink.write import make_writer

        return make_writer(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802  Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Return a writer of a stream's messages; raises InvalidOption, InvalidColumn, WriteFailed."""
        from pipeline.sink.write import make_stream_writer

        return make_stream_writer(dict(self.options), schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Return a reader of messages as they come; raises InvalidOption."""
        from pipeline.source.stream.stream import make_stream_reader

        return make_stream_reader(dict(self.options), schema)

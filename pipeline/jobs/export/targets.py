"""Where an export goes: a directory of Parquet files, a Delta table or an Iceberg table.

Tasks write files beside the data; a target makes those of one run visible together, and says afterwards
whether it has. A directory of files has only its manifest to say so, and there a run counts from when it
is pending. Tables have a commit, which names the run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pipeline.errors import InvalidOption, PipelineError
from pipeline.jobs.export.manifest import DIRECTORY
from pipeline.jobs.new_directory import sync_path

FORMATS: Final = ("parquet", "iceberg", "delta")
PARTITIONS: Final = ["topic", "dt"]
TABLE: Final = "penstock.messages"
STAGING: Final = "staging"
EXPORT_ID: Final = "penstock.export-id"
RUN: Final = "penstock.run"
Files = Sequence[Mapping[str, Any]]  # path, topic, day, rows, size


class ExportTarget(Protocol):
    """One export's destination."""

    @property
    def in_path(self) -> tuple[str, ...]:
        """Columns that stand in the paths of files and not in the files."""
        ...

    def publish(self, run: int, files: Files, schema: Any) -> None:
        """Make the files of a run visible, all at once or again from where it was interrupted."""
        ...

    def is_published(self, run: int, files: Files) -> bool:
        """Return whether an interrupted run counts; a directory's is finished here."""
        ...


def staging_of(root: Path) -> Path:
    """Return the directory that tasks write to, which no reader looks into."""
    return root / DIRECTORY / STAGING


def open_target(
    file_format: str, root: Path, export_id: str, catalog: str | None, table: str | None
) -> ExportTarget:
    """Return the target of a format; PipelineError where its library is not installed."""
    if file_format not in FORMATS:
        raise InvalidOption("format", f"{file_format!r} is not one of {', '.join(FORMATS)}")
    for option, value in (("catalog", catalog), ("table", table)):
        if value is not None and file_format != "iceberg":
            raise InvalidOption(option, f"means nothing for format {file_format!r}; leave it out")
    try:
        if file_format == "delta":
            import deltalake  # noqa: F401

            return DeltaTarget(root, export_id)
        if file_format == "iceberg":
            import pyiceberg  # noqa: F401

            return IcebergTarget(root, export_id, catalog, table or TABLE)
    except ModuleNotFoundError as error:
        raise PipelineError(
            f"format {file_format!r} needs the library {error.name}: make setup-spark, or"
            " install penstock with its extra lakehouse"
        ) from error
    return ParquetTarget(root)


def move_in(root: Path, files: Files) -> None:
    """Give staged files their places; those that have them already stay. Durable on return."""
    directories = set()
    for file in files:
        source, place = staging_of(root) / file["path"], root / file["path"]
        place.parent.mkdir(parents=True, exist_ok=True)
        directories |= {place.parent, place.parent.parent, root}
        if source.exists() or not place.exists():
            source.rename(place)
    for directory in directories:
        sync_path(directory)


def remove(root: Path, files: Files) -> None:
    """Remove files from their places."""
    for file in files:
        (root / file["path"]).unlink(missing_ok=True)


class ParquetTarget:
    """A directory that Spark, DuckDB and others read as a table partitioned by topic and day."""

    in_path = ("topic", "dt")

    def __init__(self, root: Path) -> None:
        self._root = root

    def publish(self, run: int, files: Files, schema: Any) -> None:  # noqa: ARG002
        """Move the files in, one after the other; a run that is interrupted here is finished later."""
        move_in(self._root, files)

    def is_published(self, run: int, files: Files) -> bool:  # noqa: ARG002
        """Finish moving the files in."""
        move_in(self._root, files)
        return True


class DeltaTarget:
    """A Delta table. Its log keeps the last run of each export, as of any other application."""

    in_path = ("topic", "dt")

    def __init__(self, root: Path, export_id: str) -> None:
        self._root = root
        self._export_id = export_id

    def publish(self, run: int, files: Files, schema: Any) -> None:
        """Add all files in one commit with the transaction id (export id, run)."""
        import pyarrow as pa
        from deltalake import DeltaTable
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        fields = [pa.field("topic", pa.string()), *schema, pa.field("dt", pa.date32())]
        whole = pa.schema(fields)
        move_in(self._root, files)
        if not DeltaTable.is_deltatable(str(self._root)):
            DeltaTable.create(str(self._root), whole, partition_by=PARTITIONS)
        now_ms = time.time_ns() // 1_000_000
        actions = [
            AddAction(
                path=file["path"],
                size=file["size"],
                partition_values={"topic": file["topic"], "dt": file["day"]},
                modification_time=now_ms,
                data_change=True,
                stats=json.dumps({"numRecords": file["rows"]}),
            )
            for file in files
        ]
        DeltaTable(str(self._root)).create_write_transaction(
            actions,
            mode="append",
            schema=whole,
            partition_by=PARTITIONS,
            commit_properties=CommitProperties(
                custom_metadata={EXPORT_ID: self._export_id, RUN: str(run)},
                app_transactions=[Transaction(self._export_id, run)],
            ),
        )

    def is_published(self, run: int, files: Files) -> bool:  # noqa: ARG002
        """Return whether the commit is there."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self._root)):
            return False
        last = DeltaTable(str(self._root)).transaction_version(self._export_id)
        return last is not None and last >= run


class IcebergTarget:
    """An Iceberg table; its catalog is a file beside the data by default."""

    in_path = ()

    def __init__(self, root: Path, export_id: str, catalog: str | None, table: str) -> None:
        if table.count(".") != 1 or not all(table.split(".")):
            raise InvalidOption("table", f"{table!r} is not of the form NAMESPACE.TABLE")
        self._root = root
        self._export_id = export_id
        self._catalog_uri = catalog or f"sqlite:///{root}/catalog.db"
        self._name = table

    def _catalog(self) -> Any:
        from pyiceberg.catalog import load_catalog

        self._root.mkdir(parents=True, exist_ok=True)
        try:
            return load_catalog("penstock", uri=self._catalog_uri, warehouse=f"file://{self._root}")
        except Exception as error:
            raise InvalidOption(
                "catalog", f"{self._catalog_uri} cannot be opened: {error}"
            ) from error

    def publish(self, run: int, files: Files, schema: Any) -> None:
        """Add all files in one snapshot that carries the export id and the run."""
        from pyiceberg.exceptions import NoSuchTableError

        catalog = self._catalog()
        try:
            table = catalog.load_table(self._name)
        except NoSuchTableError:
            table = self._create(catalog, schema)
        move_in(self._root, files)
        table.add_files(
            [f"file://{self._root / file['path']}" for file in files],
            snapshot_properties={EXPORT_ID: self._export_id, RUN: str(run)},
            check_duplicate_files=False,
        )

    def _create(self, catalog: Any, schema: Any) -> Any:
        catalog.create_namespace_if_not_exists(self._name.split(".")[0])
        table = catalog.create_table(self._name, schema, location=f"file://{self._root}")
        with table.update_spec() as spec:
            for name in PARTITIONS:
                spec.add_identity(name)
        return table

    def is_published(self, run: int, files: Files) -> bool:  # noqa: ARG002
        """Return whether the snapshot is there."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            snapshots = self._catalog().load_table(self._name).metadata.snapshots
        except NoSuchTableError:
            return False
        said = [each.summary.additional_properties for each in snapshots if each.summary]
        wanted = (self._export_id, str(run))
        return any((one.get(EXPORT_ID), one.get(RUN)) == wanted for one in said)


def is_local(path: str | os.PathLike[str]) -> bool:
    """Return whether this is a path and not a URL."""
    return "://" not in str(path)

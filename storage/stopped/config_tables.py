"""The configuration of a new store: who it is, its files' sizes, and the tables in a broker's shape."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from storage.config import StoreConfig
from storage.files.filesystem import FileSystem
from storage.format.config_json import encode_config
from storage.tables.consumer_offsets import offset_fields, offset_key
from storage.tables.table_files import (
    DELAYS_FILE,
    GROUPS_FILE,
    LIGHT_OFFSETS_FILE,
    OFFSETS_FILE,
    TOPICS_FILE,
    data_version,
    delay_fields,
    group_fields,
    replace_table,
)
from storage.tables.topics import topics_document
from storage.view.layout import StorePaths
from storage.view.settings import StoreSettings, save_settings

if TYPE_CHECKING:
    from storage.view.config_tables import ConfigTables
    from storage.view.file_sizes import FileSizes


def write_configuration(
    root: Path, sizes: FileSizes, tables: ConfigTables, *, now_ms: int
) -> bytes:
    """Write the settings and the tables of a new store, those that hold anything; return its id.

    The topic table is always there. Durable on return.
    """
    filesystem, paths = FileSystem(), StorePaths(root)
    config = StoreConfig(**sizes._asdict(), flush_mode="async")
    settings = save_settings(filesystem, paths, StoreSettings(), config)
    version = data_version(1, 0, now_ms)
    offsets = {offset_key(*key): dict(places) for key, places in tables.offsets.items()}
    written = {TOPICS_FILE: topics_document(tables.topics, version, {})}
    if tables.groups:
        written[GROUPS_FILE] = encode_config(group_fields(tables.groups, version))
    if offsets:
        name = LIGHT_OFFSETS_FILE if tables.light else OFFSETS_FILE
        written[name] = encode_config(offset_fields(offsets, version))
    if tables.delays:
        written[DELAYS_FILE] = encode_config(delay_fields(tables.delays, version))
    for name, document in written.items():
        replace_table(filesystem, paths.config / name, document)
    return settings.store_id

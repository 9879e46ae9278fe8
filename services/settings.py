"""Settings of the services: flags, then PENSTOCK_* variables, then a TOML file, then defaults.

Each setting is one field below; ``--help``, the table in docs/operations.md and the checks are
made from these fields. A field ``flush_mode`` is the flag ``--flush-mode``, the variable
``PENSTOCK_FLUSH_MODE`` and the TOML key ``flush_mode``. Sizes are bytes and may be written 64MiB.
This is the only module which reads the environment.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NoReturn, TypeVar

from pydantic import ByteSize, Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    CliSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from penstock.addresses import (
    DEFAULT_INDEXER,
    DEFAULT_READER,
    DEFAULT_WRITER,
    address_problem,
)
from services import memory
from storage.config import FlushMode, StoreConfig

ENV_PREFIX: Final = "PENSTOCK_"
EXIT_USAGE: Final = 2
WARM_SHARE: Final = 8  # of the memory, one part for page cache filled ahead of the appends
DEFAULT_LISTEN: Final[Mapping[str, str]] = {
    "writer": DEFAULT_WRITER,
    "reader": DEFAULT_READER,
    "indexer": DEFAULT_INDEXER,
}

UNITS: Final = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_CONFIG_FLAG: Final = "--config"
_ENGINE: Final = StoreConfig()
_S = TypeVar("_S", bound="ProcessSettings")


class ProcessSettings(BaseSettings):
    """What every process takes."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="ignore",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        env_ignore_empty=True,
    )
    toml_file: ClassVar[Path | None] = None  # the file that --config names

    config: Path | None = Field(None, description="TOML file with any of these settings.")
    store: Path = Field(description="Store directory; the writer makes it if it is missing.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe event to log."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="How events are written; auto: console on a terminal, else json."
    )
    access_log: Literal["none", "failures", "all"] = Field(
        "failures", description="Which calls are logged, each with its request id."
    )
    drain_grace_seconds: float = Field(
        10.0, ge=0, description="How long calls under way may take after a stop signal."
    )
    message_bytes_max: ByteSize = Field(
        ByteSize(16 << 20),
        ge=64 << 10,
        description="Largest request; larger ones are refused unread.",
    )
    concurrent_calls_max: int = Field(
        4_096, ge=1, description="Calls under way at once; above it RESOURCE_EXHAUSTED."
    )
    connections_max: int = Field(
        2_048,
        ge=1,
        description="Open connections; above it, or above half the files that the process may have "
        "open, none is taken.",
    )
    connection_idle_seconds: float = Field(
        300.0, gt=0, description="A connection without calls is closed after this."
    )
    handshake_timeout_seconds: float = Field(
        10.0, gt=0, description="A connection which has not spoken HTTP/2 by then is closed."
    )
    keepalive_seconds: float = Field(
        30.0,
        gt=0,
        description="A silent connection is pinged after this, and closed if it is dead.",
    )

    @field_validator("message_bytes_max")
    @classmethod
    def _fits_int32(cls, value: ByteSize) -> ByteSize:
        if value > 1 << 30:
            raise ValueError("at most 1GiB")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  not offered
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  not offered
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags win over variables, variables over the file."""
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls, cls.toml_file))


class ListenSettings(ProcessSettings):
    """What a process with one address takes."""

    listen: str = Field(description="HOST:PORT to serve on; port 0 takes a free one.")

    supervised: bool = Field(False, description="Stop when the parent process ends.")

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        return check_address(value)


class EngineSettings(ProcessSettings):
    """How the writer lays out and writes a store; defaults are a broker's where it has them."""

    flush_mode: FlushMode = Field(
        _ENGINE.flush_mode,
        description="sync: acknowledged when on the device; async: when in the page cache.",
    )
    flush_interval_ms: int = Field(
        _ENGINE.flush_interval_ms, ge=1, description="Time between syncs in async mode."
    )
    transient_pool: bool = Field(
        _ENGINE.transient_pool,
        description="Write to shared memory first, commit to the files later.",
    )
    transient_pool_size: int = Field(
        _ENGINE.transient_pool_size, ge=1, description="Buffers of one commit log file each."
    )
    transient_pool_directory: str = Field(
        _ENGINE.transient_pool_directory, description="Where they are; must outlive the process."
    )
    commit_interval_ms: int = Field(
        _ENGINE.commit_interval_ms, ge=1, description="Time between commits from the pool."
    )
    commit_log_file_size: ByteSize = Field(
        ByteSize(_ENGINE.commit_log_file_size), ge=4096, description="Of one commit log file."
    )
    consume_queue_file_size: ByteSize = Field(
        ByteSize(_ENGINE.consume_queue_file_size),
        ge=20,
        description="Of one consume queue file; a multiple of 20.",
    )
    index_slot_count: int = Field(_ENGINE.index_slot_count, ge=1, description="Of one index file.")
    index_entry_count: int = Field(
        _ENGINE.index_entry_count, ge=2, description="Of one index file."
    )
    store_host: str = Field(
        _ENGINE.store_host, description="ADDRESS:PORT written into records and message ids."
    )
    body_size_max: ByteSize = Field(
        ByteSize(_ENGINE.body_size_max), ge=1, description="Largest message body."
    )
    append_property_crc: bool = Field(
        _ENGINE.append_property_crc, description="Write the checksum of the whole record."
    )
    unflushed_bytes_max: ByteSize = Field(
        ByteSize(_ENGINE.unflushed_bytes_max),
        ge=1,
        description="Appended and not yet synced; above it RESOURCE_EXHAUSTED.",
    )
    queue_flush_interval_ms: int = Field(
        _ENGINE.queue_flush_interval_ms, ge=1, description="Time between syncs of consume queues."
    )
    stage_timeout_ms: int = Field(
        _ENGINE.stage_timeout_ms,
        ge=1,
        description="Staged records that are not committed are removed after this.",
    )
    scrub_interval_ms: int = Field(
        _ENGINE.scrub_interval_ms,
        ge=0,
        description="Time between two readings of all of the store in search of damage; 0: none.",
    )
    scrub_bytes_per_s: ByteSize = Field(
        ByteSize(_ENGINE.scrub_bytes_per_s), ge=1, description="What such a reading reads at most."
    )
    mapped_files_max: int = Field(
        _ENGINE.mapped_files_max, ge=1, description="Files of a kind kept mapped."
    )
    warm_cache_bytes_max: Literal["auto"] | ByteSize = Field(
        "auto",
        description="Page cache that may be filled ahead of the appends: this commit log file and "
        "the next are warmed whole if both fit. auto: an eighth of the memory; 0: never.",
    )

    def store_config(self) -> StoreConfig:
        """Return the engine's configuration; ValueError names fields which do not fit together."""
        names = {field.name for field in dataclass_fields(StoreConfig)}
        values = {n: v for n, v in self.model_dump().items() if n in names}
        if self.warm_cache_bytes_max == "auto":
            values["warm_cache_bytes_max"] = memory.limit_bytes() // WARM_SHARE
        plain: dict[str, Any] = {
            name: int(value) if isinstance(value, ByteSize) else value
            for name, value in values.items()
        }
        return StoreConfig(**plain)


class WriterSettings(EngineSettings, ListenSettings):
    """The writer: the one process that appends to a store."""

    listen: str = Field(
        DEFAULT_LISTEN["writer"], description="HOST:PORT to serve on; port 0 takes a free one."
    )
    stream_batches_max: int = Field(
        64, ge=1, description="Batches of one stream appended and not yet acknowledged."
    )


class ReaderSettings(ListenSettings):
    """The reader: serves what is stored, keeps the progress of groups."""

    listen: str = Field(
        DEFAULT_LISTEN["reader"], description="HOST:PORT to serve on; port 0 takes a free one."
    )
    pull_bytes_max: ByteSize = Field(
        ByteSize(8 << 20), ge=1, description="Largest answer of one pull, whatever is asked for."
    )
    stream_bytes_max: ByteSize = Field(
        ByteSize(256 << 20),
        ge=1,
        description="Answers of all pull streams together that may wait for their callers to read.",
    )
    wait_ms_max: int = Field(60_000, ge=0, description="Longest wait of one pull.")
    store_wait_seconds: float = Field(
        60.0, ge=0, description="How long to wait for the writer to make the store."
    )


class IndexerSettings(ListenSettings):
    """The indexer: follows the commit log and builds index files."""

    listen: str = Field(
        DEFAULT_LISTEN["indexer"], description="HOST:PORT to serve on; port 0 takes a free one."
    )
    store_wait_seconds: float = Field(
        60.0, ge=0, description="How long to wait for the writer to make the store."
    )
    scrub_interval_ms: int = Field(
        _ENGINE.scrub_interval_ms,
        ge=0,
        description="Time between two readings of all of the store in search of damage; 0: none.",
    )
    scrub_bytes_per_s: ByteSize = Field(
        ByteSize(_ENGINE.scrub_bytes_per_s), ge=1, description="What such a reading reads at most."
    )


class ServeSettings(EngineSettings):
    """All three services under one supervisor."""

    writer_listen: str = Field(DEFAULT_LISTEN["writer"], description="HOST:PORT of the writer.")
    reader_listen: str = Field(DEFAULT_LISTEN["reader"], description="HOST:PORT of the reader.")
    indexer_listen: str = Field(DEFAULT_LISTEN["indexer"], description="HOST:PORT of the indexer.")

    @field_validator("writer_listen", "reader_listen", "indexer_listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        return check_address(value)


def check_address(value: str) -> str:
    """Return ``HOST:PORT`` to listen on as it is. Raises ValueError with what to change."""
    if fix := address_problem(value, port_min=0):
        raise ValueError(f"{value!r} is not HOST:PORT; {fix}")
    return value


def load(
    kind: type[_S],
    argv: Sequence[str] | None,
    *,
    prog: str,
    defaults: Mapping[str, Any] | None = None,
) -> _S:
    """Read the settings of a process; on anything wrong print one line and exit with status 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    path = _config_path(arguments)
    try:
        if path is not None:
            path.open().close()  # the source takes a file that is missing for an empty one
        values = TomlConfigSettingsSource(kind, path).toml_data
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        _exit(prog, f"settings file {path}: {error}")
    unknown = sorted(set(values) - _all_names())
    if unknown:
        _exit(prog, f"settings file {path}: no setting is called {', '.join(unknown)}")
    flavour = type(kind.__name__, (kind,), {"toml_file": path, "__doc__": kind.__doc__})
    flags: CliSettingsSource[Any] = CliSettingsSource(
        flavour, cli_prog_name=prog, cli_exit_on_error=False
    )
    _complete_help(flags, kind)
    try:
        source = flags(args=arguments)
        return flavour(_cli_settings_source=source, **(defaults or {}))  # type: ignore[no-any-return]
    except ValidationError as error:
        errors = error.errors()
        name = str((*errors[0]["loc"], "settings")[0])
        # A setting that may be a word or a size has an error for each; the last says what a size is.
        same = [each for each in errors if each["loc"][:1] == errors[0]["loc"][:1]]
        first = same[-1]
        given_as = _given_as(name, arguments, values, path)
        problem = str(first["msg"]).removeprefix("Value error, ")
        if str(first["type"]).startswith("byte_size"):
            words = [each["ctx"]["expected"] for each in same if each["type"] == "literal_error"]
            sizes = ", or ".join(["bytes, for instance 64MiB", *words])
            problem = f"{str(first['input'])!r} is not a size: give {sizes}"
        if first["type"] == "missing":
            problem = f"is needed (or {ENV_PREFIX}{name.upper()})"
        _exit(prog, f"{given_as}: {problem}")
    except SettingsError as error:
        problem = str(error).splitlines()[0].removeprefix("error parsing CLI: ")
        _exit(prog, f"{problem}; see {prog} --help")


def _given_as(
    name: str, arguments: Sequence[str], values: Mapping[str, Any], path: Path | None
) -> str:
    """Return the flag, variable or line of the file that a setting has its value from."""
    flag, variable = "--" + name.replace("_", "-"), ENV_PREFIX + name.upper()
    if any(argument.partition("=")[0] == flag for argument in arguments):
        return flag
    if os.environ.get(variable):  # noqa: TID251  the one reader
        return variable
    return f"settings file {path}: {name}" if name in values else flag


def _config_path(arguments: Sequence[str]) -> Path | None:
    for position, argument in enumerate(arguments):
        if argument == _CONFIG_FLAG and position + 1 < len(arguments):
            return Path(arguments[position + 1])
        if argument.startswith(_CONFIG_FLAG + "="):
            return Path(argument.partition("=")[2])
    named = os.environ.get(ENV_PREFIX + "CONFIG", "")  # noqa: TID251  the one reader
    return Path(named) if named else None


def _all_names() -> set[str]:
    kinds: tuple[type[ProcessSettings], ...] = (
        WriterSettings, ReaderSettings, IndexerSettings, ServeSettings,
    )  # fmt: skip
    return {name for kind in kinds for name in kind.model_fields}


def _complete_help(source: CliSettingsSource[Any], kind: type[ProcessSettings]) -> None:
    """Add its environment variable to each flag's help, and write sizes as they are typed."""
    for action in source.root_parser._actions:
        field = kind.model_fields.get(action.dest)
        if field is None or not action.help:
            continue
        if isinstance(field.default, ByteSize):
            action.metavar = "SIZE"
            shown = f"(default: {size_text(field.default)})"
            action.help = action.help.replace(f"(default: {int(field.default)})", shown)
        action.help += f" [{ENV_PREFIX}{action.dest.upper()}]"
    source.root_parser.epilog = (
        "A SIZE is bytes, for instance 64MiB. Flags win over variables, variables over the file."
        " All settings, and exit codes: docs/operations.md."
    )


def size_text(size: int) -> str:
    """Return bytes as they are typed: in the largest unit that divides them."""
    unit, factor = next((u for u in UNITS if size % u[1] == 0), ("", 1))
    return f"{size // factor}{unit}"


def _exit(prog: str, problem: str) -> NoReturn:
    sys.stderr.write(f"{prog}: {problem}" + "\n")
    raise SystemExit(EXIT_USAGE)

"""Settings that every process takes, and where settings come from."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import ByteSize, Field, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from penstock.addresses import address_problem, is_loopback

ENV_PREFIX: Final = "PENSTOCK_"


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
        defer_build=True,  # each process reads one of these classes
    )
    toml_file: ClassVar[Path | None] = None  # the file that --config names

    config: Path | None = Field(None, description="TOML file with any of these settings.")
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
        description="Open connections of a port; above it, or above its part of half the files that the process may "
        "have open, none is taken.",
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


class DirectorySettings(ProcessSettings):
    """What a process over a store directory takes."""

    store: Path = Field(description="Store directory; the writer makes it if it is missing.")


class ListenSettings(ProcessSettings):
    """What a process with one address takes."""

    listen: str = Field(description="HOST:PORT to serve on; port 0 takes a free one.")

    supervised: bool = Field(False, description="Stop when the parent process ends.")

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        return check_address(value)


def check_address(value: str) -> str:
    """Return ``HOST:PORT`` to listen on as it is. Raises ValueError with what to change."""
    if fix := address_problem(value, port_min=0):
        raise ValueError(f"{value!r} is not HOST:PORT; {fix}")
    return value


def is_open_to_network(listen: str) -> bool:
    """Whether other machines reach an address that is listened on."""
    return not is_loopback(listen)

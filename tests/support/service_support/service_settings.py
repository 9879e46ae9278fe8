"""Settings of services in tests: small files, a free port, quiet logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from services.config.settings import (
    GatewaySettings,
    IndexerSettings,
    ReaderSettings,
    WriterSettings,
)
from services.testing import SMALL_FILES as SMALL_FILES

_COMMON: dict[str, Any] = {"listen": "127.0.0.1:0", "drain_grace_seconds": 2.0}


def writer_settings(store: Path, **changes: Any) -> WriterSettings:
    return WriterSettings(**{"store": store, **_COMMON, **SMALL_FILES, **changes})


def reader_settings(store: Path, **changes: Any) -> ReaderSettings:
    return ReaderSettings(**{"store": store, **_COMMON, **changes})


def indexer_settings(store: Path, **changes: Any) -> IndexerSettings:
    return IndexerSettings(**{"store": store, **_COMMON, **changes})


def gateway_settings(**changes: Any) -> GatewaySettings:
    return GatewaySettings(**{**_COMMON, **changes})

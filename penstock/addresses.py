"""Where the services are when nobody says otherwise: one place for those who serve and who call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Service = Literal["writer", "reader", "indexer"]
ALL_SERVICES: Final[tuple[Service, ...]] = ("writer", "reader", "indexer")

DEFAULT_WRITER: Final = "127.0.0.1:5801"
DEFAULT_READER: Final = "127.0.0.1:5802"
DEFAULT_INDEXER: Final = "127.0.0.1:5803"


@dataclass(frozen=True, slots=True)
class Addresses:
    """``host:port`` of each service."""

    writer: str = DEFAULT_WRITER
    reader: str = DEFAULT_READER
    indexer: str = DEFAULT_INDEXER

    def of(self, service: Service) -> str:
        """Return the address of one service."""
        return {"writer": self.writer, "reader": self.reader, "indexer": self.indexer}[service]

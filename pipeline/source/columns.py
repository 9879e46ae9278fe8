"""The wanted columns of a read: light, so that planning a read loads no kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pipeline.source.schemas import CORRUPT
from storage.kernels.columns import CHECK_BODY_CRC, CHECK_PROPERTY_CRC

if TYPE_CHECKING:
    from pipeline.source.options import ReadOptions

BODY_COLUMNS: Final = frozenset(("body", "value"))


@dataclass(frozen=True)
class Columns:
    """The wanted columns: their names and the Arrow schema that a batch of them must have."""

    names: tuple[str, ...]
    schema: Any

    @property
    def bodies(self) -> bool:
        """Whether a body is wanted."""
        return bool(BODY_COLUMNS.intersection(self.names))

    def checks(self, options: ReadOptions) -> int:
        """Return the checksums to verify: as asked for, else all where bodies or reasons are wanted."""
        wanted = self.bodies or CORRUPT in self.names
        if options.verify is not None:
            wanted = options.verify
        return CHECK_BODY_CRC | CHECK_PROPERTY_CRC if wanted else 0

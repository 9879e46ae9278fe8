"""Tag expressions, as subscribers write them."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidMessage
from storage.format.properties import java_hash

BLANKS: Final = "".join(map(chr, range(0x21)))  # what Java trims: no other white space


class TagFilter:
    """A tag expression: ``""`` or ``*`` for all, else tags joined by ``||``.

    Raises InvalidMessage for one of separators alone.
    """

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self.matches_all = expression in ("", "*")
        tags: list[str] = []
        if not self.matches_all:
            parts = (part.strip(BLANKS) for part in expression.split("||"))
            tags = [tag for tag in parts if tag]
            if not expression.replace("||", ""):
                raise InvalidMessage("tag_expression", f"no tag in {expression!r}; use * for all")
        self.tags = tuple(dict.fromkeys(tags))
        self.codes: npt.NDArray[np.int64] = np.array(
            sorted({java_hash(tag) for tag in self.tags}), np.int64
        )
        encoded = [tag.encode() for tag in self.tags]
        self.texts: npt.NDArray[np.uint8] = np.frombuffer(b"".join(encoded), np.uint8)
        self.text_ends: npt.NDArray[np.int64] = np.cumsum([len(text) for text in encoded]).astype(
            np.int64
        )


MATCH_ALL: Final = TagFilter("")
KEPT_MAX: Final = 256


class TagFilters:
    """Filters by their expressions, the last ones kept. Safe to use from several threads."""

    def __init__(self) -> None:
        self._kept = {"": MATCH_ALL}

    def get(self, expression: str) -> TagFilter:
        """Return the filter of an expression."""
        tag_filter = self._kept.get(expression)
        if tag_filter is None:
            tag_filter = TagFilter(expression)
            if len(self._kept) >= KEPT_MAX:
                self._kept = {"": MATCH_ALL}
            self._kept[expression] = tag_filter
        return tag_filter

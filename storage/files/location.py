"""Where a store lies: a directory of this machine, or a URL that fsspec opens."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from storage.files.filesystem import FileSystem
from storage.files.url_filesystem import ROOT, UrlFileSystem

if TYPE_CHECKING:
    from storage.files.protocol import ReadFileSystem

LOCAL_SCHEME: Final = "file://"


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The text by which a store is known, and what it takes to open it.

    ``text`` is a path, or a URL with a scheme other than ``file``. ``options`` of a URL go to fsspec;
    they may hold secrets and are in no text of it. Equal where the text is.
    """

    text: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls, store: StoreLocation | Path | str, options: Mapping[str, Any] | None = None
    ) -> StoreLocation:
        """Return where a store lies by how it is written: with a scheme or not."""
        if isinstance(store, StoreLocation):
            return store
        text = str(store).removeprefix(LOCAL_SCHEME)
        return cls(text if "://" in text else str(Path(text)), options or {})

    def __str__(self) -> str:
        return self.text

    @property
    def is_url(self) -> bool:
        """Whether fsspec opens it."""
        return "://" in self.text

    @property
    def name(self) -> str:
        """The last part of the text; of a directory, the name that it really has."""
        if self.is_url:
            return self.text.rstrip("/").rpartition("/")[2]
        return Path(self.text).resolve().name

    @property
    def root(self) -> Path:
        """The store's directory in its file system."""
        return ROOT if self.is_url else Path(self.text)

    def filesystem(self) -> ReadFileSystem:
        """Return the file system that reads it; one for each call, with a listing of its own."""
        return UrlFileSystem(self.text, self.options) if self.is_url else FileSystem()

    def matches(self) -> list[StoreLocation]:
        """Return the places that the text matches as a pattern, sorted. Raises NotAStore."""
        if self.is_url:
            found = UrlFileSystem(self.text, self.options).matches()
        else:
            found = sorted(glob.glob(self.text))  # noqa: PTH207  Path.glob takes no absolute pattern
        return [StoreLocation(text, self.options) for text in found]

"""A file system that is full where a test says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from storage.errors import StoreFull
from storage.files.filesystem import FileSystem


class FullableFileSystem(FileSystem):
    """Creates no file whose path contains ``full``, if that is given."""

    full = ""

    def create(self, path: Path, *args: Any, **options: Any) -> Any:
        if self.full and self.full in str(path):
            raise StoreFull(f"no space left for {path}")
        return super().create(path, *args, **options)


def full(*_: object, **__: object) -> Any:
    """Stand for what finds no space."""
    raise StoreFull("no space left")

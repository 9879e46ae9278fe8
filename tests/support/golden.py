"""Stores that a RocketMQ 5.3.3 broker wrote, unpacked; see tests/golden/README.md."""

from __future__ import annotations

import json
import lzma
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[1] / "golden"

CLEAN = (
    "basic", "defaults", "features", "slow", "pool", "syncflush", "propcrc", "ext", "lmq", "cleaned",
    "killed-recovered",
)  # fmt: skip
"""Stores whose broker stopped in order."""

KILLED = ("killed", "poolkilled", "syncflushkilled")
"""Stores whose broker was killed; dump and answers are after its own recovery of a copy."""

STORES = CLEAN + KILLED
ASKED = tuple(name for name in STORES if name != "killed-recovered")
"""Stores with questions and answers."""

TORN = (
    "as-left", "torn-last-record", "cut-length", "zeroed-tail", "flip-last-body",
    "flip-last-properties", "flip-last-queue-offset", "flip-last-magic", "flip-near-end-body",
    "flip-early-body", "flip-early-magic", "stale-tail", "no-checkpoint", "garbage-checkpoint",
    "short-checkpoint", "future-checkpoint", "no-consumequeue", "no-consumequeue-no-checkpoint",
    "no-index", "no-abort", "no-abort-torn", "no-abort-no-consumequeue", "only-commitlog",
    "only-commitlog-and-config", "only-commitlog-abort", "short-consumequeue-file",
    "empty-consumequeue-file", "zeroed-consumequeue-file", "lost-consumequeue-file",
    "lost-first-consumequeue-file", "torn-consumequeue-unit", "short-commitlog-file",
    "empty-commitlog-file", "lost-middle-commitlog-file", "no-config", "garbage-offsets",
)  # fmt: skip
"""Damaged variants of the store ``torn``; their dumps are large, so collecting tests reads none."""


@cache
def _unpacked() -> Path:
    directory = tempfile.TemporaryDirectory(prefix="penstock-golden-")
    _unpacked.directory = directory  # type: ignore[attr-defined]  # removed when the process ends
    return Path(directory.name)


@cache
def golden_store(name: str) -> Path:
    """Directory of the store as the broker left it; shared by all tests, so never write to it."""
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        if hasattr(tarfile, "data_filter"):  # not yet in Python 3.11.2, which Debian 12 has
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(_unpacked())
    return _unpacked() / name


def golden_copy(name: str, into: Path) -> Path:
    """A copy of the store (``torn/VARIANT`` too) for tests that write; sparse files stay sparse."""
    source = golden_store(name.partition("/")[0])
    if "/" in name:
        source /= name.partition("/")[2]
    target = into / name.replace("/", "-")
    sparse_copy(source, target)
    return target


def sparse_copy(source: Path, target: Path) -> None:
    """Copy a directory; holes of files stay holes."""
    for path in [source, *sorted(source.rglob("*"))]:
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True)
        else:
            _copy_sparse(path, copy)


def _copy_sparse(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        size = source.stat().st_size
        writer.truncate(size)
        if source.stat().st_blocks * 512 >= size:
            shutil.copyfileobj(reader, writer)
            return
        for begin, end in data_ranges(reader.fileno(), size):
            reader.seek(begin)
            writer.seek(begin)
            writer.write(reader.read(end - begin))


def data_ranges(descriptor: int, size: int) -> list[tuple[int, int]]:
    """Ranges of a sparse file that are not holes."""
    import os

    ranges = []
    position = 0
    while position < size:
        try:
            begin = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError:
            break
        position = os.lseek(descriptor, begin, os.SEEK_HOLE)
        ranges.append((begin, position))
    return ranges


def golden_spec(name: str) -> dict[str, Any]:
    """How the store was made; ``["store"]`` is the broker's configuration."""
    return json.loads((GOLDEN / f"{name}.spec.json").read_text())


@cache
def golden_dump(name: str) -> list[dict[str, Any]]:
    """The broker's dump, one dict a line."""
    with lzma.open(GOLDEN / f"{name}.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def torn_dumps() -> dict[str, list[dict[str, Any]]]:
    """Dump of each damaged variant, by its name; of refused ones there is a ``variant`` line alone."""
    dumps: dict[str, list[dict[str, Any]]] = {}
    for line in golden_dump("torn"):
        if line["type"] == "variant":
            dumps[line["name"]] = []
            current = dumps[line["name"]]
        current.append(line)
    return dumps


def golden_questions(name: str) -> list[dict[str, Any]]:
    """Questions that the broker was asked about the store."""
    return json.loads((GOLDEN / f"{name}.questions.json").read_text())


def golden_answers(name: str) -> list[dict[str, Any]]:
    """The broker's answers, in the order of the questions."""
    return json.loads((GOLDEN / f"{name}.answers.json").read_text())


def golden_acked(name: str) -> list[dict[str, Any]]:
    """What was acknowledged to the producer."""
    with lzma.open(GOLDEN / f"{name}.acked.jsonl.xz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]

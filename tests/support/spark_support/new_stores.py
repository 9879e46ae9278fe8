"""What stores hold that jobs wrote, and whether all of it is in order."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from flips import wrong

from storage import MessageStore
from storage.format.config_json import decode_config, encode_config
from storage.offline import dump

Line = dict[str, Any]
PIECE = 1 << 14  # several pieces of each small store
MOVED = {"commitLogOffset", "queueOffset", "offsetMsgId", "recordCrc32", "servedAs"}


def files_of(directory: Path) -> dict[str, bytes]:
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def messages_of(store: Path) -> list[Line]:
    found = [line for line in dump(store) if line["type"] in ("message", "damaged")]
    return sorted(found, key=lambda line: line["commitLogOffset"])


def content(line: Line) -> str:
    """All of a message but its place."""
    kept = {name: value for name, value in line.items() if name not in MOVED}
    kept["properties"] = {k: v for k, v in line["properties"].items() if k != "__CRC32#"}
    return json.dumps(kept, sort_keys=True)


def by_queue(lines: list[Line]) -> dict[tuple[str, int], list[Line]]:
    found = defaultdict(list)
    for line in lines:
        found[line["topic"], line["queueId"]].append(line)
    return {
        key: sorted(group, key=lambda line: line["queueOffset"]) for key, group in found.items()
    }


def assert_in_order(store: Path) -> None:
    """Our doctor finds nothing, and our next start looks at nothing: all of it is known durable."""
    assert wrong(store) == []
    with MessageStore.open(store) as opened:
        assert opened.writer.recovered.start.name == "CLEAN"
        assert opened.writer.recovered.units_written == 0


def set_offsets(store: Path, offsets: dict[str, dict[int, int]]) -> None:
    path = store / "config" / "consumerOffset.json"
    path.write_bytes(encode_config({"offsetTable": offsets}))


def offsets_of(store: Path) -> dict[str, dict[int, int]]:
    path = store / "config" / "consumerOffset.json"
    return decode_config(path.read_bytes())["offsetTable"] if path.exists() else {}

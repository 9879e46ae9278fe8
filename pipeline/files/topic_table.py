"""The names in a store's topic table."""

from __future__ import annotations

from pipeline.files.places import Place
from storage.format.config_json import decode_config


def topic_names(root: Place) -> set[str]:
    """Return the topics that the table, or its backup, names; none if neither can be read."""
    for name in ("topics.json", "topics.json.bak"):
        try:
            document = decode_config((root / "config" / name).read_bytes())
            return set(document["topicConfigTable"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            continue
    return set()

"""What ``config/penstock.json`` says of a store of ours; nothing of any other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from storage.view.incarnations import Incarnations

if TYPE_CHECKING:
    from pipeline.files.store_files import StoreFiles


def store_settings(store: StoreFiles) -> dict[str, Any]:
    """Return the document, an empty one where there is none that can be read."""
    try:
        document = json.loads((store.root / "config" / "penstock.json").read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def incarnations(store: StoreFiles) -> Incarnations | None:
    """Return the incarnations of the store's topics as they are now; None if no writer notes them."""
    document = store_settings(store)
    if not document:
        return None
    return Incarnations(deleted_topics(store), str(document.get("deletingTopic", "")))


def deleted_topics(store: StoreFiles) -> dict[str, int]:
    """Return, for each topic that was deleted, the commit offset from which its records count again."""
    try:
        return {str(k): int(v) for k, v in store_settings(store).get("deletedTopics", {}).items()}
    except (AttributeError, TypeError, ValueError):
        return {}

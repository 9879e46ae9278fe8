"""Stores and topics as an export's manifest knows them: whatever a directory is called by now."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.errors import DataLost, InvalidOption, PipelineError
from pipeline.jobs.export.manifest import Manifest, QueueOfStore
from pipeline.jobs.export.targets import is_local
from storage.view.incarnations import Incarnations
from storage.view.store_plan import Queue, StorePlan
from storage.view.store_view import StoreView

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportedStore:
    """A store of this run, as it is now."""

    plan: StorePlan
    store_id: str | None

    @classmethod
    def open(cls, store: StoreView) -> ExportedStore:
        """Look at a store as it is now."""
        return cls(StorePlan(store), store.settings.store_id.hex() or None)

    @property
    def path(self) -> str:
        """Where it is now."""
        return str(self.plan.store)

    @property
    def name(self) -> str:
        """What a manifest knows it by: its id, or its path if it has none."""
        return self.store_id or self.path

    @property
    def incarnations(self) -> Incarnations:
        """Those of its topics, none for a broker's store."""
        return self.plan.incarnations or Incarnations()

    def key(self, queue: Queue) -> QueueOfStore:
        """Return what a manifest knows a queue by."""
        incarnation = self.incarnations.of(queue.topic)
        return QueueOfStore(self.name, queue.topic, incarnation, queue.queue_id)


def match_stores(stores: Sequence[ExportedStore], manifest: Manifest) -> None:
    """Match stores with those that were exported before.

    Raises InvalidOption for another store at the path of one that was exported, and PipelineError for
    a store and its copy: they have one id, and may have gone apart since.
    """
    seen: dict[str, ExportedStore] = {}
    for store in stores:
        manifest.match(store.path, store.store_id)
        if store.name in seen:
            raise PipelineError(
                f"{seen[store.name].path} and {store.path} are one store, or one is a copy of the"
                f" other (id {store.name}): name one of them"
            )
        seen[store.name] = store
        for path in manifest.paths_of(store.name):
            if is_local(path) and path != store.path and _is_at(Path(path), store):
                raise InvalidOption(
                    "store",
                    f"{store.path} is a copy of {path}, or the other way round, which was exported to"
                    f" {manifest.target} before; go on with that, or export to a new directory",
                )


def _is_at(path: Path, store: ExportedStore) -> bool:
    """Return whether a store with the same id is at ``path``, in another directory."""
    if StoreView(path).settings.store_id.hex() != (store.store_id or ""):
        return False
    there = store.plan.store
    return there.location.is_url or not path.samefile(there.paths.root)


def check_incarnations(
    keys: Iterable[QueueOfStore], manifest: Manifest, *, fail_on_data_loss: bool
) -> None:
    """Raise DataLost for a topic that was created again since it was exported, or warn."""
    for key in {key[:2]: key for key in keys}.values():
        if not manifest.is_made_again(key):
            continue
        paths = ", ".join(manifest.paths_of(key.store)) or key.store
        problem = (
            f"topic {key.topic!r} of {paths} was deleted and created again since it was exported; what it"
            " had that was not exported is gone"
        )
        if fail_on_data_loss:
            raise DataLost(
                f"{problem}. Set fail_on_data_loss=False (--no-fail-on-data-loss) to export the new"
                " topic from its beginning"
            )
        LOG.warning("%s; the new topic is exported from its beginning", problem)

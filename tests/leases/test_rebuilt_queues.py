"""Receives beside a running writer that rebuilds a queue."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import small_config
from lease_store import TOPIC, LeaseStore, bodies, put

from storage import MessageStore
from storage.errors import QueueRebuilding
from storage.testing import SteppedWorkers


def test_a_receive_goes_on_with_the_other_queues_while_one_is_rebuilt(tmp_path: Path) -> None:
    put(tmp_path, 8, queues=2)
    workers = SteppedWorkers()
    with MessageStore.open(tmp_path, small_config(), workers=workers):
        path = tmp_path / "consumequeue" / TOPIC / "0" / f"{0:020d}"
        with path.open("r+b") as file:
            file.write(b"\x10")
        store = LeaseStore(tmp_path)
        assert bodies(store.receive(8)) == [1, 3, 5, 7]
        with pytest.raises(QueueRebuilding):
            store.receive(8)
        workers.step("rebuild")
        assert bodies(store.receive(8)) == [0, 2, 4, 6]
        store.leases.close()
        store.reader.close()

"""The files of a store that services serve: nobody but their user may open them, unless a setting says so."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from real_processes import supervisor, until

from penstock import Client

SHARED_MEMORY = Path("/dev/shm")


def modes_below(*roots: Path) -> dict[str, str]:
    """The modes that occur, of directories and of files, with an example of each."""
    found = {}
    for root in roots:
        for path in (root, *root.rglob("*")):
            status = path.stat()
            kind = "directory" if stat.S_ISDIR(status.st_mode) else "file"
            found[f"{kind} {stat.S_IMODE(status.st_mode):o}"] = str(path)
    return found


@pytest.mark.parametrize(
    ("flags", "expected"),
    [([], {"file 600", "directory 700"}), (["--shared-files"], {"file 644", "directory 755"})],
)
def test_what_services_make_in_a_store_and_in_shared_memory(
    tmp_path: Path, flags: list[str], expected: set[str]
) -> None:
    store = tmp_path / "store"
    names = "writer", "reader", "indexer"
    with ExitStack() as stack:
        pool = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=SHARED_MEMORY)))
        before = os.umask(0o022)
        try:
            running = stack.enter_context(
                supervisor(
                    store,
                    "--metrics-listen=none",
                    "--transient-pool",
                    f"--transient-pool-directory={pool}",
                    *flags,
                )
            )
        finally:
            os.umask(before)
        addresses = {name: running.wait_serving(name)[0] for name in names}
        with Client(**addresses) as client:
            client.create_topic("orders", queues=1)
            client.produce("orders", b"x", keys=["k"])
            assert client.receive("orders", group="group").records
            client.commit_offset("other", "orders", 0, 1)
        until(lambda: any(store.glob("index/*")))
        found = modes_below(store, *pool.iterdir())
        running.stop()
        found |= modes_below(store)
    pool_files = {
        "file 600"
    }  # they hold what is not in the store yet, and no other process opens them
    assert found.keys() == expected | pool_files, found

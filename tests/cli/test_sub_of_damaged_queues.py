"""What `sub` prints of a queue whose units were damaged while nothing ran on the store."""

from __future__ import annotations

from pathlib import Path

from run_cli import json_lines, penstock, small_services
from unit_damage import COUNT, flip, make_whole, queue_files


def test_one_flipped_bit_hides_neither_what_was_stored_nor_what_comes(tmp_path: Path) -> None:
    """A high bit of a commit offset, and a queue file that is gone: every message comes, and the next one."""
    store = tmp_path / "store"
    whole = make_whole(store)
    flip(store, 100, 1)
    with small_services(tmp_path) as services:
        flags = [part for n, a in services.addresses.items() for part in (f"--{n}", a)]
        before = json_lines(penstock(*flags, "sub", "t", "--json"))
        queue_files(store)[1].unlink()  # from under the running services
        stored = penstock(*flags, "pub", "t", "next", "--queue", 1, "--json")
        after = json_lines(penstock(*flags, "sub", "t", "--json"))
    assert [line["body"].encode() for line in before] == whole.bodies
    assert json_lines(stored)[0]["queue_offset"] == COUNT
    assert [line["body"].encode() for line in after] == [*whole.bodies, b"next"]

"""How much memory a process may use, by the machine and by control groups of both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.memory import limit_bytes

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/\n", {}, MACHINE),
        ("0::/\n", {"memory.max": "max\n"}, MACHINE),
        ("0::/\n", {"memory.max": "4096\n"}, 4096),
        ("0::/a/b\n", {"a/memory.max": "8192\n", "a/b/memory.max": "max\n"}, 8192),
        ("0::/a/b\n", {"a/memory.max": "8192\n", "a/b/memory.max": "4096\n"}, 4096),
        ("0::/a\n", {"b/memory.max": "4096\n"}, MACHINE),
        ("3:cpu:/x\n2:memory:/d/e\n", {"memory/d/memory.limit_in_bytes": "4096\n"}, 4096),
        ("2:cpu,memory:/gone\n", {"memory/memory.limit_in_bytes": "4096\n"}, 4096),
        ("2:memory:/\n", {"memory/memory.limit_in_bytes": f"{1 << 63}\n"}, MACHINE),
        ("3:cpu:/x\n", {"memory/memory.limit_in_bytes": "4096\n"}, MACHINE),
    ],
)
def test_the_smallest_limit_counts(
    tmp_path: Path, own: str, limits: dict[str, str], expected: int
) -> None:
    groups = tmp_path / "groups"
    for name, text in limits.items():
        path = groups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    own_groups = tmp_path / "own"
    own_groups.write_text(own)
    assert limit_bytes(groups, own_groups) == expected


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert limit_bytes(tmp_path, tmp_path / "none") == MACHINE

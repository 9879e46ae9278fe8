"""Two services, or all three, are killed at once under load, in all modes; some while they start.

``KILLS_TOGETHER=500`` kills so often; without it once, in one mode.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from service_faults import MODES, kill_together

KILLS = int(os.environ.get("KILLS_TOGETHER", "0"))
KILLS_OF_A_LIFE = 10  # then a new store, so that judging stays short


@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("mode", MODES if KILLS else ("async, pool",))
def test_what_was_acknowledged_or_seen_outlives_kills_of_several_services(
    mode: str, memory_path: Path, fault_report: list[str]
) -> None:
    dice = random.Random(mode)
    left = KILLS // len(MODES) or 1
    acknowledged = 0
    killed: Counter[str] = Counter()
    try:
        while left > 0:
            kills = min(left, KILLS_OF_A_LIFE)
            left -= kills
            which, count = kill_together(memory_path / str(left), mode, kills, dice)
            killed += which
            acknowledged += count
    finally:
        fault_report.append(
            f"kills together, {mode}: {killed.total()}, {dict(killed)}; {acknowledged} acknowledged,"
            " nothing lost in these"
        )

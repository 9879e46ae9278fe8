"""The bed can fail: each planted defect is found by its check, which finds nothing without it."""

from __future__ import annotations

from pathlib import Path

import fault_checks
import pytest
from fault_ledger import FaultFound
from planted_defects import DEFECTS, PlantedDefect

CHECKS = list(
    dict.fromkeys(
        [
            *(defect.check for defect in DEFECTS),
            fault_checks.a_torn_record_is_nothing,
        ]
    )
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_store_as_it_is_passes(memory_path: Path, check: fault_checks.Check) -> None:
    check(memory_path / "machine")


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_planted_defect_is_found(
    memory_path: Path, defect: PlantedDefect, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        defect.plant(patch)
        with pytest.raises(FaultFound):
            defect.check(memory_path / "machine")


def test_there_are_many_and_their_names_are_their_own() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 30

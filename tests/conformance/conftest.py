"""Every test here asks a real broker; where none can be asked it is skipped, or fails if the run says it must."""

from __future__ import annotations

import pytest
from oracle import oracle_problem, oracle_required


@pytest.fixture(autouse=True)
def _oracle() -> None:
    problem = oracle_problem()
    if problem and oracle_required():
        pytest.fail(problem)
    if problem:
        pytest.skip(problem)

"""The types that users see."""

from __future__ import annotations

from pathlib import Path

from mypy import api

EXAMPLE = Path(__file__).with_name("typing_example.py")


def test_a_user_s_code_passes_a_strict_type_check() -> None:
    """Both clients, every result type, callbacks and exceptions."""
    output, errors, code = api.run(["--strict", "--no-error-summary", str(EXAMPLE)])

    assert code == 0, output + errors

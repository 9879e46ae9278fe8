"""The seconds in which a broker's timers count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SECOND_MS: Final = 1_000

Milliseconds = TypeVar("Milliseconds", "int", "npt.NDArray[np.int64]")


def out_ms(deliver_ms: Milliseconds) -> Milliseconds:
    """Return the last whole second before a time, in milliseconds: what a broker's timer knows of it."""
    return (deliver_ms - 1) // SECOND_MS * SECOND_MS

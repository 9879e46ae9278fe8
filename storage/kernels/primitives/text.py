"""Texts that kernels look for and write."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def text_bytes(text: str) -> npt.NDArray[np.uint8]:
    """Return a text's UTF-8 as an array, for a constant of a kernel."""
    return np.frombuffer(text.encode(), np.uint8)

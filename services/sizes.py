"""Numbers of bytes as people read them; ``services.config.values`` has them as people type them."""

from __future__ import annotations


def size_text(size: float) -> str:
    """Return bytes in a binary unit of which there is one."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1_024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1_024
    return f"{size:,.1f} PiB"

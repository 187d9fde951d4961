"""Numbers of bytes as people say them."""

from __future__ import annotations


def in_words(size_bytes: float) -> str:
    """1.2 GiB; below a GiB without decimals."""
    for unit, size in (("TiB", 1024**4), ("GiB", 1024**3)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}"
    if size_bytes >= 1024**2:
        return f"{size_bytes / 1024**2:.0f} MiB"
    return f"{size_bytes / 1024:.0f} KiB"

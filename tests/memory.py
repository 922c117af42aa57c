"""How much memory this process held at most, in KiB.

``getrusage`` will not do: a process begins with the peak of the one that started it, so growth below that is not seen.
"""

from __future__ import annotations

from pathlib import Path


def forget_peak() -> None:
    """Start measuring from what is held now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak() -> int:
    """Return the largest resident size since the start, or since :func:`forget_peak`."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])

"""The machine that a benchmark ran on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

__all__ = ["machine", "words"]

_SHOWN = ("numpy", "numba", "pyarrow", "duckdb", "scipy")


def machine() -> dict[str, Any]:
    """Return what speed depends on: processor, cores, memory, versions, and how busy it is already."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "python": platform.python_version(),
        "processor": _processor(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 2**30),
        "load": round(os.getloadavg()[0], 1),
        "versions": {name: version(name) for name in _SHOWN},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def words(here: dict[str, Any]) -> str:
    """Return the machine as a phrase; results from before some of it was kept lack that part."""
    parts = [f"{here['cores']} cores of {here['processor']}"]
    if "memory_gb" in here:
        parts.append(f"{here['memory_gb']} GB")
    parts += [here["system"], f"Python {here['python']}"]
    parts += [f"{name} {number}" for name, number in here.get("versions", {}).items()]
    busy = f"; {here['load']} processes ran when it began" if here.get("load", 0) >= 1 else ""
    return ", ".join(parts) + busy

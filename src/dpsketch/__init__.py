"""Differentially private sketches: count what is sensitive without remembering it.

Names are loaded when they are first used, so that ``import dpsketch`` and the command line start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsketch.errors import DpsketchError as DpsketchError
    from dpsketch.estimates import Estimates as Estimates
    from dpsketch.kinds import load as load
    from dpsketch.kinds import load_sensitive as load_sensitive
    from dpsketch.ledger import Ledger as Ledger
    from dpsketch.privacy import Guarantee as Guarantee
    from dpsketch.privacy import Unit as Unit
    from dpsketch.privacy import per_record as per_record
    from dpsketch.privacy import per_user as per_user
    from dpsketch.sketches.countsketch import CountSketch as CountSketch
    from dpsketch.sketches.countsketch import PanPrivateCountSketch as PanPrivateCountSketch
    from dpsketch.sketches.countsketch import PrivateCountSketch as PrivateCountSketch

__version__ = "0.1.0"

_HOMES = {
    "CountSketch": "dpsketch.sketches.countsketch",
    "DpsketchError": "dpsketch.errors",
    "Estimates": "dpsketch.estimates",
    "Guarantee": "dpsketch.privacy",
    "Ledger": "dpsketch.ledger",
    "PanPrivateCountSketch": "dpsketch.sketches.countsketch",
    "PrivateCountSketch": "dpsketch.sketches.countsketch",
    "Unit": "dpsketch.privacy",
    "load": "dpsketch.kinds",
    "load_sensitive": "dpsketch.kinds",
    "per_record": "dpsketch.privacy",
    "per_user": "dpsketch.privacy",
}

__all__ = [
    "CountSketch",
    "DpsketchError",
    "Estimates",
    "Guarantee",
    "Ledger",
    "PanPrivateCountSketch",
    "PrivateCountSketch",
    "Unit",
    "load",
    "load_sensitive",
    "per_record",
    "per_user",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'dpsketch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

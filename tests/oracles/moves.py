"""Whether a unit may contribute this to a table: the check of ``core/contributions.py``, written plainly."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsketch.core.move import Move

__all__ = ["admits"]


def admits(move: Move, contribution: Any) -> bool:
    """Say whether one unit may contribute this, in exact integers."""
    amounts = [int(amount) for amount in np.asarray(contribution).ravel() if amount]
    return (
        sum(map(abs, amounts)) <= move.l1
        and sum(amount**2 for amount in amounts) <= move.squared
        and len(amounts) <= move.cells
        and max(map(abs, amounts), default=0) <= move.most
        and (move.signed or min(amounts, default=0) >= 0)
    )

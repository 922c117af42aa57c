"""The most frequent keys of any window of days: a stream of trees of sketches."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch.sketches.continual.adapters import Adapter
from dpsketch.sketches.continual.portions import Portion, Window
from dpsketch.sketches.heavy.private import PrivateHeavyHitters
from dpsketch.sketches.heavy.spec import DENSE, INNER, LEAF, LEAF_SHARE, TOTAL, TOTAL_SHARE, HeavyHittersSpec, TreeNoise

__all__ = ["DailyHeavyHitters"]


class DailyHeavyHitters(Adapter):
    """A tree of prefixes in a stream.

    Privacy
    -------
    A record of weight w adds at most that to the total, to one cell of the first level, and to one cell of each row of
    each table. A user has at most m keys of w each: the total moves by mw, m cells of the first level by w each, as a
    prefix counts once a user, and each table by the norm to which a user's own is clipped, in m cells a row.
    """

    kind: ClassVar[str] = "heavy"

    def portions(self) -> tuple[Portion, ...]:
        """Return the parts of the tree, and how far one unit, added on one day, moves them."""
        spec: HeavyHittersSpec = self.spec
        weight, keys = spec.weight_grid.max_units, spec.unit.max_keys
        clip = spec.leaf.clip
        squared = spec.rows * weight**2 if clip is None else clip.squared
        share = (1 - LEAF_SHARE - TOTAL_SHARE) / spec.tables
        cells, inner = spec.rows * keys, spec.tables - 1
        found = [
            Portion(TOTAL, (1,), keys * weight, (keys * weight) ** 2, 1, TOTAL_SHARE),
            Portion(DENSE, (spec.space.dense_cells,), keys * weight, keys * weight**2, keys, share),
            Portion(LEAF, (1, spec.rows, spec.width), cells * weight, squared, cells, LEAF_SHARE, signed=True),
        ]
        if inner:
            shape = (inner, spec.rows, spec.width)
            found.append(
                Portion(
                    INNER, shape, inner * cells * weight, inner * squared, inner * cells, inner * share, signed=True
                )
            )
        return tuple(found)

    def counted(self, today: Any) -> dict[str, npt.NDArray[np.int64]]:
        """Return the exact tree of a day. Sensitive."""
        return {
            TOTAL: np.array([today._mass], np.int64),
            DENSE: today._dense,
            INNER: today._tables[:-1],
            LEAF: today._tables[-1:],
        }

    def release(self, window: Window) -> PrivateHeavyHitters:
        """Return the release of a window."""
        tables, laws = window.tables, window.laws
        above = [tables[INNER]] if INNER in tables else []
        noise = TreeNoise(laws[TOTAL], laws[DENSE], laws.get(INNER, laws[LEAF]), laws[LEAF])
        levels = np.concatenate([*above, tables[LEAF]])
        counters = tables[TOTAL], tables[DENSE], levels
        return PrivateHeavyHitters(self.spec, *counters, noise, guarantee=window.guarantee, charge=window.charge)

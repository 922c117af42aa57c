"""The table of mechanisms: everything that the library ships, and what it keeps as published."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dpsketch.audit import counts, densities, local, moments, published, quantiles, sparse, trees
from dpsketch.audit.flips import FLIPS, Flipped
from dpsketch.audit.grid import GRID, Grid
from dpsketch.audit.levels import LEVELS, Levelled
from dpsketch.audit.local import REPORTS, Reported
from dpsketch.audit.mechanism import Mechanism
from dpsketch.audit.names import NAMED, Named
from dpsketch.audit.ranked import RANKED, Ranked
from dpsketch.audit.rounds import ROUNDS, Rounds

__all__ = ["PUBLISHED", "ROWS", "SHIPPED", "Row"]

Row = Grid | Flipped | Named | Rounds | Ranked | Levelled | Reported

# Each takes ``noise``, the share of the noise due that is really drawn: 1, except where the audit itself is tested.
SHIPPED: dict[str, Callable[..., Mechanism]] = {
    "counts-gaussian": partial(counts.record, "gaussian"),
    "counts-laplace": partial(counts.record, "laplace"),
    "counts-rho": counts.record_rho,
    "counts-replace-gaussian": partial(counts.replaced, "gaussian"),
    "counts-replace-laplace": partial(counts.replaced, "laplace"),
    "counts-user": counts.user,
    "counts-user-laplace": counts.user_pure,
    "counts-local": counts.local_report,
    "count-min": counts.count_min,
    "pan-private-before": partial(counts.pan_private, "before"),
    "pan-private-after": partial(counts.pan_private, "after"),
    "continual-counts": counts.continual,
    "shares-alone": partial(counts.shares, "alone"),
    "shares-merged": partial(counts.shares, "merged"),
    "heavy-gaussian": partial(trees.heavy, "gaussian"),
    "heavy-laplace": partial(trees.heavy, "laplace"),
    "heavy-user": trees.heavy_user,
    "ranges-gaussian": partial(trees.ranges, "gaussian"),
    "ranges-laplace": partial(trees.ranges, "laplace"),
    "quantiles": quantiles.median,
    "quantiles-replace": quantiles.median_replaced,
    "quantiles-user": quantiles.median_user,
    "sparse-alp": sparse.projection,
    "sparse-small": partial(sparse.threshold, "small"),
    "sparse-large": partial(sparse.threshold, "large"),
    "sparse-alone": partial(sparse.threshold, "alone"),
    "distinct": sparse.distinct,
    "distinct-mergeable": sparse.distinct_mergeable,
    "moment-0.5-approximate": partial(moments.moment, 0.5, 1e-6),
    "moment-1-pure": partial(moments.moment, 1.0, 0.0),
    "moment-profile": moments.profile,
    "density-gaussian": partial(densities.every_row, "gaussian"),
    "density-laplace": partial(densities.every_row, "laplace"),
    "density-one-row": densities.one_row,
    **{f"local-{name}": partial(local.protocol, name) for name in local.PROTOCOLS},
    **{f"svim-{phase}": partial(local.svim, phase) for phase in local.SVIM_PHASES},
}

PUBLISHED: dict[str, Callable[[], Mechanism]] = {
    "privsketch-as-published": published.privsketch,
    "race-as-published": published.race,
    "moments-as-published": published.moments,
}

# Kinds by unit, relation and pair of neighbours, where the law of what is drawn is known; several findings each.
ROWS: dict[str, Row] = {**GRID, **FLIPS, **NAMED, **ROUNDS, **RANKED, **LEVELS, **REPORTS}

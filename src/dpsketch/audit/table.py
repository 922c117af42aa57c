"""The table of mechanisms: everything that the library ships, and what it keeps as published."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dpsketch.audit import counts, densities, local, moments, published, quantiles, sparse, trees
from dpsketch.audit.flips import FLIPS
from dpsketch.audit.grid import GRID
from dpsketch.audit.levels import LEVELS
from dpsketch.audit.local import REPORTS
from dpsketch.audit.mechanism import Mechanism
from dpsketch.audit.names import NAMED
from dpsketch.audit.ranked import RANKED
from dpsketch.audit.rounds import ROUNDS
from dpsketch.audit.rows import Row

__all__ = ["BY_LAW", "PUBLISHED", "ROWS", "SHIPPED"]

# Each takes ``noise``, the share of the noise due that is really drawn: 1, except where the audit itself is tested.
SHIPPED: dict[str, Callable[..., Mechanism]] = {
    "counts-gaussian": partial(counts.record, "gaussian"),
    "counts-laplace": partial(counts.record, "laplace"),
    "counts-rho": counts.record_rho,
    "counts-replace-gaussian": partial(counts.replaced, "gaussian"),
    "counts-replace-laplace": partial(counts.replaced, "laplace"),
    "counts-user": counts.user,
    "counts-user-laplace": counts.user_pure,
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

# Sampling sees half of the noise where a law sees a fifth less: the row of the same mechanism that does.
BY_LAW: dict[str, str] = {
    "counts-gaussian": "table-counts-gaussian-record-add",
    "counts-laplace": "table-counts-laplace-record-add",
    "counts-rho": "table-counts-rho-gaussian-record-add",
    "counts-replace-gaussian": "table-counts-gaussian-record-replace",
    "counts-replace-laplace": "table-counts-laplace-record-replace",
    "counts-user": "table-counts-gaussian-user-add",
    "counts-user-laplace": "table-counts-laplace-user-add",
    "count-min": "table-count-min-gaussian-record-add",
    "pan-private-before": "table-pan-private-gaussian-record-add",
    "pan-private-after": "table-pan-private-after-gaussian-record-add",
    "continual-counts": "table-continual-recurrence-gaussian-record-add",
    "shares-alone": "table-shares-gaussian-record-add",
    "shares-merged": "table-shares-merged-gaussian-record-add",
    "heavy-gaussian": "table-heavy-gaussian-record-add",
    "heavy-laplace": "table-heavy-laplace-record-add",
    "heavy-user": "table-heavy-gaussian-user-add",
    "ranges-gaussian": "table-ranges-gaussian-record-add",
    "ranges-laplace": "table-ranges-laplace-record-add",
    "quantiles": "table-quantiles-median-record-add",
    "quantiles-replace": "table-quantiles-median-record-replace",
    "quantiles-user": "table-quantiles-median-user-add",
    "sparse-alp": "table-sparse-record-add",
    "sparse-small": "table-sparse-record-add",
    "sparse-large": "table-survivors-record-add",
    "sparse-alone": "table-survivors-record-add",
    "distinct": "table-distinct-laplace-user-add",
    "distinct-mergeable": "table-bitmap-record-add",
    "moment-0.5-approximate": "table-moment-0.5-record-add",
    "moment-1-pure": "table-moment-1-record-add",
    "moment-profile": "table-moment-1-record-add",
    "density-gaussian": "table-density-gaussian-record-add",
    "density-laplace": "table-density-laplace-record-add",
    "density-one-row": "table-density-one-row-laplace-record-add",
    **{f"local-{name}": f"table-local-{name}-user-replace" for name in local.PROTOCOLS},
    "svim-candidates": "table-local-pad-and-sample-user-replace",
    "svim-sizes": "table-local-optimal-local-hashing-user-replace",
    "svim-direct": "table-local-subset-direct-user-replace",
    "svim-hashed": "table-local-pad-and-sample-user-replace",
}

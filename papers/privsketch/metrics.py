"""How good estimated shares are: the three measures of the paper.

All take the estimated and the true share of every key of the domain, in the same order.

References
----------
Li et al., *PrivSketch* (DEXA 2023), section 4; the normalised cumulative rank is from Wang, Li and Jha (S&P 2018).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.errors import InvalidInput
from dpsketch.numbers import whole_number

__all__ = ["mean_squared_error", "normalised_cumulative_rank", "top_variance"]


def mean_squared_error(estimated: Any, true: Any) -> float:
    """Return the mean over the domain of (f̂ − f)².

    Examples
    --------
    >>> mean_squared_error([0.5, 0.1], [0.25, 0.1])
    0.03125
    """
    ours, truth = _pair(estimated, true)
    return float(np.mean((ours - truth) ** 2))


def top_variance(estimated: Any, true: Any, users: int, k: int) -> float:
    """Return the mean of (n·f̂ − n·f)² over the keys that are among the k largest both by estimate and in truth.

    It is NaN where there is none.

    Examples
    --------
    >>> round(top_variance([0.5, 0.1, 0.0], [0.4, 0.0, 0.1], users=100, k=2), 6)
    100.0
    """
    ours, truth = _pair(estimated, true)
    users, k = whole_number("users", users, low=1), whole_number("k", k, low=1, high=2**31)
    both = np.intersect1d(_top(ours, k), _top(truth, k))
    return float(np.mean((users * (ours[both] - truth[both])) ** 2)) if len(both) else float("nan")


def normalised_cumulative_rank(estimated: Any, true: Any, k: int) -> float:
    """Return the quality of the k keys found: the true key of rank i is worth k + 1 − i, over all that could be had.

    Examples
    --------
    >>> normalised_cumulative_rank([0.5, 0.1, 0.0], [0.4, 0.0, 0.1], k=2)
    0.6666666666666666
    """
    ours, truth = _pair(estimated, true)
    k = whole_number("k", k, low=1, high=2**31)
    worth = np.zeros(len(truth))
    best = _top(truth, k)
    worth[best] = k - np.arange(len(best))
    return float(worth[_top(ours, k)].sum() / worth.sum())


def _pair(estimated: Any, true: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    ours, truth = np.asarray(estimated, np.float64), np.asarray(true, np.float64)
    if ours.ndim != 1 or ours.shape != truth.shape or len(ours) == 0:
        raise InvalidInput("estimated and true shares must be two flat columns of one length.")
    return ours, truth


def _top(shares: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.int64]:
    return np.argsort(-shares, kind="stable")[:k]

"""Local protocols: one person's report, whatever they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpsketch import local
from dpsketch.audit.core import Outputs
from dpsketch.audit.distinguishers import frequent_outcomes, linear_discriminant
from dpsketch.audit.mechanism import Claim, Mechanism, printed_promise

__all__ = ["PROTOCOLS", "protocol"]

_EPSILON = 1.5

# Each protocol that claims ε-local privacy, small enough that its reports have few outcomes, with two things to hold.
PROTOCOLS: dict[str, tuple[Callable[[float], local.LocalProtocol], Any, Any]] = {
    "subset-hashing": (lambda e: local.SubsetHashing(epsilon=e, max_items=2, width=6, seeds=2), [0, 1], [2, 3]),
    "subset-direct": (lambda e: local.SubsetDirect(epsilon=e, max_items=2, domain=4), [0, 1], [2, 3]),
    "sampled-bit": (lambda e: local.SampledBit(epsilon=e, rows=1, width=2), [0], []),
    "optimal-local-hashing": (lambda e: local.OptimalLocalHashing(epsilon=e, seeds=2), 0, 3),
    "count-mean-sketch": (lambda e: local.CountMeanSketch(epsilon=e, rows=1, width=4), 0, 1),
    "hadamard-count-mean": (lambda e: local.HadamardCountMean(epsilon=e, rows=1, width=2), 0, 1),
    "multi-pcms": (lambda e: local.MultiPCMS(epsilon=e, rows=1, width=2), list(range(20)), []),
    "pad-and-sample": (lambda e: local.PadAndSample(epsilon=e, length=1, width=4, seeds=2), [0], [3]),
    "set-sizes": (lambda e: local.SetSizes(epsilon=e, largest=2), [0], [0, 1]),
    "prefix-heavy-hitters": (
        lambda e: local.PrefixHeavyHitters(epsilon=e, max_items=1, length=1, width=4, seeds=2),
        ["a"],
        ["z"],
    ),
}


def protocol(name: str, noise: float = 1.0) -> Mechanism:
    """Two people who hold different things, by their reports. A mutant reports at a larger ε than it claims."""
    make, one, other = PROTOCOLS[name]
    claimed, drawn = make(_EPSILON), make(_EPSILON / noise)

    def runs(held: Any) -> Callable[[int], Outputs]:
        def run(trials: int) -> Outputs:
            reports = drawn.report([held] * trials)
            columns, _ = drawn.form.from_table(reports)
            if columns is None:
                raise AssertionError("a protocol does not read its own reports")
            # The identifier is random and says nothing.
            fields = [np.asarray(value).reshape(trials, -1) for key, value in columns.items() if key != "id"]
            return np.concatenate(fields, axis=1).astype(np.float64)

        return run

    return Mechanism(
        f"local-{name}",
        "a person who holds something else",
        Claim(*printed_promise(claimed.guarantee)),
        runs(one),
        runs(other),
        {"frequent outcomes": frequent_outcomes, "learned": linear_discriminant},
    )

"""Our streams beside jax-privacy's matrix factorisations: the same strategy, judged by both, and their best one.

The strategy is read off a design by what it publishes of one record: what day t puts into the publications of days t,
t + 1, …. For that strategy jax-privacy's errors of running totals and its sensitivities (of one record, and of users on
several days) are put beside ours, which count rounding too. Then jax-privacy's own optimum for totals, in the noise of
one release.

Run as ``python -m benchmarks.factorisations``; it fails where the third digit differs. jax-privacy's interpreter is
``$DPSKETCH_JAXPRIVACY_PYTHON``, by default ``.venv-jaxprivacy/bin/python``, which ``make bench`` makes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers import run_peer
from dpsketch.core.move import Distance
from dpsketch.laws.designs import Contribution, Filter
from dpsketch.privacy import Budget
from dpsketch.sketches.continual import decoding
from dpsketch.sketches.continual.choice import Objective, choose_design

STORED = Path(__file__).parent / "results" / "factorisations.json"
HORIZONS = (30, 365)
OBJECTIVES: tuple[Objective, ...] = ("totals", "balanced", "windows")
# On how many days a user counts, and how far apart.
USERS = ((1, 1), (4, 7), (10, 1))
# One record as so many, so that what rounding takes of one is nothing beside it.
_HEIGHT = 1 << 20
_DIGITS = 1e-3

_THEIRS = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
from jax_privacy.matrix_factorization import toeplitz

def rms(c, n):
    errors = np.asarray(toeplitz.per_query_error(strategy_coef=c, n=n))
    return float(np.sqrt(errors.mean() * float(toeplitz.sensitivity_squared(c, n))))

found = []
for each in json.loads(ASKED):
    c, n = jnp.array(each["strategy"]), each["days"]
    lengths = [
        float(toeplitz.minsep_sensitivity_squared(c, min_sep=apart, max_participations=days, n=n)) ** 0.5
        for days, apart in each["users"]
    ]
    errors = np.asarray(toeplitz.per_query_error(strategy_coef=c, n=n)).tolist()
    found.append({"errors": errors, "lengths": lengths, "rms": rms(c, n)})
best = {n: rms(toeplitz.optimize_banded_toeplitz(n, n), n) for n in HORIZONS}
print(json.dumps({"found": found, "best": best}))
"""


# One record moves one cell by one.
_ONE = Distance(1, 1, 1, 1)


def strategy(design: Filter, days: int) -> npt.NDArray[np.float64]:
    """Return what a record's day puts into the publications of its day and of those that follow."""
    state = np.zeros((design.buffers, 1), np.int64)
    published = []
    for day in range(1, days + 1):
        today = np.array([_HEIGHT if day == 1 else 0], np.int64)
        published += [int(table[0]) for _, table in design.step(state, today, day)]
    return np.array(published) / _HEIGHT


def ours(days: int, objective: Objective) -> dict[str, Any]:
    """Return a design's strategy, the variances of its totals for noise of variance 1, and its sensitivities."""
    design = choose_design(Budget(1.0, 1e-6), Contribution(_ONE), days, objective=objective)
    assert isinstance(design, Filter)
    lengths = [design.sensitivity(Contribution(_ONE, days=k, apart=b), days).l2 for k, b in USERS]
    errors = decoding.errors(design, days)
    return {
        "days": days, "objective": objective, "users": USERS, "strategy": strategy(design, days).tolist(),
        "errors": errors.tolist(), "lengths": lengths, "rms": float(np.sqrt(errors.mean())) * lengths[0],
    }  # fmt: skip


def main() -> int:
    """Compare, print, and store; return 1 where the third digit differs."""
    mine = [ours(days, objective) for days in HORIZONS for objective in OBJECTIVES]
    theirs = run_peer(f"ASKED = {json.dumps(mine)!r}\nHORIZONS = {HORIZONS!r}\n{_THEIRS}", "jaxprivacy")
    rows = []
    for one, other in zip(mine, theirs["found"], strict=True):
        apart = np.abs(np.array(one["errors"]) / np.array(other["errors"]) - 1).max() / 2
        lengths = np.array(one["lengths"]) / np.array(other["lengths"]) - 1
        row = {
            "days": one["days"], "objective": one["objective"], "rms": one["rms"], "rms_theirs": other["rms"],
            "best_theirs": theirs["best"][str(one["days"])], "errors_differ": float(apart),
            "sensitivities_more": lengths.tolist(),
        }  # fmt: skip
        rows.append(row)
        print(
            f"{row['days']} days, {row['objective']}: totals {row['rms']:.4f}, by jax-privacy {row['rms_theirs']:.4f}; "
            f"errors differ by {apart:.1e}; our sensitivities are larger by "
            + ", ".join(f"{100 * more:.2f}% ({k} days, {b} apart)" for more, (k, b) in zip(lengths, USERS, strict=True))
            + f"; their optimum {row['best_theirs']:.4f}"
        )
    STORED.write_text(json.dumps(rows, indent=1) + "\n")
    agree = all(row["errors_differ"] < _DIGITS and abs(row["sensitivities_more"][0]) < 2 * _DIGITS for row in rows)
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())

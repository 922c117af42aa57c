"""CountSketch in all its forms: records and users, the pan-private and the continual one, and several parties."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.countsketch import row_values
from dpsketch.audit.core import Outputs, Scores
from dpsketch.audit.distinguishers import known, linear_discriminant
from dpsketch.audit.mechanism import Asked, Budget, Mechanism, Parts, additive, claim_of, repeated
from dpsketch.hashing import fingerprint, row_keys
from dpsketch.privacy import Neighbours, per_record, per_user
from dpsketch.sketches.comparison import CountMinForComparison, PrivateCountMinForComparison
from dpsketch.sketches.continual.sketch import ContinualSketch
from dpsketch.sketches.countsketch import (
    ContinualCountSketch,
    CountSketch,
    CountSketchSpec,
    PanPrivateCountSketch,
    PrivateCountSketch,
)
from dpsketch.sketches.countsketch.parties import merge_releases
from dpsketch.sketches.countsketch.shares import Share

__all__ = [
    "continual", "count_min", "pan_private", "record", "record_rho", "record_user_as_record",
    "replaced", "shares", "user", "user_pure", "worst_user_keys",
]  # fmt: skip

ROWS, WIDTH, SEED, MAX_KEYS = 5, 4, 11, 12
_SEARCHED = 200_000

Law = Literal["gaussian", "laplace"]


def _signed_cells(spec: CountSketchSpec, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return where each key falls, and with which sign: ±(cell + 1), keys × rows."""
    marked = np.tile(np.arange(1, spec.width + 1), (spec.rows, 1))
    prints = fingerprint(keys, "int").fingerprints
    found = np.asarray(row_values(marked, prints, row_keys(spec.seed, spec.rows)), dtype=np.int64)
    return found if found.shape == (len(keys), spec.rows) else found.T


def worst_user_keys(spec: CountSketchSpec, count: int, *, opposite_to: int | None = None) -> list[int]:
    """Return keys that fall into one cell with one sign in every row; or into a key's cells with opposite signs."""
    keys = np.arange(_SEARCHED)
    cells = _signed_cells(spec, keys)
    if opposite_to is not None:
        wanted = -_signed_cells(spec, np.array([opposite_to]))[0]
    else:
        patterns, counts = np.unique(cells[:20_000], axis=0, return_counts=True)
        wanted = patterns[np.argmax(counts)]
    alike = np.flatnonzero((cells == wanted).all(axis=1))[:count]
    return [int(key) for key in keys[alike]]


def _records(
    keys: list[int], neighbours: Neighbours = "add_remove", rows: int = ROWS, width: int = WIDTH
) -> CountSketch:
    sketch = CountSketch(rows=rows, width=width, unit=per_record(neighbours=neighbours), seed=SEED, key_type="int")
    sketch.update(keys)
    return sketch


def record(law: Law, noise: float = 1.0) -> Mechanism:
    """One record added."""
    budget = Budget.gaussian(noise) if law == "gaussian" else Budget.pure(noise)
    rows = ROWS if law == "gaussian" else 3
    sketches = _records([1, 2], rows=rows), _records([1, 2, 7], rows=rows)
    return additive(f"counts-{law}", "a record added", sketches, budget)


def record_rho(noise: float = 1.0) -> Mechanism:
    """One record added, under a zero-concentrated budget."""
    without, within = _records([1, 2]), _records([1, 2, 7])
    pattern = _records([7]).release(epsilon=1e6, delta=1e-6).table.ravel()

    def runs(sketch: CountSketch) -> Any:
        return repeated(lambda: sketch.release(rho=0.7 / noise**2).table.ravel())

    return Mechanism(
        "counts-rho",
        "a record added",
        claim_of(without.release(rho=0.7).guarantee),
        runs(without),
        runs(within),
        {"likelihood ratio": known(lambda tables: tables @ pattern), "learned": linear_discriminant},
    )


def replaced(law: Law, noise: float = 1.0) -> Mechanism:
    """One record replaced by another that falls into the same cells with opposite signs."""
    budget = Budget.gaussian(noise) if law == "gaussian" else Budget.pure(noise)
    one = _records([1, 2, 7], "replace", 3, 2)
    (opposite,) = worst_user_keys(one.spec, 1, opposite_to=7)
    sketches = one, _records([1, 2, opposite], "replace", 3, 2)
    name = f"counts-replace-{law}"
    return additive(name, "a record replaced by one in its cells, with opposite signs", sketches, budget)


def _users(keys: list[int], rows: int, width: int, max_keys: int) -> CountSketch:
    sketch = CountSketch(rows=rows, width=width, unit=per_user(max_keys), seed=SEED, key_type="int")
    sketch.update([1, 2], users=["ann", "bob"])
    sketch.update(keys, users=["mallory"] * len(keys))
    return sketch


def user(noise: float = 1.0) -> Mechanism:
    """One user added whose keys were chosen to share their cells, which the clip must stop."""
    empty = _users([], 3, WIDTH, MAX_KEYS)
    sketches = empty, _users(worst_user_keys(empty.spec, 2 * MAX_KEYS), 3, WIDTH, MAX_KEYS)
    words = "a user added, all of whose keys share cells"
    return additive("counts-user", words, sketches, Budget.gaussian(noise))


def user_pure(noise: float = 1.0) -> Mechanism:
    """One user added whose keys share no cell, which is worst for L1."""
    sketches = _users([], 1, 64, 3), _users([100, 101, 102], 1, 64, 3)
    words = "a user added, whose keys share no cell"
    return additive("counts-user-laplace", words, sketches, Budget.pure(noise))


def record_user_as_record(noise: float = 1.0) -> Mechanism:
    """Take a user of many keys for a record: a mistake, which an audit must find. Not in the table of mechanisms."""
    empty = _records([1, 2], rows=3)
    keys = worst_user_keys(empty.spec, MAX_KEYS)
    sketches = empty, _records([1, 2, *keys], rows=3)
    return additive("counts-user-taken-as-record", "a user added, as if a record", sketches, Budget.gaussian(noise))


def count_min(noise: float = 1.0) -> Mechanism:
    """Add a record to the Count-Min that is kept for comparison."""

    def sketch(keys: list[int]) -> CountMinForComparison:
        built = CountMinForComparison(rows=3, width=WIDTH, unit=per_record(), seed=SEED)
        built.update(keys)
        return built

    def parts(release: PrivateCountMinForComparison) -> Parts:
        return [(release.table, release.noise)]

    return additive("count-min", "a record added", (sketch([1, 2]), sketch([1, 2, 7])), Budget.gaussian(noise), parts)


def pan_private(place: str, noise: float = 1.0) -> Mechanism:
    """Show the pan-private sketch: a record before or after the seizure of the memory, then the publication."""
    budget = Budget.gaussian(noise)
    pattern = _records([7], rows=3).release(epsilon=1e6, delta=1e-6).table.ravel()
    size = len(pattern)

    def sketch(budget: Asked) -> ContinualSketch:
        return PanPrivateCountSketch(rows=3, width=WIDTH, unit=per_record(), seed=SEED, key_type="int", **budget)

    def life(before: list[int], after: list[int]) -> Any:
        def run() -> npt.NDArray[np.int64]:
            lived = sketch(budget.spent)
            lived.update(before)
            seized = lived.snapshot()
            lived.update(after)
            lived.publish()
            return np.concatenate([seized.ravel(), lived.published.ravel()])

        return repeated(run)

    def read(outputs: Outputs) -> Scores:
        # The two looks are independent after subtraction: the noise of the first, then the fresh one.
        seen = outputs[:, :size] if place == "before" else outputs[:, size:] - outputs[:, :size]
        projected: Scores = seen @ pattern
        return projected

    within = life([1, 2, 7], [3]) if place == "before" else life([1, 2], [3, 7])
    return Mechanism(
        f"pan-private-{place}",
        f"a record added {place} the memory is seized",
        claim_of(sketch(budget.claimed).guarantee),
        life([1, 2], [3]),
        within,
        {"likelihood ratio": known(read), "learned": linear_discriminant},
    )


def continual(noise: float = 1.0) -> Mechanism:
    """All that correlated noise publishes of four days, a record of the first of which is in every one."""
    budget, days = Budget.gaussian(noise), 4
    pattern = _records([7], rows=3).release(epsilon=1e6, delta=1e-6).table

    def sketch(budget: Asked) -> ContinualSketch:
        shape: dict[str, Any] = {"rows": 3, "width": WIDTH, "unit": per_record(), "seed": SEED, "key_type": "int"}
        return ContinualCountSketch(days=days, **shape, design="recurrence", **budget)

    def shift() -> npt.NDArray[np.int64]:
        design = sketch(budget.claimed).design
        state = np.zeros((design.buffers, *pattern.shape), np.int64)
        moved = [table for day in range(days) for _, table in design.step(state, pattern * (day == 0), day + 1)]
        return np.concatenate([table.ravel() for table in moved])

    def year(first: list[int]) -> Any:
        def run() -> npt.NDArray[np.int64]:
            lived = sketch(budget.spent)
            lived.day(first)
            for _ in range(days - 1):
                lived.day([1])
            return lived.published.ravel()

        return repeated(run)

    moved = shift()

    return Mechanism(
        "continual-counts",
        "a record added on the first of four days, all published",
        claim_of(sketch(budget.claimed).guarantee),
        year([1, 2]),
        year([1, 2, 7]),
        {"likelihood ratio": known(lambda shown: shown @ moved), "learned": linear_discriminant},
    )


def shares(seen: str, noise: float = 1.0) -> Mechanism:
    """Four parties, half of them honest: one share by itself, or all, where the dishonest take their noise off."""
    budget = Budget.gaussian(noise)
    without, within = _records([1, 2], rows=3), _records([1, 2, 7], rows=3)
    pattern = _records([7], rows=3).release(epsilon=1e6, delta=1e-6).table.ravel()

    def share(sketch: CountSketch, party: int, asked: Asked) -> PrivateCountSketch:
        return sketch.release(share=Share(4, honest=0.5, party=party), **asked)

    def runs(sketch: CountSketch) -> Any:
        if seen == "alone":
            return repeated(lambda: share(sketch, 0, budget.spent).table.ravel())
        # What two dishonest parties can work out: the sum of the two honest shares.
        return repeated(lambda: (share(sketch, 0, budget.spent).table + share(without, 1, budget.spent).table).ravel())

    if seen == "alone":
        promise = share(without, 0, budget.claimed).guarantee
    else:
        parties = [share(_records([1, 2], rows=3), party, budget.claimed) for party in range(4)]
        promise = merge_releases(parties).guarantee
    return Mechanism(
        f"shares-{seen}",
        "a record added at one party" + ("" if seen == "alone" else ", seen by two dishonest parties of four"),
        claim_of(promise),
        runs(without),
        runs(within),
        {"likelihood ratio": known(lambda tables: tables @ pattern), "learned": linear_discriminant},
    )

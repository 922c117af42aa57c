"""What a plan predicts is what a release then shows, if the guess at the data was right.

Noise and hash seeds are fixed, so nothing here fails by chance on one version; the margins are those promised.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import noise
from dpsketch.plan import PLANNED, Amount, Guess, Proposal, propose

RECORD = dps.per_record()
DATA = Guess(records=500_000, keys=20_000, skew=1.1)
PEOPLE_OF_KEYS = Guess(200_000, 5_000, 1.0, users=10_000)


def planned(kind: str, amount: Amount, guess: Guess, **wishes: float) -> Proposal:
    with noise.seeded_noise_for_tests_only(1):
        return propose(kind, amount, guess, **wishes)


def measured(proposal: Proposal, budget: dict[str, float]) -> float:
    """Root mean square error of estimates over all keys, of two releases with other hash seeds, on sampled data."""
    squares = []
    for seed in (5, 6):
        counts = np.random.default_rng(seed).multinomial(DATA.records, DATA.counts / DATA.counts.sum())
        sketch = dps.CountSketch(**proposal.shape, unit=RECORD, seed=seed)
        sketch.update(np.arange(DATA.keys) + 10**9, counts=counts)
        with noise.seeded_noise_for_tests_only(seed):
            private = sketch.release(**budget)
        squares.append(np.mean((private.estimate(np.arange(DATA.keys) + 10**9).value - counts) ** 2))
    return math.sqrt(np.mean(squares))


@pytest.mark.parametrize(("delta", "target"), [(1e-6, 15.0), (0.0, 4.0)])
def test_the_error_of_counts_is_within_a_fifth(delta: float, target: float) -> None:
    """The twin: a release with half of the budget is not, where noise makes the error."""
    found = planned("counts", Amount(RECORD, 1.0, delta), DATA, target_error=target)
    assert found.error <= target
    assert found.error == pytest.approx(measured(found, {"epsilon": 1.0, "delta": delta}), rel=0.2)
    assert found.memory == 8 * found.shape["rows"] * found.shape["width"]
    if delta == 0:
        assert found.error != pytest.approx(measured(found, {"epsilon": 0.5, "delta": 0.0}), rel=0.2)
    # At ε = 1 and δ = 1e-6, Laplace noise is smaller up to 7 rows: 2·7² < 7·4.2247².
    assert any(note.startswith("Pure ε (delta 0)") for note in found.notes) is (delta > 0)


def counted_names(guess: Guess, unit: dps.Unit, users: int | None, budget: dict[str, float]) -> tuple[float, float]:
    """How many names one release of sampled data has, and the root mean square error of their counts."""
    rng = np.random.default_rng(5)
    keys = rng.choice(guess.keys, int(guess.records), p=guess.counts / guess.counts.sum())
    histogram = dps.Histogram(unit=unit)
    extra = {} if users is None else {"users": np.arange(len(keys)) % users}
    histogram.update(keys, **extra)
    with noise.seeded_noise_for_tests_only(5):
        private = histogram.release(**budget)
    truth = np.bincount(keys, minlength=guess.keys)
    if users is not None:
        truth = np.bincount(np.unique(np.arange(len(keys)) % users + users * keys) // users, minlength=guess.keys)
    errors = private.estimate(private.keys).value - truth[private.keys]
    return len(private.keys), float(np.sqrt(np.mean(errors**2)))


@pytest.mark.parametrize(("max_keys", "epsilon"), [(None, 0.1), (None, 3.0), (2, 1.0), (8, 1.0), (40, 1.0)])
def test_the_names_and_counts_of_a_histogram_are_within_a_tenth(max_keys: int | None, epsilon: float) -> None:
    """Records, and users with 20 of them; bounds below and above that: thresholds, one round and two are planned.

    Between 60 and 1,000 names. The measured number has a standard error of at most 4%, the error one of 5%.
    """
    guess, unit = (DATA, RECORD) if max_keys is None else (PEOPLE_OF_KEYS, dps.per_user(max_keys=max_keys))
    budget = {"epsilon": epsilon, "delta": 1e-6 if max_keys is None else 1e-5}
    found = planned("histogram", Amount(unit, **budget), guess)
    names, error = counted_names(guess, unit, guess.users, budget)
    assert found.also["found"] == pytest.approx(names, rel=0.1)
    if max_keys in (None, 40):  # nobody is cut short, neither of 40 keys nor of 30 that count
        assert found.error == pytest.approx(error, rel=0.15)


@pytest.mark.parametrize(("delta", "threshold"), [(1e-6, 200), (0.0, 300)])
def test_what_a_search_finds_is_within_a_twentieth(delta: float, threshold: int) -> None:
    """A list has about 100 keys: recall and precision vary by about 0.015 from seed to seed. Twin: an eighth of ε."""
    data = Guess(200_000, 20_000, 1.1)
    counts = np.random.default_rng(3).multinomial(data.records, data.counts / data.counts.sum())
    keys = np.arange(len(counts)) * 200_003
    sketch = dps.HeavyHitters(unit=RECORD, rows=7, width=1024, key_bits=32, seed=3)
    sketch.update(keys, counts=counts)
    with noise.seeded_noise_for_tests_only(3):
        listed = set(sketch.release(epsilon=1.0, delta=delta).top(threshold=threshold).key)
    frequent = set(keys[counts >= threshold].tolist())
    found, less = (
        sketch.spec.predict(threshold=threshold, counts=counts, epsilon=e, delta=delta) for e in (1.0, 0.125)
    )
    recall = len(listed & frequent) / len(frequent)
    assert found.recall == pytest.approx(recall, abs=0.05)
    assert found.precision == pytest.approx(len(listed & frequent) / len(listed), abs=0.05)
    assert found.found == pytest.approx(len(listed), rel=0.08)
    assert less.recall < recall - 0.05 or less.threshold > 2 * threshold


@pytest.mark.parametrize("kind", PLANNED)
def test_every_kind_is_planned_and_refuses_the_impossible(kind: str) -> None:
    wishes = {"p": 0.5} if kind == "moment" else {}
    amount, guess = Amount(RECORD, 1.0, 0.0 if kind == "sparse" else 1e-6), Guess(20_000, 1_000, 1.0)
    found = planned(kind, amount, guess, memory=1 << 20, **wishes)
    assert found.error > 0
    assert 0 < found.memory <= 1 << 20
    assert found.seconds > 0
    assert found.to_json()["shape"] == found.shape
    with pytest.raises(dps.DpsketchError, match="no shape reaches"):
        planned(kind, amount, guess, memory=1 << 20, target_error=1e-3, **wishes)


COLUMNS = (
    dps.users(),
    dps.count(),
    dps.sum("amount", bounds=(0, 100)),
    dps.mean("amount", bounds=(0, 100)),
    dps.quantiles("amount", [0.5, 0.9], bounds=(0, 100)),
)
GROUPS, PEOPLE = Guess(30_000, 100, 0.5), Guess(200_000, 100, 0.5, users=10_000)


def released_widths(guess: Guess, columns: Sequence[Any], budget: dict[str, float], listed: bool) -> dict[str, float]:
    """Half of the intervals of the middle groups of three releases of sampled data, and how many groups they have."""
    rng, found = np.random.default_rng(8), defaultdict(list)
    records = int(guess.records)
    groups = rng.choice(guess.keys, records, p=guess.counts / guess.counts.sum())
    frame = {"group": groups, "amount": rng.uniform(0, 100, records)}
    if guess.users is not None:
        frame["user"] = np.arange(records) % int(guess.users)
    for seed in range(3):
        table = dps.Table(by="group", columns=columns, user="user" if guess.users else None)
        table.update(pa.table(frame))
        with noise.seeded_noise_for_tests_only(seed):
            private = table.release(**budget, groups=range(guess.keys) if listed else None)
        rows = private.to_pandas()  # in the order of their names, which is that of their sizes
        rows = rows.iloc[max(0, len(rows) // 2 - 12) :][:24]
        found["found"].append(float(len(private)))
        for name in private.value_names:
            found[name].append(float((rows[f"{name}_high"] - rows[f"{name}_low"]).mean()) / 2)
    return {name: float(np.mean(each)) for name, each in found.items()}


@pytest.mark.parametrize(
    ("guess", "delta", "listed"),
    [(GROUPS, 0.0, True), (PEOPLE, 1e-6, False)],
)
def test_the_widths_of_a_table_are_within_a_tenth(guess: Guess, delta: float, listed: bool) -> None:
    """Corners and centred columns, names found and given. Ends of quantiles jump by a leaf: a fifth is allowed."""
    unit = RECORD if guess.users is None else dps.per_user("auto")
    amount = Amount(unit, 1.0, delta)
    columns = [each for each in COLUMNS if guess.users is not None or each.kind != "users"]
    found = planned("table", amount, guess, columns=columns, listed=listed)
    measured = released_widths(guess, columns, amount.budget, listed)
    names = [name for column in columns for name in column.names] + ([] if listed else ["found"])
    for name in names:
        margin = 0.2 if name.startswith("quantile") else 0.1
        assert found.also[name] == pytest.approx(measured[name], rel=margin), name
    assert found.error == found.also[columns[0].names[0]]

"""A bound that is chosen privately: what the choice draws, how far one user moves it, and that each choice is paid.

The twins of these tests, which show their power, are mutants (``tests/mutants/names.txt``, the choice of a bound).
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import accounting
from dpsketch.laws import choice as bounds
from dpsketch.laws.content import UserContent
from dpsketch.laws.rounds import rounds_delta
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.sketches.store import Store, rows_of

pytestmark = pytest.mark.statistical

RELATIONS = ["add_remove", "replace"]
BOUNDS = [1, 2, 7, 32, 4096]


def histogram(relation: Any, records: list[tuple[int, str]], **given: Any) -> dps.Histogram:
    filled = dps.Histogram(unit=dps.per_user("auto", neighbours=relation), key_type="int", **given)
    keys, users = zip(*records, strict=True)
    filled.update(list(keys), users=list(users))
    return filled


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_the_choice_pays_for_what_moves(relation: Any, delta: float) -> None:
    """A user moves each table by 1, two users by 2: that costs 5% of ε. The draws are held in tests/contract."""
    epsilon, moved = 2.0, 2 if relation == "replace" else 1
    release = histogram(relation, [(1, "ann")]).release(epsilon=epsilon, delta=delta, keys=[98, 99])
    costs = {law.name: moved * law.noise.epsilon / law.noise.sensitivity for law in release.law.choice}
    assert costs == pytest.approx({"users": 0.6 * 0.05 * epsilon, "spread": 0.4 * 0.05 * epsilon}, rel=1e-9)


RUNS = 600
SUBSETS = [keys for size in range(4) for keys in itertools.combinations(range(3), size)]


def exact(sets: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """Both tables without noise, of users whose first key is taken."""
    held = np.array([len(keys) for keys in sets if keys], np.int64)
    picked = np.array([keys[0] for keys in sets if keys], np.int64)
    return bounds.tables(held, picked, 3)


def test_one_user_moves_each_table_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every set of two others with up to three keys, and every user who comes or takes another's place."""
    monkeypatch.setattr(bounds, "random_words", lambda n: np.array([5, 2**63 + 5, 77], np.uint64)[:n])
    for others in itertools.product(SUBSETS, repeat=2):
        tables = {one: exact([*others, one]) for one in SUBSETS}
        for one, other in itertools.product(SUBSETS, repeat=2):
            for table, neighbour in zip(tables[one], tables[other], strict=True):
                moved = int(np.abs(table - neighbour).sum())
                assert moved <= (1 if () in (one, other) else 2)


def test_what_a_user_puts_in_depends_on_no_other() -> None:
    """One of the keys asked for, each as likely; whoever else is there. False-positive rate below 1e-6."""
    users = np.array([0] * 4 + [1] * 5)
    keys = np.array([0, 1, 2, 3, 0, 1, 2, 3, 4])
    asked = np.array([1, 2, 3, 4])
    for rows, people in ((slice(None), 2), (slice(4), 1)):
        store = Store(by_user=True)
        store.add(rows_of(pa.chunked_array([keys[rows]]), pa.chunked_array([users[rows]])))
        content, picks = UserContent(store.tables()), []
        for _ in range(RUNS):
            held, picked = content.held(asked)
            assert sorted(held) == [3, 4][:people]
            picks.append(picked[np.argsort(held)].tolist())
        first = np.array([pick[0] for pick in picks])
        shares = np.bincount(first, minlength=4) / RUNS
        assert shares[3] == 0  # which the first does not have
        assert np.max(np.abs(shares[:3] - 1 / 3)) < 5.5 * math.sqrt(2 / 9 / RUNS)


@pytest.mark.parametrize("weight", [1, 3])
@pytest.mark.parametrize("relation", RELATIONS)
def test_every_bound_that_may_be_chosen_is_paid_for(relation: Any, weight: int) -> None:
    """Of a list by what its noise comes to, of names by the joint δ: exact, for every noise that may be drawn.

    A user is on as many named keys as the bound lets count, or on as many others.
    """
    unit = dps.per_user("auto", max_weight=weight, neighbours=relation)
    spec = dps.Histogram(unit=unit).spec
    epsilon, delta = 1.0, 1e-6
    rest = 0.95 * epsilon
    moved = 2 if relation == "replace" else 1
    drawn_with = spec.law(epsilon=epsilon, delta=delta, keys=[1], others=True).slots()
    for bound in BOUNDS:
        for keys, noise in ((bound, drawn_with["counts"][bound]), (bound**2, drawn_with["others"][bound])):
            match noise:
                case RoundedGaussian(sigma):
                    assert accounting.gaussian_delta(rest, weight * math.sqrt(moved * keys) / sigma) <= delta
                case DiscreteLaplace(own, sensitivity):
                    assert own * moved * bound * weight / sensitivity <= rest
    for form in ("weighted", "rounds"):
        law: Any = spec.law(epsilon=epsilon, delta=delta, form=form, others=True)
        drawn_with = law.slots()
        for bound in BOUNDS:
            for keys, noise in ((bound, drawn_with["counts"][bound]), (bound**2, drawn_with["others"][bound])):
                found = rounds_delta(
                    law.noises, law.cutoffs, epsilon=rest, cap=law.cap, replace=relation == "replace",
                    counts=keys * (weight / noise.sigma) ** 2,
                )  # fmt: skip
                assert found <= delta


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("relation", RELATIONS)
def test_counts_carry_the_noise_of_the_bound_that_was_chosen(relation: Any, delta: float) -> None:
    """Listed keys that nobody has are noise. False-positive rate below 1e-8: six standard errors of a mean.

    With the noise that was seen, a user on as many keys as the bound lets count costs 95% of ε.
    """
    epsilon, absent = 3.0, 5000
    records = [(key, f"u{user}") for user in range(8000) for key in range(12)]
    listed = list(range(12)) + list(range(100, 100 + absent))
    release = histogram(relation, records).release(epsilon=epsilon, delta=delta, keys=listed)
    bound, noise = release.bound, release.values[12:]
    assert bound > 1
    moved = 2 if relation == "replace" else 1
    if isinstance(release.noise, RoundedGaussian):
        sigma = math.sqrt(float(np.mean(noise**2)))
        cost, room = math.sqrt(moved * bound) / sigma, 6 / math.sqrt(2 * absent)
        assert accounting.gaussian_mu(0.95 * epsilon, delta) * (1 - room) < cost * (1 + room)
        assert cost * (1 - room) < accounting.gaussian_mu(0.95 * epsilon, delta)
    else:
        cost, room = moved * bound / float(np.mean(np.abs(noise))), 6 / math.sqrt(absent)
        assert cost == pytest.approx(0.95 * epsilon, rel=room)


def test_no_user_counts_on_more_keys_than_were_chosen() -> None:
    """The sum of all counts is users times the bound. False-positive rate below 1e-8."""
    people, keys = 150, 50
    filled = histogram("add_remove", [(key, f"u{user}") for user in range(people) for key in range(keys)])
    for _ in range(5):
        release = filled.release(epsilon=1.0, delta=0.0, keys=list(range(keys)))
        bound = min(release.bound, keys)
        room = 6.5 * math.sqrt(release.noise.variance) * math.sqrt(keys)
        assert abs(int(release.values.sum()) - people * bound) < room < people * (keys - bound)

"""Attacks on the core through the public path: sums, windows, shares, forged files. Each was once accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.core.account import Account
from dpsketch.core.codec import encode
from dpsketch.core.laws import Additive, ClassCounters, Law
from dpsketch.core.move import Distance, Table
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.laws.calibration import noise_for
from dpsketch.laws.designs import Banded, Contribution, PanPrivate
from dpsketch.laws.distinct import Flips
from dpsketch.laws.shares import MergedShares, OneShare, Share, ShareState
from dpsketch.laws.streams import PUBLICATIONS, Found, Published, Seizable
from dpsketch.laws.votes import Votes
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.privacy import Budget

SHAPE: dict[str, Any] = {"rows": 3, "width": 16, "unit": dps.per_record(), "key_type": "int"}
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
ASKED = Budget(1.0, 1e-6)


def stream(days: int = 5) -> Any:
    sketch = dps.ContinualCountSketch(days=days, **SHAPE, **BUDGET)
    for _ in range(2):
        sketch.day(np.arange(50))
    return sketch


def counted(**options: Any) -> Any:
    sketch = dps.CountSketch(**SHAPE)
    sketch.update(np.repeat(7, 10_000))
    return sketch.release(**BUDGET, **options)


def forged(release: Any, change: Callable[[dict[str, Any]], object]) -> Any:
    """Return what a reader makes of a release whose header somebody changed."""
    document = release.to_document()
    header = json.loads(json.dumps(document.header))
    change(header)
    return type(release).from_document(replace(document, header=header))


def test_streams_with_equal_laws_are_paid_for_one_by_one() -> None:
    one, other = stream(), stream()
    together = one.between(1, 1) + (one.between(2, 2) + other.between(1, 1))
    assert together.guarantee.epsilon == pytest.approx((one.total() + other.total()).guarantee.epsilon)
    assert together.guarantee.epsilon > 1.4
    assert (one.between(1, 1) + one.between(2, 2)).guarantee.epsilon == 1.0


def test_a_sum_with_seeded_noise_never_holds() -> None:
    sketch = dps.ContinualCountSketch(days=5, **SHAPE, **BUDGET)
    first = sketch.day(np.arange(50))
    with seeded_noise_for_tests_only(1):
        sketch.day(np.arange(50))
    second = sketch.between(2, 2)
    assert not (first + second).guarantee.holds
    assert not (second + first).guarantee.holds


def test_a_share_is_merged_and_not_added() -> None:
    share = counted(share=Share(4, 0.5, 0))
    for first, second in ((share, counted()), (counted(), share)):
        with pytest.raises(ReleaseRefused, match="merge_releases"):
            first + second


def test_bits_are_priced_on_their_own_table() -> None:
    sketch = dps.DistinctSketch(buckets=16, unit=dps.per_user(10))
    release = sketch.release_mergeable(epsilon=5.0)
    ones, _ = release.spec.tables()

    def change(header: dict[str, Any]) -> None:
        header["receipts"][0]["laws"][0]["table"] = encode(ones)
        header["receipts"][0]["asked"]["epsilon"] = 0.5

    with pytest.raises(FileRefused):
        forged(release, change)


@pytest.mark.parametrize(("name", "value"), [("horizon", 1), ("days", 1), ("apart", 2)])
def test_a_window_is_for_the_days_of_its_stream(name: str, value: int) -> None:
    """Fewer days cost less: a file that states them is held to its law's own conditions."""
    ranges = dps.RangeSketch(bits=8, unit=dps.per_user(2))
    sketch = dps.ContinualSketch(ranges, days=8, user_days=4, days_apart=1, **BUDGET)
    release = sketch.day(np.arange(50), users=np.arange(50))

    def change(header: dict[str, Any]) -> None:
        publications = [part["publications"] for part in header["derived"].values()]
        for each in (header["receipts"][0]["laws"][0], *publications):
            each[name] = value

    with pytest.raises(FileRefused):
        forged(release, change)


def test_a_part_of_another_kind_is_refused() -> None:
    sketch = dps.DistinctSketch(buckets=16, unit=dps.per_record())
    bitmap = sketch.release_mergeable(epsilon=1.0).to_document()
    with pytest.raises(FileRefused):
        type(sketch.release(epsilon=1.0, delta=0)).from_document(replace(bitmap, kind="distinct"))


def test_costs_are_never_below_the_exact_ratio() -> None:
    (table,) = dps.CountSketch(**SHAPE).spec.tables()
    distance = table.between("replace")
    for step in range(1, 400):
        for budget in (Budget(step / 97, 0), Budget(step / 97, 1e-6)):
            noise = noise_for(budget, distance, 1 / 3)
            (cost,) = Additive(table, "replace", noise).costs()
            if hasattr(cost, "mu"):
                assert Fraction(cost.mu) >= Fraction(distance.l2) / Fraction(noise.sigma)
            else:
                assert Fraction(cost.epsilon) >= Fraction(noise.epsilon) * distance.l1 / noise.sensitivity


def test_a_stored_seizable_sketch_protects_records_only() -> None:
    sketch = dps.PanPrivateCountSketch(**SHAPE, **BUDGET)
    document = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True)
    header = json.loads(json.dumps(document.header))
    header["spec"]["unit"] = {**header["spec"]["unit"], "level": "user"}
    with pytest.raises((FileRefused, InvalidInput)):
        dps.ContinualSketch.from_document(replace(document, header=header))


def paid(law: Law, spec: Any, budget: Budget = ASKED) -> Permit:
    return Permit.pay(spec, (law,), budget, Account(), note="a test")


COUNTS = dps.CountSketch(**SHAPE).spec
MEDIAN = dps.QuantileSketch(quantiles=[0.5], bits=8, unit=dps.per_record()).spec
MANY = np.zeros((50, 3, 16), np.int64)
NOISE = "add_remove", RoundedGaussian(50.0)
SHARE = OneShare(*COUNTS.tables(), "add_remove", Share(4, 0.5), ASKED)
# A law, its spec, and what is given to it in the place of the table that was paid for. What is left of 0.123 after
# integer noise is 0.123.
OTHER_TABLES: list[tuple[Law, Any, Any, str]] = [
    (COUNTS.laws(ASKED)[0], COUNTS, {"counters": MANY}, "shape"),
    (COUNTS.laws(ASKED)[0], COUNTS, {"counters": np.zeros((3, 16))}, "integers"),
    (ClassCounters(*COUNTS.tables(), *NOISE), COUNTS, np.full((3, 16), 0.123), "integers"),
    (Published(COUNTS.tables(), (1,), *NOISE, Banded((1,)), 1), COUNTS, [(PUBLICATIONS, 1, MANY)], "shape"),
    (SHARE, COUNTS, ShareState(MANY, "a party", ()), "shape"),
    (MEDIAN.laws(ASKED)[0], MEDIAN, {MEDIAN.tables()[0].name: np.ones(3, np.int64)}, "shape"),
]


@pytest.mark.parametrize(("law", "spec", "state", "words"), OTHER_TABLES)
def test_noise_is_drawn_for_the_table_that_was_paid_for(law: Law, spec: Any, state: Any, words: str) -> None:
    with pytest.raises(ReleaseRefused, match=words):
        paid(law, spec, getattr(law, "asked", ASKED)).draw(law, state)


def test_a_law_that_draws_nothing_has_no_permit() -> None:
    """A permit for a sum of shares would promise something of any table that it is given."""
    law = MergedShares(*COUNTS.tables(), "add_remove", Share(1, 1.0), ASKED, 1)
    with pytest.raises(ReleaseRefused, match="draws nothing"):
        paid(law, COUNTS, law.asked)


def test_a_state_carries_noise_only_in_a_design_that_proves_it() -> None:
    """The noise of a state is free, because its design says how far state and publications move together."""
    stated = COUNTS.tables(), (1,), *NOISE
    with pytest.raises(InvalidInput, match="seized"):
        Seizable(*stated, Banded((2, 1)), 9)
    with pytest.raises(InvalidInput, match="seized"):
        Published(*stated, PanPrivate((2, 1)), 9)


def test_a_seized_state_shows_days_after_the_last() -> None:
    """A user of several days is in all sums for the coming days, also if these are never published."""
    design, unit = PanPrivate(tuple(range(20, 10, -1))), Contribution(Distance(1, 1, 1, 1), days=10)
    moved = np.convolve(np.ones(10), design.bands)
    assert design.sensitivity(unit, 10).l2 >= np.linalg.norm(moved) * (1 - 1e-12)


def test_found_keys_have_no_table_of_a_stated_length() -> None:
    """In a table of one cell a user moves one key: found keys are as many as the data have."""
    spec = dps.Histogram(unit=dps.per_user(8), key_type="int").spec
    counts = spec.tables()[0]
    one = Table(counts.name, (1,), counts.move.within(1))
    assert one.covers(counts)
    with pytest.raises(InvalidInput, match="length"):
        Found((one,), (1,), "add_remove", RoundedGaussian(20.0), Banded((1,)), 1, epsilon=1.0, names=1e-7)


@pytest.mark.parametrize("asked", [Budget(1.0, 0), Budget(rho=1.0)], ids=["pure", "rho"])
@pytest.mark.parametrize("noise", [DiscreteLaplace(1.0, 1), RoundedGaussian(100.0)], ids=["Laplace", "Gaussian"])
def test_names_are_never_pure(noise: Any, asked: Budget) -> None:
    """A cutoff far out has a δ that no float holds; it is not 0."""
    spec = dps.VoteHistogram(unit=dps.per_record(), max_counters=64).spec
    law = Votes(*spec.tables(), "add_remove", noise, 10_000, 1.0, 0.0)
    with pytest.raises(ReleaseRefused, match="cost more"):
        paid(law, spec, asked)


@pytest.mark.parametrize("threshold", [1, 2**9, 2**62, 2**63 - 2**40, 2**63 - 2**20 - 1, 2**63 - 1])
@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
def test_flipped_bits_cost_no_less_than_their_odds(threshold: int, neighbours: Any) -> None:
    spec = dps.DistinctSketch(buckets=16, unit=dps.per_record(neighbours=neighbours)).spec
    (cost,) = Flips(spec.tables()[1], neighbours, threshold).costs()
    with mpmath.workprec(200):
        shown = mpmath.mpf(threshold) / 2**63
        loss = -mpmath.log(shown) + (mpmath.log(2 - shown) if neighbours == "replace" else 0)
        assert loss <= cost.epsilon <= loss * (1 + 1e-14)

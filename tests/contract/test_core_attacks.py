"""Attacks on the core through the public path: sums, windows, shares, forged files. Each was once accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.core.account import Account
from dpsketch.core.laws import Additive, ClassCounters, Law
from dpsketch.core.move import Distance, Table
from dpsketch.core.permit import Permit
from dpsketch.errors import BudgetExceeded, FileRefused, InvalidInput, ReleaseRefused
from dpsketch.laws.designs import Banded, Contribution, PanPrivate
from dpsketch.laws.distinct import Flips
from dpsketch.laws.shares import MergedShares, OneShare, Share, ShareState
from dpsketch.laws.streams import PUBLICATIONS, Found, Published, Seizable
from dpsketch.laws.votes import Votes
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.privacy import Budget

SHAPE: dict[str, Any] = {"rows": 3, "width": 16, "unit": dps.per_record(), "key_type": "int"}
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


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


@pytest.mark.parametrize("kind", [dps.CountSketch, dps.HeavyHitters, dps.RangeSketch], ids=lambda kind: kind.__name__)
def test_nothing_is_drawn_before_the_ledger_pays(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = {"bits": 8} if kind is dps.RangeSketch else {"rows": 3, "width": 8}
    shape |= {"key_bits": 16} if kind is dps.HeavyHitters else {}
    sketch = kind(**shape, unit=dps.per_record())
    ledger = dps.Ledger(f"sqlite:///{tmp_path}/budget.db")
    ledger.create("web", epsilon=0.5, delta=1e-6, unit=dps.per_record())
    monkeypatch.setattr(RoundedGaussian, "sample", lambda *_: pytest.fail("noise was drawn before it was paid for"))
    with pytest.raises(BudgetExceeded):
        sketch.release(**BUDGET, ledger=ledger, dataset="web")


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


@pytest.mark.parametrize(
    "drop",
    [lambda header: header["receipts"].pop(), lambda header: header["receipts"].pop(0)],
    ids=["the last receipt", "the first receipt"],
)
def test_a_sum_needs_the_receipts_of_all_its_terms(drop: Callable[[dict[str, Any]], object]) -> None:
    release = counted() + counted()

    def change(header: dict[str, Any]) -> None:
        drop(header)
        header["guarantee"] = counted().guarantee.to_json()

    with pytest.raises(FileRefused):
        forged(release, change)


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
        from dpsketch.core.codec import encode

        header["receipts"][0]["laws"][0]["table"] = encode(ones)
        header["receipts"][0]["asked"]["epsilon"] = 0.5

    with pytest.raises(FileRefused):
        forged(release, change)


@pytest.mark.parametrize("name", ["horizon", "days", "apart"])
def test_a_window_is_for_the_days_of_its_stream(name: str) -> None:
    """Fewer days cost less: a file that states them is held to its law's own conditions."""
    unit = dps.per_user(2)
    sketch = dps.ContinualSketch(dps.RangeSketch(bits=8, unit=unit), days=8, user_days=4, days_apart=1, **BUDGET)
    release = sketch.day(np.arange(50), users=np.arange(50))

    def change(header: dict[str, Any]) -> None:
        header["receipts"][0]["laws"][0][name] = 1 if name != "apart" else 2
        for part in header["derived"].values():
            part["publications"][name] = header["receipts"][0]["laws"][0][name]

    with pytest.raises(FileRefused):
        forged(release, change)


def test_the_conditions_of_a_promise_cannot_be_removed() -> None:
    parties = [counted(share=Share(2, 1.0, party)) for party in range(2)]
    merged = dps.merge_releases(parties)
    seizable = dps.PanPrivateCountSketch(**SHAPE, **BUDGET)
    for release in (merged, seizable.publish()):
        assert release.guarantee.caveat
        with pytest.raises(FileRefused):
            forged(release, lambda header: header["guarantee"].update(caveat=None))
        read = forged(release, lambda header: header["receipts"][0].update(caveat=None))
        assert read.guarantee.caveat == release.guarantee.caveat


def test_a_part_of_another_kind_is_refused() -> None:
    sketch = dps.DistinctSketch(buckets=16, unit=dps.per_record())
    bitmap = sketch.release_mergeable(epsilon=1.0).to_document()
    with pytest.raises(FileRefused):
        type(sketch.release(epsilon=1.0, delta=0)).from_document(replace(bitmap, kind="distinct"))


def test_noise_is_added_to_integers_of_the_shape_that_was_paid_for() -> None:
    spec, budget = dps.CountSketch(**SHAPE).spec, Budget(1.0, 1e-6)

    def draw(table: Any) -> None:
        permit = Permit.pay(spec, spec.laws(budget), budget, Account(), note="a test")
        permit.draw_all({"counters": table})

    draw(np.zeros((3, 16), np.int64))
    with pytest.raises(ReleaseRefused, match="shape"):
        draw(np.zeros((50, 3, 16), np.int64))
    with pytest.raises(ReleaseRefused, match="integers"):
        draw(np.zeros((3, 16)))


def test_costs_are_never_below_the_exact_ratio() -> None:
    from fractions import Fraction

    from dpsketch.laws.calibration import noise_for

    spec = dps.CountSketch(**SHAPE).spec
    (table,) = spec.tables()
    distance = table.between("replace")
    for step in range(1, 400):
        for budget in (Budget(step / 97, 0), Budget(step / 97, 1e-6)):
            noise = noise_for(budget, distance, 1 / 3)
            (cost,) = Additive(table, "replace", noise).costs()
            if hasattr(cost, "mu"):
                assert Fraction(cost.mu) >= Fraction(distance.l2) / Fraction(noise.sigma)
            else:
                assert Fraction(cost.epsilon) >= Fraction(noise.epsilon) * distance.l1 / noise.sensitivity


def test_a_stored_seizable_sketch_protects_records_only(tmp_path: Path) -> None:
    sketch = dps.PanPrivateCountSketch(**SHAPE, **BUDGET)
    document = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True)
    header = json.loads(json.dumps(document.header))
    header["spec"]["unit"] = {**header["spec"]["unit"], "level": "user"}
    with pytest.raises((FileRefused, InvalidInput)):
        dps.ContinualSketch.from_document(replace(document, header=header))


def paid(law: Law, spec: Any, budget: Budget | None = None) -> Permit:
    return Permit.pay(spec, (law,), budget or Budget(1.0, 1e-6), Account(), note="a test")


def test_noise_that_is_added_in_chunks_is_added_to_integers() -> None:
    """What is left of 0.123 after integer noise is 0.123."""
    spec = dps.CountSketch(**SHAPE).spec
    law = ClassCounters(*spec.tables(), "add_remove", RoundedGaussian(50.0))
    with pytest.raises(ReleaseRefused, match="integers"):
        paid(law, spec).draw_all(np.full((3, 16), 0.123))


def test_a_law_that_draws_nothing_has_no_permit() -> None:
    """A permit for a sum of shares would promise something of any table that it is given."""
    spec = dps.CountSketch(**SHAPE).spec
    law = MergedShares(*spec.tables(), "add_remove", Share(1, 1.0), Budget(1.0, 1e-6), 1)
    with pytest.raises(ReleaseRefused, match="draws nothing"):
        paid(law, spec, law.asked)


def test_a_stream_publishes_vectors_of_the_shape_that_was_paid_for() -> None:
    spec = dps.CountSketch(**SHAPE).spec
    law = Published(spec.tables(), (1,), "add_remove", RoundedGaussian(50.0), Banded((1,)), 1)
    with pytest.raises(ReleaseRefused, match="shape"):
        paid(law, spec).draw(law, [(PUBLICATIONS, 1, np.zeros((50, 3, 16), np.int64))])


def test_a_share_is_drawn_of_the_shape_that_was_paid_for() -> None:
    spec = dps.CountSketch(**SHAPE).spec
    law = OneShare(*spec.tables(), "add_remove", Share(4, 0.5), Budget(1.0, 1e-6))
    with pytest.raises(ReleaseRefused, match="shape"):
        paid(law, spec, law.asked).draw_all(ShareState(np.zeros((50, 3, 16), np.int64), "a party", ()))


def test_quantiles_are_drawn_of_the_shape_that_was_paid_for() -> None:
    spec = dps.QuantileSketch(quantiles=[0.5], bits=8, unit=dps.per_record()).spec
    (law,) = spec.laws(Budget(1.0, 0))
    with pytest.raises(ReleaseRefused, match="shape"):
        paid(law, spec, Budget(1.0, 0)).draw_all({law.table.name: np.ones(3, np.int64)})


def test_a_state_carries_noise_only_in_a_design_that_proves_it() -> None:
    """The noise of a state is free, because its design says how far state and publications move together."""
    stated = dps.CountSketch(**SHAPE).spec.tables(), (1,), "add_remove", RoundedGaussian(50.0)
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
    import mpmath

    spec = dps.DistinctSketch(buckets=16, unit=dps.per_record(neighbours=neighbours)).spec
    (cost,) = Flips(spec.tables()[1], neighbours, threshold).costs()
    with mpmath.workprec(200):
        shown = mpmath.mpf(threshold) / 2**63
        loss = -mpmath.log(shown) + (mpmath.log(2 - shown) if neighbours == "replace" else 0)
        assert loss <= cost.epsilon <= loss * (1 + 1e-14)

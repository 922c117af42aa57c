"""Several parties and several releases: shares of the noise, merged or refused; sums, in which a release is once."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch import accounting, files
from dpsketch.errors import CounterOverflow, FileRefused, InvalidInput, ReleaseRefused, SpecMismatch
from dpsketch.laws.shares import Share
from dpsketch.privacy import ApproximateCost
from dpsketch.sketches.countsketch.sketch import merge_releases
from ledgers import begun

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def sketch(**changes: object) -> dps.CountSketch:
    return dps.CountSketch(**{"rows": 5, "width": 2000, "unit": dps.per_record(), "key_type": "text", **changes})


def shares(
    parties: int = 10, honest: float = 1.0, budget: dict[str, float] = BUDGET, **changes: object
) -> list[dps.PrivateCountSketch]:
    made = []
    for party in range(parties):
        one = sketch(**changes)
        one.update(["tea"] * 100, users=[f"{party}-{i}" for i in range(100)] if one.spec.clip else None)
        made.append(one.release(**budget, share=Share(parties, honest, party)))
    return made


def test_ten_shares_are_one_release() -> None:
    merged, whole = merge_releases(shares()), sketch().release(**BUDGET)
    assert (merged.guarantee.epsilon, merged.guarantee.delta) == (1.0, 1e-6)
    assert merged.noise_scale == pytest.approx(whole.noise_scale, rel=0.01)
    assert merged.estimate(["tea"]).value[0] == pytest.approx(1000, abs=60)
    gaussian, gap = merged.guarantee.costs
    assert gaussian.mu == pytest.approx(whole.guarantee.costs[0].mu, rel=1e-12)
    assert isinstance(gap, ApproximateCost)
    assert gap.delta < 1e-45
    assert "no single share" in str(merged.guarantee)


def test_a_missing_party_is_refused_or_accounted_for() -> None:
    made = shares()
    with pytest.raises(ReleaseRefused, match=r"1 of 10 shares are missing.*missing=1"):
        merge_releases(made[1:])
    weaker = merge_releases(made[1:], missing=1)
    mu = accounting.gaussian_mu(1.0, 1e-6) * math.sqrt(10 / 9)
    assert weaker.guarantee.epsilon == pytest.approx(accounting.gaussian_epsilon(mu, 1e-6), rel=1e-9)
    assert weaker.estimate(["tea"]).value[0] == pytest.approx(900, abs=60)
    assert merge_releases(made, missing=3).guarantee.epsilon == 1.0


def test_nothing_is_promised_where_no_honest_party_may_be_left() -> None:
    made = shares(honest=0.3)
    assert merge_releases(made[2:], missing=2).guarantee.epsilon > 1.7
    with pytest.raises(ReleaseRefused, match="maybe none"):
        merge_releases(made[3:], missing=5)


def test_zero_concentrated_shares_promise_what_a_sum_of_rounded_shares_keeps() -> None:
    made = shares(parties=4, budget={"rho": 0.02})
    # The gap between the sum and a Gaussian is a δ, of which ρ knows nothing.
    for merged, present in ((merge_releases(made), 4), (merge_releases(made[1:], missing=1), 3)):
        mu = math.sqrt(2 * 0.02 * 4 / present)
        assert merged.guarantee.rho is None
        assert merged.guarantee.delta == 1e-6
        assert merged.guarantee.epsilon == pytest.approx(accounting.gaussian_epsilon(mu, 1e-6), rel=1e-9)
    # Where one honest party's share has to do, nothing is summed that must hide a record.
    assert merge_releases(shares(parties=4, honest=0.25, budget={"rho": 0.02})).guarantee.rho == 0.02


def test_a_party_counts_once() -> None:
    """Parties without a name are told apart by their sketches, and counted."""
    first, second, other = (sketch().release(**BUDGET, share=Share(2, 1.0, party)) for party in (0, 1, 1))
    with pytest.raises(ReleaseRefused, match="given twice"):
        merge_releases([first, second, other])
    nameless = [sketch().release(**BUDGET, share=Share(2, 1.0)) for _ in range(3)]
    assert merge_releases(nameless[:2]).guarantee.epsilon == 1.0
    with pytest.raises(ReleaseRefused, match="more than the 2"):
        merge_releases(nameless)


def pooled(*parts: dps.CountSketch) -> dps.CountSketch:
    whole = sketch()
    for part in parts:
        whole.merge(part)
    return whole


def shared(one: dps.CountSketch, party: int | None = None) -> dps.PrivateCountSketch:
    return one.release(**BUDGET, share=Share(2, 1.0, party))


def test_one_sketch_is_one_party(tmp_path: Path) -> None:
    """A record in two shares would count twice under noise that was made for once."""
    one, other = sketch(), sketch()
    one.update(["tea"])
    copied = dps.CountSketch.from_sensitive_bytes(one.to_sensitive_bytes())
    again = copied.release(**BUDGET, share=Share(2, 1.0, 1))
    again.save(tmp_path / "again.dps")
    for second in (shared(one, 1), shared(one), again, dps.load(tmp_path / "again.dps"), shared(pooled(other, one), 1)):
        with pytest.raises(ReleaseRefused, match="one sketch is in two of the shares"):
            merge_releases([shared(one, 0), second])
    first, last = shared(pooled(one, other), 0), shared(pooled(sketch(), sketch()), 1)
    assert merge_releases([first, last]).guarantee.epsilon == 1.0
    # How many partials a party merged may follow from its records, and no share tells it.
    many = shared(pooled(one, *(sketch() for _ in range(70))))
    assert len({len(share.partials) for share in (again, first, last, many)}) == 1


def test_only_what_belongs_together_is_merged() -> None:
    made = shares(parties=2)
    for other in (
        sketch(seed=9).release(**BUDGET, share=Share(2, 1.0, 1)),
        sketch().release(epsilon=1.1, delta=1e-6, share=Share(2, 1.0, 1)),
        sketch().release(**BUDGET, share=Share(3, 1.0, 1)),
        sketch().release(**BUDGET, share=Share(2, 0.5, 1)),
    ):
        with pytest.raises(SpecMismatch, match="cannot merge"):
            merge_releases([made[0], other])
    for others in ([made[0], sketch().release(**BUDGET)], []):
        with pytest.raises(ReleaseRefused, match="merges shares"):
            merge_releases(others)


def test_shares_need_gaussian_noise_and_sense() -> None:
    with pytest.raises(InvalidInput, match="shares are Gaussian"):
        sketch().release(epsilon=1.0, delta=0, share=Share(2, 1.0))
    for wrong in ({"parties": 0}, {"honest": 0}, {"honest": math.nan}, {"party": 3}):
        with pytest.raises(InvalidInput):
            Share(**{"parties": 3, "honest": 1.0, **wrong})


def test_users_must_be_at_one_party() -> None:
    made = shares(parties=2, unit=dps.per_user(max_keys=3))
    with pytest.raises(ReleaseRefused, match="disjoint_users=True"):
        merge_releases(made)
    merged = merge_releases(made, disjoint_users=True)
    assert "not checked" in str(merged.guarantee)
    assert merged.guarantee.epsilon == 1.0
    with pytest.raises(InvalidInput, match="protect records"):
        merge_releases(shares(parties=2), disjoint_users=True)


def test_counters_too_large_for_finer_steps_are_refused() -> None:
    full = sketch(rows=1)
    full.update(["tea"], counts=[2**62 - 1])
    with pytest.raises(CounterOverflow, match="finer steps"):
        full.release(epsilon=9.0, delta=1e-3, share=Share(50, 1.0))


def counts(**options: Any) -> dps.CountSketch:
    return dps.CountSketch(**{"rows": 5, "width": 64, "unit": dps.per_record(), **options})


def test_what_releases_were_made_under_holds_for_their_sum() -> None:
    unit = dps.per_user(max_keys=2)
    sketch = counts(unit=unit)
    sketch.update(["tea"], users=["ann"], disjoint_users=True)
    stated = sketch.release(**BUDGET)
    plain = counts(unit=unit, key_type="text").release(**BUDGET)
    other = counts(unit=unit, key_type="text").release(**BUDGET)
    for combined in (stated + plain, plain - stated, (plain + other) + stated):
        assert combined.guarantee.holds
        assert "not checked" in str(combined.guarantee)
        assert str(combined.guarantee).count("may be in both") == 1
    assert "not checked" not in str((plain + other).guarantee)


def test_a_sum_with_a_difference_in_it_counts_below_zero() -> None:
    """Wherever the difference is. The noise of a key passes 500 with probability below 1e-100."""
    lost, *others = (counts(key_type="text") for _ in range(3))
    lost.update(["tea"] * 1000)
    less, some, more = (each.release(**BUDGET) for each in (lost, *others))
    for combined in ((some - less) + more, more + (some - less), (some - less) - more):
        assert combined.decode(["tea"], estimator="posterior_mean").value[0] < -500
        assert combined.estimate(["tea"]).low[0] < -500


def test_a_release_is_in_a_sum_once(tmp_path: Path) -> None:
    """Added to itself its noise adds up to 2σ, and the sum would state √2·σ; subtracted, it leaves nothing."""
    first, second, third = (counts(key_type="text").release(**BUDGET) for _ in range(3))
    first.save(tmp_path / "first.dps")
    (first - second).save(tmp_path / "change.dps")
    same, change = dps.load(tmp_path / "first.dps"), dps.load(tmp_path / "change.dps")
    for combine in (
        lambda: first + first,
        lambda: first - first,
        lambda: first + same,
        lambda: (first + second) + first,
        lambda: (third + same) - first,
        lambda: change + second,
        lambda: (first + second) + (second + third),
    ):
        with pytest.raises(ReleaseRefused, match="one release is in both"):
            combine()
    assert (first + second + third).noise_scale == pytest.approx(3**0.5 * first.noise_scale)
    assert (change + third).noise_scale == pytest.approx(3**0.5 * first.noise_scale)


def test_a_sum_that_was_paid_for_once_is_refused() -> None:
    """Two releases of one spec and budget have equal laws: a file of their sum has to show two receipts."""
    first, second = (counts(key_type="text").release(**BUDGET) for _ in range(2))
    document = (first + second).to_document()
    document.header["receipts"].pop()
    document.header["guarantee"] = first.to_document().header["guarantee"]
    with pytest.raises(FileRefused):
        dps.load(files.encode(document))


def test_two_releases_that_came_out_alike_are_two(tmp_path: Path) -> None:
    """Of a single counter two draws are equal now and then; charges tell them apart."""
    ledger = begun(tmp_path / "budget.db")
    made = [
        dps.CountSketch(rows=1, width=2, unit=dps.per_record(), key_type="text").release(
            epsilon=60.0, delta=0, ledger=ledger, dataset="web"
        )
        for _ in range(2)
    ]
    assert made[0].table.tolist() == made[1].table.tolist()
    assert (made[0] + made[1]).noise_scale > made[0].noise_scale

"""Edges that a privacy review found: what is published, counted or promised where the input is odd."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
import forgery
from dpsketch import accounting, files, kinds
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused, SpecMismatch
from dpsketch.noise import seeded_noise_for_tests_only
from dpsketch.privacy import GaussianCost, PureCost
from dpsketch.sketches.weights import WeightGrid

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def counts(**options: Any) -> dps.CountSketch:
    return dps.CountSketch(**{"rows": 5, "width": 64, "unit": dps.per_record(), **options})


def sparse(**options: Any) -> dps.SparseHistogram:
    return dps.SparseHistogram(**{"unit": dps.per_record(), "expected_keys": 50, **options})


# A user with one key.


@pytest.mark.parametrize("units", [999_999_999, 2**35 + 1, 2**40])
def test_a_user_with_one_key_is_never_clipped(units: int) -> None:
    sketch = counts(unit=dps.per_user(max_keys=1, max_weight=units))
    sketch.update(["tea", "milk"], users=["ann", "bob"], weights=[units, units - 1])
    alone = counts(unit=dps.per_record(max_weight=units))
    alone.update(["tea", "milk"], weights=[units, units - 1])
    assert sketch.clipped_users == 0
    assert np.array_equal(sketch._table, alone._table)


def test_tiny_tables_clip_nobody_where_the_bound_is_the_worst_case() -> None:
    unit = dps.per_user(max_keys=2, max_weight=2**38 + 1)
    sketch = counts(rows=1, width=2, unit=unit)
    assert sketch.spec.sensitivity.l2 == 2 * (2**38 + 1)
    sketch.update(list("abcdefgh"), users=list("ppqqrrss"), weights=[2.0**38 + 1] * 8)
    assert sketch.clipped_users == 0


# The grid.


@pytest.mark.parametrize(
    ("max_weight", "step", "units"),
    [(0.3, 0.1, 3), (0.7, 0.1, 7), (1, 1e-9, 10**9), (1.1, 0.25, 4), (0.35, 0.1, 3), (2.5, 1, 2), (1 / 3, 1 / 3, 1)],
)
def test_the_bound_is_the_whole_steps_that_a_person_would_count(max_weight: float, step: float, units: int) -> None:
    assert WeightGrid(step, max_weight).max_units == units


def test_huge_weights_are_clipped_without_a_warning() -> None:
    assert WeightGrid(1e-9, 1).units([1e308], 1).tolist() == [10**9]


# What a release says of keys.


@pytest.mark.parametrize("make", [counts, sparse])
@pytest.mark.parametrize("keys", [[], [None, None], ["tea"]])
def test_whether_there_is_any_key_does_not_show_in_a_release(make: Callable[[], Any], keys: Any) -> None:
    sketch = make()
    sketch.update(keys)
    assert sketch.release(epsilon=1.0, delta=0).spec.key_type is None


@pytest.mark.parametrize("make", [counts, sparse])
def test_a_column_of_integers_without_a_record_is_one_of_integers(make: Callable[[], Any]) -> None:
    sketch = make()
    sketch.update(pa.array([], pa.int64()))
    assert sketch.release(epsilon=1.0, delta=0).spec.key_type == "int"


def test_a_pan_private_sketch_without_keys_publishes_like_one_with_a_text() -> None:
    assert pan_private().publish().spec.key_type == "text"


@pytest.mark.parametrize("make", [counts, sparse])
def test_a_key_type_is_one_of_two(make: Callable[..., Any]) -> None:
    for wrong in ("float", ["int"], 5):
        with pytest.raises(InvalidInput, match="key_type"):
            make(key_type=wrong)


# Merging.


@pytest.mark.parametrize("make", [counts, sparse])
def test_a_sketch_is_not_merged_with_itself(make: Callable[[], Any]) -> None:
    sketch = make()
    sketch.update(["tea"])
    with pytest.raises(SpecMismatch, match="itself"):
        sketch.merge(sketch)


def test_what_releases_were_made_under_holds_for_their_sum() -> None:
    unit = dps.per_user(max_keys=2)
    sketch = counts(unit=unit)
    sketch.update(["tea"], users=["ann"], disjoint_users=True)
    stated = sketch.release(**BUDGET)
    plain = counts(unit=unit, key_type="text").release(**BUDGET)
    other = counts(unit=unit, key_type="text").release(**BUDGET)
    for combined in (stated + plain, plain + stated, plain - stated, (plain + other) + stated):
        assert combined.guarantee.holds
        assert "not checked" in str(combined.guarantee)
        assert str(combined.guarantee).count("may be in both") == 1
    assert "not checked" not in str((plain + other).guarantee)


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
    plain = files.decode(files.encode(change.to_document()), allow_sensitive=False)
    assert len(plain.header["terms"]) == 2
    assert "terms" not in first.to_document().header


def test_two_releases_that_came_out_alike_are_two(tmp_path: Path) -> None:
    """Of a single counter two draws are equal now and then; charges tell them apart."""
    ledger = dps.Ledger(tmp_path / "budget.db")
    made = [
        dps.CountSketch(rows=1, width=2, unit=dps.per_record(), key_type="text").release(
            epsilon=60.0, delta=0, ledger=ledger, dataset="web"
        )
        for _ in range(2)
    ]
    assert made[0].table.tolist() == made[1].table.tolist()
    assert (made[0] + made[1]).noise_scale > made[0].noise_scale


def test_a_sum_says_why_it_promises_nothing() -> None:
    plain = counts(key_type="text").release(**BUDGET)
    with seeded_noise_for_tests_only(1):
        seeded = counts(key_type="text").release(**BUDGET)
    for combined in (plain + seeded, seeded + plain):
        assert not combined.guarantee.holds
        assert "seeded source" in str(combined.guarantee)


# Noise for tests.


def pan_private() -> dps.PanPrivateCountSketch:
    unit = dps.per_record()
    return dps.PanPrivateCountSketch(rows=5, width=64, unit=unit, epsilon=1.0, delta=1e-6, key_type="text")


def test_a_state_that_began_with_noise_for_tests_promises_nothing() -> None:
    with seeded_noise_for_tests_only(1):
        begun = pan_private()
    assert not begun.publish().guarantee.holds
    begun = pan_private()
    with seeded_noise_for_tests_only(1):
        published = begun.publish()
    assert not published.guarantee.holds
    assert pan_private().publish().guarantee.holds


# Budgets past all use.


@pytest.mark.parametrize("budget", [{"rho": 1e300}, {"rho": 10**400}, {"epsilon": 10**400, "delta": 0}])
def test_absurd_budgets_are_refused(budget: Any) -> None:
    with pytest.raises(InvalidInput):
        counts().release(**budget)


def test_a_part_that_costs_next_to_nothing_does_not_break_the_sum() -> None:
    costs = [PureCost(1.0), PureCost(0.5), GaussianCost(1e-160), GaussianCost(1e-320)]
    assert 1.49 < accounting.compose(costs, delta=1e-6) <= 1.5
    assert accounting.composed_delta(costs, epsilon=1.5) < 1e-100


# Files that someone forged.


def forged(release: Any, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Save a release, change its header, and put the digest right."""
    path = tmp_path / "forged.dps"
    release.save(path)
    data = path.read_bytes()
    envelope = forgery.envelope_of(data)
    change(envelope["header"])
    table = pa.ipc.open_stream(data).read_all()
    columns = {name: table[name].chunk(0) for name in table.column_names}
    path.write_bytes(forgery.forge(columns, envelope))
    return path


@pytest.fixture(scope="module")
def released() -> Any:
    sketch = counts()
    sketch.update(["tea"])
    return sketch.release(**BUDGET)


def test_an_unchanged_header_is_read(released: Any, tmp_path: Path) -> None:
    again = kinds.load(forged(released, tmp_path, lambda header: None))
    assert again.guarantee == released.guarantee


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", "1"), ("epsilon", -1.0), ("epsilon", True), ("epsilon", None), ("epsilon", [1]),
        ("delta", 7.0), ("delta", -1e-9), ("delta", "0"), ("delta", 1),
        ("rho", "x"), ("rho", 0), ("rho", False),
        ("holds", "no"), ("holds", 1), ("mechanism", {"a": 1}), ("mechanism", None), ("caveat", 5),
        ("costs", []), ("costs", [{"kind": "gaussian", "mu": "x"}]), ("costs", [{"kind": "gaussian", "mu": -1.0}]),
        ("costs", [{"kind": "gaussian", "mu": True}]),
        ("costs", [{"kind": "moment", "p": 0.5, "size": 2.5, "ratio": 2}]),
        ("unit", {"level": "user", "max_keys": 5, "max_weight": 1, "neighbours": "add_remove"}),
    ],
)  # fmt: skip
def test_a_guarantee_that_says_nothing_sensible_is_refused(
    released: Any, tmp_path: Path, field: str, value: Any
) -> None:
    path = forged(released, tmp_path, lambda header: header["guarantee"].update({field: value}))
    with pytest.raises(FileRefused):
        kinds.load(path)


SHARE = {"parties": 3, "honest": 1.0, "epsilon": 1.0, "delta": 1e-6, "rho": None, "finer": 1, "name": "0"}


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.update(noise=[]),
        lambda header: header["spec"].update(key_type="float"),
        lambda header: header["spec"].update(key_type=["int"]),
        lambda header: header.update(share={**SHARE, "parties": "x"}),
        lambda header: header.update(share={**SHARE, "honest": []}),
        lambda header: header.update(share={**SHARE, "name": [1]}),
    ],
)
def test_a_forged_release_of_counts_is_refused(
    released: Any, tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(FileRefused):
        kinds.load(forged(released, tmp_path, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["mechanism"].update(epsilon="x"),
        lambda header: header["mechanism"].update(delta=-1.0),
        lambda header: header["mechanism"]["projection"].update(epsilon="x"),
        lambda header: header["mechanism"]["projection"].update(seed="x"),
        lambda header: header["mechanism"]["projection"].update(seed=-4),
        lambda header: header["mechanism"]["threshold"].update(cutoff=3.5),
    ],
)
def test_a_forged_sparse_histogram_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    histogram = sparse()
    histogram.update(["tea"])
    with pytest.raises(FileRefused):
        kinds.load(forged(histogram.release(epsilon=1.0, delta=0), tmp_path, change))


@pytest.mark.parametrize(
    "make",
    [
        lambda: dps.HeavyHitters(unit=dps.per_record(), rows=3, width=64, key_bits=16),
        lambda: dps.RangeSketch(unit=dps.per_record(), bits=8),
        lambda: dps.DensitySketch(kernel=dps.kernels.Euclidean(dim=1, bandwidth=1.0), rows=3, unit=dps.per_record()),
        lambda: dps.DistinctSketch(unit=dps.per_record()),
        lambda: dps.MomentSketch(p=0.5, size=10, unit=dps.per_record()),
    ],
)
def test_no_sketch_merges_with_itself(make) -> None:
    sketch = make()
    with pytest.raises(dps.DpsketchError, match="itself"):
        sketch.merge(sketch)


def test_one_moment_secret_is_released_once() -> None:
    """Neither by merging the sketch into its partial, nor by a copy through its bytes."""
    sketch = dps.MomentSketch(p=0.5, size=20, unit=dps.per_record())
    sketch.update([1, 2, 3])
    partial = sketch.empty_like()
    with pytest.raises(dps.DpsketchError, match="Merge the partial into the sketch"):
        partial.merge(sketch)
    copied = dps.MomentSketch.from_sensitive_bytes(sketch.to_sensitive_bytes())
    sketch.release(epsilon=1.0, delta=1e-6)
    with pytest.raises(dps.DpsketchError, match="another copy"):
        copied.release(epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("neighbours", ["add_remove", "replace"])
@pytest.mark.parametrize("p", [0.25, 0.5, 1.0])
def test_padding_of_a_turnstile_stream_is_in_the_ratio(p: float, neighbours: str) -> None:
    """Brute force over single keys and weights of both signs: F_p and its padding, which may move the same way."""
    weight, total, floor = 10.0, 10.0, 7.0
    unit = dps.per_record(max_weight=weight, neighbours=neighbours)
    spec = dps.MomentSketch(p=p, size=20, unit=unit, stream="turnstile", public_total=total).spec

    def padded(values: list[float]) -> float:
        return sum(abs(value) ** p for value in values) + max(0.0, total - sum(values)) ** p + floor

    steps = np.linspace(-weight, weight, 9)
    worst = 1.0
    for base in ([], [5.0], [12.0], [-3.0, 15.0]):
        for one in steps:
            for other in steps if neighbours == "replace" else [0.0]:
                pair = padded([*base, one]), padded([*base, other])
                worst = max(worst, pair[0] / pair[1], pair[1] / pair[0])
    assert worst <= spec.ratio(floor)
    if p == 1.0:
        assert worst > 1 + 0.9 * weight**p / (floor + total**p)


def test_no_release_tells_an_empty_stream_by_its_key_type() -> None:
    budget = {"epsilon": 1.0, "delta": 1e-6}
    makers = [
        lambda: dps.CountSketch(rows=3, width=8, unit=dps.per_record()),
        lambda: dps.MomentSketch(p=0.5, size=10, unit=dps.per_record()),
        lambda: dps.DistinctSketch(unit=dps.per_record()),
    ]
    for make in makers:
        empty, one = make(), make()
        empty.update([])
        one.update(["a"])
        assert empty.release(**budget).spec == one.release(**budget).spec
    shows = dps.DensitySketch(kernel=dps.kernels.Jaccard(), rows=3, unit=dps.per_record())
    assert shows.release(**budget).spec.key_type is None


def test_a_sketch_that_was_never_given_a_batch_answers_for_either_type() -> None:
    private = dps.CountSketch(rows=3, width=8, unit=dps.per_record()).release(epsilon=1.0, delta=0)
    assert len(private.estimate([1, 2])) == len(private.estimate(["a", "b"])) == 2

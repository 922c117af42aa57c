"""The moment sketch: what it takes, refuses, merges, writes and forgets."""

from __future__ import annotations

import json
import logging
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsketch import files, noise
from dpsketch.errors import (
    BudgetExceeded,
    DpsketchError,
    FileRefused,
    InvalidInput,
    ReleaseRefused,
    SensitiveData,
    SpecMismatch,
)
from dpsketch.laws.stable import Floor
from dpsketch.ledger import Ledger
from dpsketch.privacy import Budget, MomentCost, Unit, per_record, per_user
from dpsketch.sketches.moment import (
    MomentProfile,
    MomentProfileSpec,
    MomentSketch,
    MomentSketchAsPublished,
    MomentSpec,
    PrivateMoment,
    PrivateMomentProfile,
)
from dpsketch.sketches.moment.sketch import _RELEASED
from oracles import moment as oracle

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def sketch(**changed: Any) -> MomentSketch:
    return MomentSketch(**{"p": 0.5, "size": 64, "unit": per_record(), **changed})


def expected_sums(built: MomentSketch, totals: dict[int, float]) -> np.ndarray:
    """What the sums must be, by the oracle, for integer keys with these totals."""
    from dpsketch.hashing import fingerprint

    assert built._secrets is not None
    secret = built._secrets[0].reveal_for_sensitive_file().tolist()
    prints = fingerprint(list(totals)).fingerprints.tolist()
    spec = built.spec
    return np.array(
        [
            float(
                sum(
                    w * oracle.variate(secret, key, row, spec.size, spec.p)
                    for key, w in zip(prints, totals.values(), strict=True)
                )
            )
            for row in range(spec.size)
        ]
    )


def test_sums_are_the_projection_of_the_totals() -> None:
    built = sketch(size=20, unit=per_record(max_weight=5))
    built.update([7, 8, 7, 9], weights=[1.5, 2, 90, 0])
    built.update([8], counts=[3])
    np.testing.assert_allclose(built._sums[0][:20], expected_sums(built, {7: 6.5, 8: 5.0}), rtol=1e-9)


def test_turnstile_weights_cancel() -> None:
    built = sketch(size=20, stream="turnstile", unit=per_record(max_weight=5))
    built.update([7, 8, 7], weights=[3, -2, -90])
    np.testing.assert_allclose(built._sums[0][:20], expected_sums(built, {7: -2.0, 8: -2.0}), rtol=1e-9)


def test_users_are_bounded() -> None:
    built = sketch(size=20, unit=per_user(max_keys=2, max_weight=3))
    built.update([1, 1, 1, 1, 2], users=["a", "a", "a", "a", "b"])
    np.testing.assert_allclose(built._sums[0][:20], expected_sums(built, {1: 3.0, 2: 1.0}), rtol=1e-9)
    with pytest.raises(InvalidInput, match="counted before"):
        built.update([5], users=["a"])
    built.update([1, 2, 3, 4, 5, 6], users=["c"] * 6)
    assert built._total == 4  # two keys of c were kept
    assert "not checked" not in built.release(**BUDGET).guarantee.caveat


def test_disjoint_users_are_stated_in_the_release() -> None:
    built = sketch(unit=per_user(max_keys=2))
    built.update([1], users=["a"], disjoint_users=True)
    assert "not checked" in str(built.release(**BUDGET).guarantee)


def test_a_release_ends_the_sketch_and_overwrites_its_secret() -> None:
    built = sketch()
    built.update(["a", "b"])
    partial = built.empty_like()
    assert built._secrets is not None
    words, sums = built._secrets[0]._words, built._sums
    assert words is not None
    assert words.any()
    assert sums.any()
    private = built.release(**BUDGET)
    assert not words.any()
    assert not sums.any()
    assert built._secrets is None
    assert built._checks == []
    for use in (
        lambda: built.release(**BUDGET),
        lambda: built.update(["c"]),
        lambda: built.merge(partial),
        lambda: partial.merge(built),
        lambda: built.empty_like(),
        lambda: built.to_sensitive_bytes(),
    ):
        with pytest.raises(ReleaseRefused, match="released, which ends it"):
            use()
    with pytest.raises(ReleaseRefused, match="destroyed"):
        partial.update(["c"])
    assert "ended" in repr(built)
    assert private.guarantee.holds


def test_no_secret_in_reprs_errors_logs_or_releases(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    built = sketch()
    built.update(["a"])
    assert built._secrets is not None
    key = built._secrets[0].reveal_for_sensitive_file()
    texts = [repr(built), repr(built._secrets), str(built.spec.to_json())]
    for wrong in ({"keys": ["b"], "users": ["u"]}, {"keys": [1]}, {"keys": ["b"], "weights": [-1]}):
        with pytest.raises(DpsketchError) as caught:
            built.update(wrong.pop("keys"), **wrong)
        texts.append(str(caught.value))
    plain = built.to_sensitive_bytes()
    private = built.release(**BUDGET)
    private.save(tmp_path / "m.dps")
    texts += [repr(private), str(private.guarantee), caplog.text]
    for data in (plain, (tmp_path / "m.dps").read_bytes()):
        assert key.tobytes() not in data
    hidden = {f"{int(word)}" for word in key} | {f"{int(word):08x}" for word in key} | {key.tobytes().hex()}
    for text in texts:
        assert not any(word in text for word in hidden)


def test_partials_merge_into_their_sketch_and_are_not_released() -> None:
    whole = sketch(size=200)
    one, two = whole.empty_like(), whole.empty_like()
    keys = np.arange(3000) % 700
    reference = whole.empty_like()
    reference.update(keys)
    one.update(keys[:1000])
    two.update(keys[1000:2500])
    whole.update(keys[2500:])
    one.merge(two)
    with pytest.raises(ReleaseRefused, match="partial"):
        one.release(**BUDGET)
    whole.merge(one)
    np.testing.assert_allclose(whole._sums, reference._sums, rtol=1e-9, atol=1e-9 * np.abs(whole._sums).max())
    assert whole._total == 3000
    assert whole.release(**BUDGET).guarantee.holds


def test_sketches_with_other_secrets_or_specs_do_not_merge() -> None:
    with pytest.raises(SpecMismatch, match="different secrets"):
        sketch().merge(sketch())
    first = sketch()
    first.update(["a"])
    second = first.empty_like()
    second._spec = MomentSpec(0.5, 64, per_record(), seed=9)
    with pytest.raises(SpecMismatch, match="seed"):
        first.merge(second)
    with pytest.raises(SpecMismatch):
        first.merge("no sketch")  # type: ignore[arg-type]


@pytest.mark.parametrize("include_secret", [True, False])
@pytest.mark.parametrize("unit", [per_record(), per_user(max_keys=3)])
def test_sensitive_files_round_trip(include_secret: bool, unit: Unit, tmp_path: Path) -> None:
    built = sketch(unit=unit)
    more = {} if unit.level == "record" else {"users": ["u", "v"]}
    built.update(["a", None], **more)
    built.save_sensitive(tmp_path / "part.sketch", include_secret=include_secret)
    data = (tmp_path / "part.sketch").read_bytes()
    assert data == built.to_sensitive_bytes(include_secret=include_secret)
    with pytest.raises(SensitiveData):
        files.decode(data, allow_sensitive=False)
    again = MomentSketch.from_sensitive_bytes(data)
    assert again.spec == built.spec
    assert again.skipped_nulls == 1
    np.testing.assert_array_equal(again._sums, built._sums)
    if include_secret:
        later = {} if unit.level == "record" else {"users": ["w"]}
        part = again.empty_like()
        part.update(["b"], **later)
        built.merge(part)
    else:
        with pytest.raises(InvalidInput, match="without its secret"):
            again.update(["b"], **({} if unit.level == "record" else {"users": ["w"]}))
        with pytest.raises(InvalidInput, match="without its secret"):
            again.empty_like()
        with pytest.raises(InvalidInput, match="without its secret"):
            again.to_sensitive_bytes(include_secret=True)
        part = MomentSketch.from_sensitive_bytes(built.empty_like().to_sensitive_bytes())
        again.merge(part)
    assert again.release(**BUDGET).guarantee.holds


def test_forged_files_are_refused() -> None:
    built = sketch()
    built.update(["a"])
    good = files.decode(built.to_sensitive_bytes(include_secret=True), allow_sensitive=True)
    sums, secrets = good.arrays["sums"], np.array(good.arrays["secrets"])
    for header, arrays in (
        ({}, {"sums": sums[:, :-1], "secrets": secrets}),
        ({}, {"sums": sums.astype(np.float32), "secrets": secrets}),
        ({}, {"sums": sums, "secrets": secrets ^ np.uint32(1)}),
        ({}, {"sums": sums, "secrets": secrets[:, :4]}),
        ({}, {"sums": sums, "secrets": np.concatenate([secrets, secrets])}),
        ({"checks": "one"}, {"sums": sums, "secrets": secrets}),
        # A sketch of one moment has one.
        ({"others": [1.0], "checks": good.header["checks"] * 2}, {"sums": np.concatenate([sums, sums])}),
    ):
        with pytest.raises(FileRefused):
            MomentSketch.from_document(files.Document("moment", True, {**good.header, **header}, arrays))


def test_releases_round_trip(tmp_path: Path) -> None:
    built = sketch(size=200)
    built.update(np.arange(500))
    private = built.release(**BUDGET, estimator="geometric")
    private.save(tmp_path / "m.dps")
    again = PrivateMoment.from_document(files.read(tmp_path / "m.dps", allow_sensitive=False))
    assert (again.value, again.low, again.high, again.spec) == (private.value, private.low, private.high, private.spec)
    assert again.guarantee == private.guarantee
    assert pickle.loads(pickle.dumps(private)).value == private.value
    document = private.to_document()
    for scale in (np.array([-1.0]), np.array([np.nan]), np.array([1]), np.array([1.0, 2.0])):
        with pytest.raises(FileRefused):
            PrivateMoment.from_document(replace(document, arrays={"F_0_5__scale": scale}))


def test_only_a_rounded_scalar_is_released() -> None:
    built = sketch(size=200)
    built.update(np.arange(500))
    private = built.release(**BUDGET)
    assert private.scale == float(f"{private.scale:.2e}")
    assert private.value == float(f"{private.value:.3e}")
    assert {name: array.size for name, array in private.to_document().arrays.items()} == {"F_0_5__scale": 1}
    fine = sketch(size=2000)
    fine.update(np.arange(500))
    assert "4 digits" in fine.release(**BUDGET).guarantee.mechanism


def test_intervals_hold_the_value_and_grow_with_confidence() -> None:
    built = sketch(size=200)
    built.update(np.arange(5000))
    private = built.release(**BUDGET)
    (low, high), (lower, higher) = private.interval(0.5), private.interval(0.99)
    assert lower < private.low < low < private.value < high < private.high < higher
    assert private.error == pytest.approx((private.high - private.low) / 3.92, rel=0.05)
    with pytest.raises(InvalidInput):
        private.interval(1.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"p": 0.05}, "at least 0.1 for an insert-only stream"),
        ({"p": 0.2, "stream": "turnstile"}, "at least 0.25 for a turnstile stream"),
        ({"p": 0.995}, "at most 0.99"),
        ({"p": 1.5}, "above 1 the sketch is not private"),
        ({"p": 0}, "must lie in"),
        ({"p": "a"}, "must be a number"),
        ({"size": 9}, "size must lie between"),
        ({"stream": "both"}, "stream is"),
        ({"public_total": -1}, "public_total"),
        ({"public_total": "a"}, "public_total"),
        ({"public_total": 5, "unit": per_record(max_weight=0.5)}, "max_weight is below 1"),
        ({"stream": "turnstile", "unit": per_user(max_keys=2)}, "protects records"),
        ({"unit": "me"}, "unit must be"),
    ],
)
def test_impossible_specs_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        sketch(**changed)


@pytest.mark.parametrize(
    ("made", "update", "message"),
    [
        ({}, {"keys": [1.5]}, "cannot be counted"),
        ({"public_total": 3}, {"keys": ["a"], "weights": [0.5]}, "weight 1 or more"),
        ({"grid": 1}, {"keys": ["a"], "weights": [0.5]}, "fractions"),
    ],
)
def test_bad_records_are_refused_and_nothing_is_added(
    made: dict[str, Any], update: dict[str, Any], message: str
) -> None:
    built = sketch(**made)
    with pytest.raises(InvalidInput, match=message):
        built.update(update.pop("keys"), **update)
    assert not built._sums.any()
    assert built._total == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 1.0}, "delta"),
        ({"epsilon": -1, "delta": 0}, "epsilon"),
        ({**BUDGET, "estimator": "mode"}, "estimator is one of"),
        ({**BUDGET, "estimator": "harmonic"}, "below 0.5"),
        ({**BUDGET, "ledger": "sqlite://"}, "dataset"),
    ],
)
def test_a_refused_release_leaves_the_sketch_alive(options: dict[str, Any], message: str) -> None:
    built = sketch()
    with pytest.raises(InvalidInput, match=message):
        built.release(**options)
    assert built.release(**BUDGET).guarantee.holds


@pytest.mark.parametrize("make", [sketch, lambda: MomentProfile(p=[0.5, 1], size=20, unit=per_record())])
def test_a_ledger_pays_for_one_release_of_a_secret(make: Any, tmp_path: Path) -> None:
    """Two copies, released by two processes, would give away what they were not charged for."""
    ledger = Ledger(tmp_path / "budget.db")
    ledger.create("small", epsilon=0.1, delta=1e-6, unit=per_record())
    ledger.create("web", epsilon=9.0, delta=1e-5, unit=per_record())
    one = make()
    copies = [type(one).from_sensitive_bytes(one.to_sensitive_bytes()) for _ in range(3)]
    with pytest.raises(BudgetExceeded):
        one.release(**BUDGET, ledger=ledger, dataset="small")
    one.release(**BUDGET, ledger=ledger, dataset="web")
    _RELEASED.clear()  # as another process knows of it
    for copied, dataset in zip(copies, ("web", "web", "elsewhere"), strict=True):
        with pytest.raises(ReleaseRefused, match=r"was charged before.*Nothing was charged"):
            copied.release(epsilon=0.5, delta=1e-6, ledger=ledger, dataset=dataset)
    assert ledger.spent("web").releases == 1
    assert "elsewhere" not in ledger.datasets()
    make().release(**BUDGET, ledger=ledger, dataset="web")
    assert ledger.verify() == []
    assert not any(one_of(copies[0]) in path.read_bytes() for path in tmp_path.iterdir())


def one_of(built: Any) -> bytes:
    return str(built._checks[0]).encode()


def test_seeded_secrets_promise_nothing() -> None:
    with noise.seeded_noise_for_tests_only(1):
        built = sketch()
        built.update(["a"])
        data = built.to_sensitive_bytes()
    for each in (built, MomentSketch.from_sensitive_bytes(data)):
        private = each.release(**BUDGET)
        assert not private.guarantee.holds
        assert "NOT PRIVATE" in str(private.guarantee)
    fresh = sketch()
    with noise.seeded_noise_for_tests_only(1):
        assert not fresh.release(**BUDGET).guarantee.holds


def floor_of(spec: MomentSpec, *budget: float | None) -> Floor:
    (found,) = spec.laws(Budget(*budget))
    return found


def paid(law: Floor) -> MomentCost:
    (cost,) = law.costs()
    assert isinstance(cost, MomentCost)
    return cost


def test_the_floor_is_what_the_budget_needs() -> None:
    spec = MomentSpec(0.5, 200, per_record(max_weight=16))
    for budget in ((1.0, 1e-6, None), (1.0, 0.0, None), (None, None, 0.05)):
        found = floor_of(spec, *budget)
        assert paid(found).ratio >= spec.ratio(found.height)
        assert spec.ratio(0.999 * found.height) > paid(found).ratio
        # No ratio can be stated that is below the one that follows from the floor.
        assert paid(replace(found, ratio=1.0)).ratio == spec.ratio(found.height)
        assert paid(replace(found, height=found.height / 2)).ratio == spec.ratio(found.height / 2)
    assert floor_of(spec, 1.0, 1e-6).height == pytest.approx(4 * 51.5, rel=0.01)  # MATH: 51.5·M^p


def test_public_totals_lower_the_floor_and_are_enforced_by_padding() -> None:
    unit = per_record(neighbours="replace")
    known = MomentSpec(0.5, 200, unit, public_total=10_000)
    assert floor_of(known, 1.0, 1e-6).height == 0
    assert paid(floor_of(known, 1.0, 1e-6)).ratio == pytest.approx(1 + 1 / 10_000**0.5, rel=1e-9)
    some = MomentSpec(0.5, 200, unit, public_total=900)
    nothing = MomentSpec(0.5, 200, unit)
    gap = floor_of(nothing, 1.0, 1e-6).height - floor_of(some, 1.0, 1e-6).height
    assert gap == pytest.approx(30, rel=1e-6)
    built = MomentSketch(p=0.5, size=200, unit=unit, public_total=1_000_000)
    built.update(["a"] * 10)
    private = built.release(**BUDGET)
    assert private.floor == 0
    # Ten records padded by 999,990 of another key.
    assert private.value == pytest.approx(10**0.5 + 999_990**0.5, rel=0.5)


def test_a_profile_has_one_composed_charge(tmp_path: Path) -> None:
    from dpsketch import accounting

    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db")
    ledger.create("web", epsilon=2.0, delta=1e-6, unit=per_record())
    profile = MomentProfile(p=[0.25, 0.5, 1], size=50, unit=per_record())
    part = MomentProfile.from_sensitive_bytes(profile.to_sensitive_bytes(include_secret=True)).empty_like()
    previews = profile.preview(epsilon=2.0, delta=1e-6)
    assert [p.guarantee.epsilon for p in previews] == [2.0] * 3
    profile.update(np.arange(4000))
    part.update(np.arange(2000), weights=np.ones(2000))
    profile.merge(part)
    private = profile.release(epsilon=2.0, delta=1e-6, ledger=ledger, dataset="web")
    assert private.charge is not None
    costs = private.guarantee.costs
    assert [cost.p for cost in costs if isinstance(cost, MomentCost)] == [0.25, 0.5, 1]
    assert 0.99 * 2 < accounting.compose(costs, delta=1e-6) <= 2
    assert private[0.5].value == pytest.approx(2000 + 2000 * 2**0.5, rel=1)
    private.save(tmp_path / "profile.dps")
    again = PrivateMomentProfile.from_document(files.read(tmp_path / "profile.dps", allow_sensitive=False))
    assert again.curve().value.tolist() == private.curve().value.tolist()
    assert again.curve().key == [0.25, 0.5, 1]
    with pytest.raises(InvalidInput):
        private[0.75]
    with pytest.raises(ReleaseRefused):
        profile.release(epsilon=1.0, delta=1e-6)
    with pytest.raises(ReleaseRefused, match="partial"):
        part.release(epsilon=1.0, delta=1e-6)
    for wrong in ([], [0.5, 0.5], [0.1 + i / 100 for i in range(65)]):
        with pytest.raises(InvalidInput, match="exponent"):
            MomentProfile(p=wrong, size=50, unit=per_record())


def test_pure_and_concentrated_shares_add() -> None:
    spec = MomentProfileSpec(MomentSpec(0.5, 50, per_record()), (1.0,))
    pure = [paid(law) for law in spec.laws(Budget(1.0, 0.0))]
    assert sum(cost.size / cost.p * np.log(cost.ratio) for cost in pure) == pytest.approx(1.0, rel=1e-9)
    concentrated = [paid(law) for law in spec.laws(Budget(rho=0.1))]
    total = sum(cost.size * ((1 + 1 / cost.p) * np.log(cost.ratio)) ** 2 / 8 for cost in concentrated)
    assert total == pytest.approx(0.1, rel=1e-9)


FORGERIES: dict[str, Any] = {
    "a lower floor": lambda law: law.update(height=law["height"] / 2),
    "a floor below 0": lambda law: law.update(height=-1.0),
    "a smaller ratio": lambda law: law.update(ratio=1.0, height=law["height"] / 2),
    "a finer grid": lambda law: law["table"].update(step=law["table"]["step"] / 4),
    "a public total": lambda law: law["table"].update(public_total=1e6),
    "more sums": lambda law: law["table"].update(sums=4),
    "an estimator that has no variance": lambda law: law.update(estimator="harmonic"),
    "a plain table": lambda law: law.update(table={k: law["table"][k] for k in ("name", "shape", "move")}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_moment_is_refused(forgery: str) -> None:
    document = sketch().release(**BUDGET).to_document()
    header = json.loads(json.dumps(document.header))
    FORGERIES[forgery](header["receipts"][0]["laws"][0])
    with pytest.raises(FileRefused):
        PrivateMoment.from_document(replace(document, header=header))


def test_the_published_form_says_that_it_does_not_hold() -> None:
    published = MomentSketchAsPublished(p=0.5, size=50, unit=per_record(max_weight=16), records=2**15, keys=2**20)
    published.update(np.arange(1000), weights=np.full(1000, 2.0))
    private = published.release_as_published()
    assert not private.guarantee.holds
    assert private.guarantee.epsilon == pytest.approx(1.387, rel=1e-3)
    assert "NOT PRIVATE" in repr(private)
    with pytest.raises(InvalidInput, match="as published"):
        private.to_document()
    with pytest.raises(ReleaseRefused):
        published.release_as_published()
    for wrong in ({"rate": 0}, {"records": 1}, {"unit": per_user(max_keys=2)}):
        with pytest.raises(InvalidInput):
            MomentSketchAsPublished(**{"p": 0.5, "size": 50, "unit": per_record(), "records": 9, "keys": 9, **wrong})

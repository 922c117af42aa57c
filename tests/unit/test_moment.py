"""The moment sketch: what it takes, refuses, merges, writes and forgets; its compiled loops."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsketch import files
from dpsketch.errors import DpsketchError, FileRefused, InvalidInput, ReleaseRefused
from dpsketch.hashing import fingerprint
from dpsketch.ledger import Ledger
from dpsketch.privacy import per_record, per_user
from dpsketch.sketches.moment import MomentProfile, MomentSketch, MomentSketchAsPublished, PrivateMoment
from dpsketch.sketches.moment.sketch import _RELEASED
from oracles import moment as oracle

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def sketch(**changed: Any) -> MomentSketch:
    return MomentSketch(**{"p": 0.5, "size": 64, "unit": per_record(), **changed})


def expected_sums(built: MomentSketch, totals: dict[int, float]) -> np.ndarray:
    """What the sums must be, by the oracle, for integer keys with these totals."""
    assert built._secrets is not None
    secret, size, p = built._secrets[0].reveal_for_sensitive_file().tolist(), built.spec.size, built.spec.p
    prints = fingerprint(list(totals)).fingerprints.tolist()
    variates = [[float(oracle.variate(secret, key, row, size, p)) for row in range(size)] for key in prints]
    return np.array(list(totals.values())) @ np.array(variates)


@pytest.mark.parametrize(("p", "size"), [(0.1, 12), (0.25, 51), (0.5, 20), (0.75, 51), (1.0, 51)])
def test_sums_are_the_projection_of_the_totals(p: float, size: int) -> None:
    """Of weights that are clipped, with signs that cancel, and of users."""

    def holds(built: MomentSketch, totals: dict[int, float]) -> None:
        np.testing.assert_allclose(built._sums[0][:size], expected_sums(built, totals), rtol=1e-9)

    built = sketch(p=p, size=size, unit=per_record(max_weight=5))
    built.update([7, 8, 7, 9], weights=[1.5, 2, 90, 0])
    built.update([8], counts=[3])
    holds(built, {7: 6.5, 8: 5.0})
    if p >= 0.25:
        built = sketch(p=p, size=size, stream="turnstile", unit=per_record(max_weight=5))
        built.update([7, 8, 7], weights=[3, -2, -90])
        holds(built, {7: -2.0, 8: -2.0})
    built = sketch(p=p, size=size, unit=per_user(max_keys=2, max_weight=3))
    built.update([1, 1, 1, 1, 2], users=["a", "a", "a", "a", "b"])
    holds(built, {1: 3.0, 2: 1.0})
    built.update([1, 2, 3, 4, 5, 6], users=["c"] * 6)
    assert built._total == 4  # two keys of c were kept


def test_the_cipher_of_the_oracle_is_the_published_one() -> None:
    """RFC 8439, section 2.3.2."""
    key, nonce = np.arange(32, dtype=np.uint8).view("<u4").tolist(), [0x09000000, 0x4A000000, 0]
    assert np.array(oracle.chacha_block(key, 1, nonce), "<u4").tobytes().hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


def test_a_release_ends_the_sketch_and_overwrites_its_secret() -> None:
    built = sketch()
    built.update(["a", "b"])
    partial = built.empty_like()
    assert built._secrets is not None
    held = built._secrets[0]._words, built._sums
    assert all(array is not None and array.any() for array in held)
    private = built.release(**BUDGET)
    assert not any(array is None or array.any() for array in held)
    for use in (lambda: built.update(["c"]), lambda: partial.merge(built), built.to_sensitive_bytes):
        with pytest.raises(ReleaseRefused, match="released, which ends it"):
            use()
    with pytest.raises(ReleaseRefused, match="destroyed"):
        partial.update(["c"])
    assert private.guarantee.holds


def test_no_secret_in_reprs_errors_logs_or_releases(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.DEBUG)
    built = sketch()
    built.update(["a"])
    assert built._secrets is not None
    key = built._secrets[0].reveal_for_sensitive_file()
    texts = [repr(built), repr(built._secrets), str(built.spec.to_json())]
    with pytest.raises(DpsketchError) as caught:
        built.update(["b"], weights=[-1])
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


def test_partials_are_not_released() -> None:
    """Nor after they were written and read, with the secret or without it."""
    for whole in (sketch(), MomentProfile(p=[0.5, 1], size=50, unit=per_record())):
        part = whole.empty_like()
        written = (part.to_sensitive_bytes(include_secret=included) for included in (True, False))
        for partial in (part, *map(type(whole).from_sensitive_bytes, written)):
            with pytest.raises(ReleaseRefused, match="partial"):
                partial.release(**BUDGET)


def test_a_file_without_the_secret_merges_and_is_released_and_takes_no_records() -> None:
    built = sketch()
    built.update(["a", None])
    again = MomentSketch.from_sensitive_bytes(built.to_sensitive_bytes())
    np.testing.assert_array_equal(again._sums, built._sums)
    for use in (lambda: again.update(["b"]), again.empty_like):
        with pytest.raises(InvalidInput, match="without its secret"):
            use()
    again.merge(MomentSketch.from_sensitive_bytes(built.empty_like().to_sensitive_bytes()))
    assert again.release(**BUDGET).guarantee.holds


def test_forged_files_are_refused() -> None:
    built = sketch()
    built.update(["a"])
    good = files.decode(built.to_sensitive_bytes(include_secret=True), allow_sensitive=True)
    sums, secrets = good.arrays["sums"], np.array(good.arrays["secrets"])
    for header, arrays in (
        ({}, {"sums": sums[:, :-1], "secrets": secrets}),
        ({}, {"sums": sums, "secrets": secrets ^ np.uint32(1)}),
        ({}, {"sums": sums, "secrets": np.concatenate([secrets, secrets])}),
        # A sketch of one moment has one.
        ({"others": [1.0], "checks": good.header["checks"] * 2}, {"sums": np.concatenate([sums, sums])}),
    ):
        with pytest.raises(FileRefused):
            MomentSketch.from_document(files.Document("moment", True, {**good.header, **header}, arrays))


def test_only_a_rounded_scalar_is_released() -> None:
    built = sketch()
    built.update(np.arange(500))
    private = built.release(**BUDGET)
    assert private.scale == float(f"{private.scale:.2e}")
    assert private.value == float(f"{private.value:.3e}")
    assert {name: array.size for name, array in private.to_document().arrays.items()} == {"F_0_5__scale": 1}


def test_impossible_specs_are_refused() -> None:
    wrongs: list[dict[str, Any]] = [{"p": 0.05}, {"p": 0.995}, {"size": 9}, {"public_total": -1}]
    for wrong in (*wrongs, {"p": 0.2, "stream": "turnstile"}, {"stream": "turnstile", "unit": per_user(max_keys=2)}):
        with pytest.raises(InvalidInput):
            sketch(**wrong)


def test_records_that_a_public_total_counts_and_that_did_not_come_are_padded() -> None:
    """A public total needs no noise: 10 records alone would have √10, and with all others of one key, 1,003."""
    unit, total = per_record(neighbours="replace"), 1_000_000
    made = (
        sketch(unit=unit, size=200, public_total=total),
        sketch(unit=unit, size=200, public_total=total, stream="turnstile"),
        MomentProfile(p=[0.5, 1], size=200, unit=unit, public_total=total),
    )
    for built in made:
        if built.spec.stream == "insert":
            with pytest.raises(InvalidInput, match="weight 1 or more"):
                built.update(["a"], weights=[0.5])
        built.update(["a"] * 10)
    alone, signed, profile = (built.release(**BUDGET) for built in made)
    for private in (alone, signed, profile[0.5]):
        assert private.floor == 0
        assert 300 < private.value < 3000  # 99.7% less or 3 times as much is more than ten deviations


@pytest.mark.parametrize("make", [sketch, lambda: MomentProfile(p=[0.5, 1], size=20, unit=per_record())])
def test_a_ledger_pays_for_one_release_of_a_secret(make: Any, tmp_path: Path) -> None:
    """Two copies, released by two processes, would give away what they were not charged for."""
    ledger = Ledger(tmp_path / "budget.db")
    ledger.create("web", epsilon=9.0, delta=1e-5, unit=per_record())
    one = make()
    copies = [type(one).from_sensitive_bytes(one.to_sensitive_bytes()) for _ in range(3)]
    one.release(**BUDGET, ledger=ledger, dataset="web")
    _RELEASED.clear()  # as another process knows of it
    for copied, dataset in zip(copies, ("web", "web", "elsewhere"), strict=True):
        with pytest.raises(ReleaseRefused, match=r"was charged before.*Nothing was charged"):
            copied.release(epsilon=0.5, delta=1e-6, ledger=ledger, dataset=dataset)
    assert ledger.spent("web").releases == 1
    assert "elsewhere" not in ledger.datasets()
    check = str(copies[0]._checks[0]).encode()
    assert not any(check in path.read_bytes() for path in tmp_path.iterdir())


FORGERIES: dict[str, Any] = {
    "a lower floor": lambda law: law.update(height=law["height"] / 2),
    "a smaller ratio": lambda law: law.update(ratio=1.0, height=law["height"] / 2),
    "a finer grid": lambda law: law["table"].update(step=law["table"]["step"] / 4),
    "a public total": lambda law: law["table"].update(public_total=1e6),
    "an estimator that has no variance": lambda law: law.update(estimator="harmonic"),
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

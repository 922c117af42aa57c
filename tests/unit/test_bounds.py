"""A bound on a user's keys that a release chooses: what is chosen, what is told of it, and who may ask for it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.core.account import Account
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.laws.choice import tables
from dpsketch.laws.chosen import Choice
from dpsketch.sketches.countsketch.spec import CountSketchSpec
from dpsketch.sketches.histogram.calibration import choice_laws
from dpsketch.sketches.histogram.spec import HistogramSpec
from ledgers import begun

AUTO = dps.per_user("auto")
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def filled(held: Any, keys: int = 500, seed: int = 1) -> tuple[dps.Histogram, np.ndarray]:
    """Users with so many different keys each, drawn at random."""
    rng = np.random.default_rng(seed)
    drawn = [rng.choice(keys, size, replace=False) for size in held]
    histogram = dps.Histogram(unit=AUTO, key_type="int")
    histogram.update(np.concatenate(drawn), users=np.repeat(np.arange(len(drawn)), held))
    return histogram, np.bincount(np.concatenate(drawn), minlength=keys)


def choice_of(held: np.ndarray, epsilon: float) -> Choice:
    exact = tables(held, np.zeros(len(held), np.int64), 1)
    laws = choice_laws(epsilon, "add_remove")
    noisy = {law.name: table + law.noise.sample(table.size) for table, law in zip(exact, laws, strict=True)}
    return Choice.of(laws, noisy)


@pytest.mark.parametrize("listed", [True, False])
def test_a_release_chooses_near_the_best_bound(listed: bool) -> None:
    """All users have 12 keys: fewer than 11 cuts much, more than 16 (the next range's end) gains nothing."""
    histogram, counts = filled([12] * 4000, keys=40)
    release = histogram.release(**BUDGET, keys=list(range(40)) if listed else None)
    assert 11 <= release.bound <= 16
    assert f"at most {release.bound} published keys counted each" in release.counts
    assert release.keys == list(range(40))
    off = release.values - np.minimum(1, release.bound / 12) * counts
    assert np.sqrt(np.mean(off**2)) < 1.5 * math.sqrt(release.noise.variance)


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.015, 0.5])
def test_the_share_that_was_cut_is_in_its_interval(epsilon: float) -> None:
    """It misses in 5% of cases at most: of 150, more than 18 with a probability below 1e-3, and seeds are fixed."""
    rng = np.random.default_rng(int(1000 * epsilon))
    held = np.minimum(np.round(4 * (1 + rng.pareto(1.3, 20_000))), 4096).astype(np.int64)
    missed, width = 0, []
    for run in range(150):
        bound = (3, 8, 20)[run % 3]
        told = choice_of(held, epsilon).cut(bound)
        below = held[held <= told.up_to]
        cut = np.maximum(below - bound, 0).sum() / max(1, below.sum())
        missed += not (told.share.low <= cut <= told.share.high and int((held > told.up_to).sum()) <= told.beyond)
        width.append(told.share.high - told.share.low)
        assert told.share.low <= told.share.value <= told.share.high
    assert missed <= 18
    # It says something: at the largest ε what is left is the width of the ranges.
    assert np.mean(width) < {0.015: 0.75, 0.5: 0.3}[epsilon]


@pytest.mark.statistical
@pytest.mark.parametrize("most", [4096, 50_000])
def test_the_last_range_has_no_end(most: int) -> None:
    """Its users may have any number of keys, so that they are in no share; a miss has a probability below 1%."""
    held = np.repeat([10, most], [20_000, 500])
    told = choice_of(held, 5.0).cut(8, confidence=0.99)
    below = held[held <= told.up_to]
    assert told.share.low <= np.maximum(below - 8, 0).sum() / below.sum() <= told.share.high
    assert 500 <= told.beyond <= 520
    assert f"more than {told.up_to} keys" in told.words


# What a forger does to the law of a list with a chosen bound; that of names is forged in tests/contract.
FORGERIES: dict[str, Any] = {
    "less noise": lambda law: law["counts"]["noises"][0].update(sigma=law["counts"]["noises"][0]["sigma"] / 2),
    "fewer keys": lambda law: law["counts"].update(keys=2),
    "less noise of the choice": lambda law: law["choice"][0]["noise"].update(epsilon=0.2),
    "a smaller move of the choice": lambda law: law["choice"][1]["table"]["move"].update(l1=2),
    "half of the choice": lambda law: law["choice"].pop(),
    "a smaller budget": lambda law: law.update(epsilon=1.0),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_file_that_claims_what_was_not_paid_is_refused(forgery: str) -> None:
    histogram, _ = filled([12] * 3000, keys=40)
    document = histogram.release(**BUDGET, keys=list(range(40))).to_document()
    (law,) = document.header["receipts"][0]["laws"]
    FORGERIES[forgery](law)
    with pytest.raises(FileRefused):
        dps.load(files.encode(document))


@pytest.mark.parametrize("names", [False, True])
def test_a_file_with_another_bound_than_its_tables_come_to_is_refused(names: bool) -> None:
    histogram, _ = filled([12] * 3000, keys=40)
    release = histogram.release(**BUDGET, keys=None if names else list(range(40)))
    document = release.to_document()
    others = [bound for bound in (1, release.bound + 1, 4096, 5000) if bound != release.bound]
    changes: list[dict[str, Any]] = [{"entries__bound": np.array([bound])} for bound in others]
    changes += [{"entries__users": np.zeros(24, np.int64)}, {"entries__spread": np.zeros(127, np.int64)}]
    for change in changes:
        with pytest.raises(FileRefused):
            dps.load(files.encode(replace(document, arrays={**document.arrays, **change})))


STARTS: dict[str, Any] = {
    "counts": lambda: dps.CountSketch(rows=3, width=8, unit=AUTO),
    "distinct": lambda: dps.DistinctSketch(unit=AUTO, buckets=16),
    "continual": lambda: dps.ContinualCountSketch(unit=AUTO, days=4, rows=3, width=8, epsilon=1, delta=0),
}


@pytest.mark.parametrize("kind", STARTS)
def test_other_kinds_say_that_they_need_a_stated_bound(kind: str) -> None:
    with pytest.raises(InvalidInput, match="other kinds choose none: state max_keys=N"):
        STARTS[kind]()


def test_nothing_is_drawn_for_a_chosen_bound_by_what_chooses_none(tmp_path: Path) -> None:
    """Whatever a kind lets pass, the door to noise does not: its guarantee would speak of a choice nobody made."""
    ledger = begun(f"sqlite:///{tmp_path}/ledger.db")
    asked, account = dps.Budget(1.0, 1e-6), Account(ledger, "web")
    for spec, laws in (
        (CountSketchSpec(3, 8, AUTO), CountSketchSpec(3, 8, AUTO).laws(asked)),
        (HistogramSpec(AUTO), (HistogramSpec(dps.per_user(4096)).law(**BUDGET, keys=["a"]),)),
        (HistogramSpec(dps.per_user(4096)), (HistogramSpec(AUTO).law(**BUDGET, keys=["a"]),)),
    ):
        with pytest.raises(ReleaseRefused, match="chosen"):
            Permit.pay(spec, laws, asked, account, note="")
    assert ledger.datasets() == []


HEAVY = dps.per_user("auto", max_weight=1e12)  # noise for one key fits 64 bits, and that for 4096 keys does not


@pytest.mark.parametrize(
    ("unit", "asked", "words"),
    [
        (AUTO, {"names_only": True, **BUDGET}, "publishes no counts"),
        (AUTO, {"rho": 0.1, "keys": [1]}, "a bound that is chosen goes with epsilon="),
        (AUTO, {"epsilon": 1.0, "delta": 0}, "need delta > 0"),
        (AUTO, {"form": "gaussian", **BUDGET}, "needs a stated max_keys="),
        (AUTO, {"form": "rounds", "keys": [1], **BUDGET}, "Laplace or Gaussian"),
        (AUTO, {"form": "gaussian", "keys": [1], "epsilon": 1.0, "delta": 0}, "needs delta > 0 or rho"),
        (HEAVY, {"others": True, "keys": [1], "epsilon": 1.0, "delta": 0}, "64-bit"),
        (HEAVY, {"others": True, "keys": [1], **BUDGET}, "64-bit"),
        (HEAVY, {"others": True, **BUDGET}, "64-bit"),
    ],
    ids=str,
)
def test_what_goes_with_no_choice_is_refused_before_anything_is_charged(
    unit: dps.Unit, asked: dict[str, Any], words: str, tmp_path: Path
) -> None:
    histogram = dps.Histogram(unit=unit, key_type="int")
    histogram.update([1, 2] * 50, users=list(range(100)))
    ledger = begun(f"sqlite:///{tmp_path}/ledger.db")
    with pytest.raises(InvalidInput, match=words):
        histogram.release(**asked, ledger=ledger, dataset="web")
    assert ledger.datasets() == []

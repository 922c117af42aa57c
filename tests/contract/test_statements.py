"""What a release says of itself: what was promised and paid, its number, and what is counted; and what is no budget."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpsketch as dps
from dpsketch import files
from dpsketch.accounting import compose
from dpsketch.answers import answer, describe, top
from dpsketch.cli.query import Forms
from dpsketch.core.drawn import combined
from dpsketch.errors import BudgetExceeded, FileRefused, InvalidInput
from dpsketch.kinds import load
from dpsketch.ledger import Ledger
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.release import NumberRelease
from dpsketch.results import NOISE_ONLY, Estimates
from dpsketch.sketches.kinds import KINDS
from sensitive import BUDGET, DAILY, LISTS, MERGING, RECORD, ROWS, USER, Row, everything


@pytest.mark.parametrize("row", MERGING, ids=lambda row: row.name)
def test_the_promise_and_the_payment_are_those_of_the_ledger(row: Row, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "budget.db")
    unit = USER if row.name.endswith("user") else RECORD
    ledger.create("data", epsilon=10, delta=1e-5, unit=unit)
    # A small ε: a promise that is restated stands out.
    budget = {"epsilon": 0.7, "delta": 0.0 if row.name.startswith("moment") else 1e-6}
    release = row.filled(0).release(**budget, ledger=ledger, dataset="data")
    [entry] = ledger.history("data")
    again = load(files.encode(release.to_document()))
    for each in (release, again):
        assert each.charge == release.charge
        assert each.charge.digest == entry.digest
        assert each.guarantee == release.guarantee
        assert each.guarantee.costs == entry.costs
        assert each.guarantee.epsilon == pytest.approx(budget["epsilon"], rel=1e-3)
        assert each.guarantee.delta in (0.0, budget["delta"])  # none where the law is pure


@pytest.mark.parametrize("row", MERGING, ids=lambda row: row.name)
def test_two_releases_promise_together_no_less_than_their_costs_come_to(row: Row) -> None:
    """At a δ that their own ones leave room for, or ε₁ + ε₂ at δ₁ + δ₂. With a small ε all of δ is used."""
    first, second = (row.filled(0).release(epsilon=0.1, delta=1e-6).guarantee for _ in range(2))
    both = combined(first, second)
    added = first.epsilon + second.epsilon <= both.epsilon and first.delta + second.delta <= both.delta
    assert compose(first.costs + second.costs, delta=both.delta) <= both.epsilon * (1 + 1e-12) or added


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_spec_says_nothing_of_the_records(row: Row) -> None:
    """Nor whether there are any, of a list or of a typed column; and a type is stated only where keys are asked for."""
    records, given = row.batches[0]
    column, none = pa.array(records), {name: each[:0] for name, each in given.items()}
    typed, empty = row.start(), row.start()
    row.give(typed, column, given)
    row.give(empty, column[:0], none)
    of_typed, of_empty, of_list, of_none = (
        row.publish(sketch).to_document().header["spec"] for sketch in (typed, empty, row.filled(0), row.start())
    )
    assert of_typed == of_empty
    if not row.frames:  # whose columns have types
        assert of_list == of_none
    if KINDS[typed.kind].answers == ("statement",):
        assert of_typed == of_none


ONE = dps.per_record()
PURE = {"epsilon": 0.7, "delta": 0.0}


def numbers() -> list[Any]:
    distinct, exact = dps.DistinctSketch(buckets=64, unit=ONE), dps.DistinctSet(unit=ONE)
    moment = dps.MomentSketch(p=0.5, size=200, unit=ONE)
    for sketch in (distinct, exact, moment):
        sketch.update(range(500))
    return [distinct.release_mergeable(epsilon=0.7), *(each.release(**PURE) for each in (distinct, exact, moment))]


def test_a_number_is_told_as_it_is_asked() -> None:
    """At the confidence of the question, its ends in order, and over its picture what was promised."""
    for release in numbers():
        assert isinstance(release, NumberRelease)
        for confidence in (0.5, 0.95, 0.99):
            told = release.answer([], confidence=confidence, estimator=None, key_type=None)
            assert (told.low[0], told.high[0]) == release.interval(confidence)
            np.testing.assert_array_equal(told.value, [release.value])
            assert told.confidence == confidence
        assert (release.low, release.high) == release.interval(0.95)
        assert release.low <= release.value <= release.high
        title = release.plot().axes[0].get_title(loc="left")
        promise = f"ε = {release.guarantee.epsilon:.4g}, δ = {release.guarantee.delta:.3g}"
        assert title == f"{promise}\nCounted: {release.counts}"


def test_an_interval_at_almost_all_confidence_is_wide_and_a_number() -> None:
    """At the largest confidence below 1: half of what is left over is no longer seen beside 1."""
    kernel, keys = dps.kernels.Euclidean(dim=1, bandwidth=2.0), np.arange(64)
    counts, ranges = dps.CountSketch(rows=3, width=64, unit=ONE), dps.RangeSketch(bits=6, unit=ONE)
    density = dps.DensitySketch(kernel=kernel, rows=50, width=32, unit=ONE)
    for sketch, records in ((counts, keys), (ranges, keys), (density, keys[:, None].astype(float))):
        sketch.update(records)
    told, spread, near = (sketch.release(**PURE) for sketch in (counts, ranges, density))
    intervals = [release.interval for release in numbers()] + [
        lambda confidence: told.estimate(keys, confidence=confidence),
        lambda confidence: told.decode(keys, confidence=confidence),
        lambda confidence: spread.range(3, 40, confidence=confidence),
        lambda confidence: near.estimate(np.array([[3.0]]), confidence=confidence),
    ]
    for interval in intervals:
        wide, usual = interval(1 - 2**-53), interval(0.95)
        ends, inner = (each if isinstance(each, tuple) else (each.low, each.high) for each in (wide, usual))
        assert not np.isnan(ends).any()
        assert (np.array(ends[0]) <= np.array(inner[0])).all()
        assert (np.array(ends[1]) >= np.array(inner[1])).all()


REFUSED = [
    ({"epsilon": 0, "delta": 1e-6}, "epsilon must be positive and finite"),
    ({"epsilon": -1.0, "delta": 0}, "epsilon must be positive and finite"),
    ({"epsilon": np.inf, "delta": 0}, "epsilon must be positive and finite"),
    ({"epsilon": np.nan, "delta": 0}, "not NaN"),
    ({"epsilon": 1.0, "delta": 1.0}, "delta must be at least 0 and below 1"),
    ({"epsilon": 1.0, "delta": -1e-6}, "delta must be at least 0 and below 1"),
    ({"epsilon": 1.0}, "say delta="),
    ({}, "needs a budget"),
    ({"rho": 0.0}, "rho must be positive"),
    ({"rho": 0.1, "epsilon": 1.0}, "not both"),
]


@pytest.mark.parametrize("row", MERGING, ids=lambda row: row.name)
def test_what_no_budget_pays_for_is_refused(row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what a ledger has no budget for; nothing is drawn before."""
    sketch = row.filled(0)
    before = everything(sketch)
    for law in (RoundedGaussian, DiscreteLaplace):
        monkeypatch.setattr(law, "sample", lambda *_: pytest.fail("noise was drawn"))
    for budget, words in REFUSED:
        with pytest.raises(InvalidInput, match=words):
            sketch.release(**budget)
    ledger = dps.Ledger(tmp_path / "budget.db")
    ledger.create("web", epsilon=0.5, delta=1e-6, unit=sketch.spec.unit)
    with pytest.raises(BudgetExceeded):
        sketch.release(**BUDGET, ledger=ledger, dataset="web")
    assert everything(sketch) == before


@pytest.mark.parametrize("row", MERGING, ids=lambda row: row.name)
def test_a_large_delta_comes_with_a_warning(row: Row) -> None:
    """Wherever the promise has it: a kind that turns the budget into a pure ε has no δ to warn about."""
    for delta, large in ((0.1, True), (1e-6, False)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            released = row.filled(0).release(epsilon=1.0, delta=delta)
        first = released if hasattr(released, "guarantee") else released[0]
        warned = [str(each.message) for each in said if str(each.message).startswith("δ = ")]
        assert bool(warned) is (large and first.guarantee.delta > 0), warned


@pytest.mark.parametrize("kind", [partial(dps.ContinualCountSketch, days=4), dps.PanPrivateCountSketch])
def test_it_is_refused_at_the_start_where_it_is_charged_there(kind: Any) -> None:
    for budget, words in REFUSED:
        with pytest.raises(InvalidInput, match=words):
            kind(rows=3, width=8, unit=ONE, key_type="int", **budget)


# The columns of a table count different things, and each has words of its own.
USERS = [row for row in ROWS if row.name.endswith("user") and not row.frames]
WEIGHED = [row for row in ROWS if row.name.endswith("record") and not row.frames]
QUESTIONS: dict[str, list[Any]] = {
    "histogram": ["key 3"], "counts": ["key 3"], "heavy": [3], "sparse": [3],
    "ranges": ["1:9"], "quantiles": ["50%"], "density": ["1,2"],
}  # fmt: skip


def loaded(release: Any, folder: Path) -> Any:
    """Return the release as a reader of its file has it."""
    release.save(folder / "it.dps")
    return dps.load(folder / "it.dps")


def answers_of(release: Any) -> Iterator[Estimates]:
    """Ask a release by whatever words its kind takes."""
    if release.kind != "histogram-votes":  # it refuses keys that it does not name
        yield answer(release, QUESTIONS.get(release.kind, []), 0.95, None)
    if release.kind in ("histogram", "histogram-votes"):
        yield top(release, 5, None, 0.95)


def words_in(figure: Any) -> str:
    [axes, *_] = figure.axes
    return f"{axes.get_title(loc='left')} {axes.get_xlabel()} {axes.get_ylabel()}"


@pytest.mark.parametrize("row", USERS, ids=lambda row: row.name)
def test_answers_about_users_say_clipped_next_to_the_number(row: Row, tmp_path: Path, capsys: Any) -> None:
    release = loaded(row.publish(row.filled(0, 1, 2)), tmp_path)
    assert "users, clipped: at most" in release.counts
    assert describe(release, 1)["counts"] == release.counts
    shown = list(answers_of(release))
    assert shown
    for found in shown:
        assert found.counts == release.counts
        assert found.heading == "clipped estimate"
        for text in (repr(found), found._repr_html_(), found.to_markdown()):
            assert "clipped" in text
        assert "clipped" in found.to_arrow().schema.metadata[b"counts"].decode()
        Forms().show(found, release.guarantee, ())
        assert "clipped" in capsys.readouterr().out
        assert "clipped" in words_in(found.plot())
    try:
        picture = release.plot()
    except InvalidInput:  # a density of some features has none
        return
    assert "clipped" in words_in(picture)


@pytest.mark.parametrize("row", WEIGHED, ids=lambda row: row.name)
def test_answers_about_records_say_clipped_where_weights_are(row: Row) -> None:
    release = row.publish(row.filled(0))
    assert ("clipped" in release.counts) == (release.spec.unit.max_weight != 1)


@pytest.mark.parametrize("kind", DAILY)
def test_sums_of_days_count_user_days(kind: str, tmp_path: Path) -> None:
    start, keys = DAILY[kind]
    more = {"keys": [1, 2]} if kind == "histogram" else LISTS.get(kind, {})
    stream = dps.ContinualSketch(start(dps.per_user(max_keys=2)), days=4, user_days=3, **BUDGET, **more)
    for _ in range(2):
        stream.update(keys, **({} if kind == "table" else {"users": ["ann", "bob"]}))
        stream.publish_day()
    series = loaded(stream.series(), tmp_path)
    window = loaded(series.between(1, 2), tmp_path)
    bound = "; a user counts in" if kind == "table" else ", clipped:"
    for release in (series, window):
        assert release.counts.startswith(f"user-days (a user counts again on every day){bound} at most 2 ")
        assert describe(release, 1)["counts"] == release.counts
    question = series.question({"ranges": "1:3", "density": "1,2"}.get(kind, 1))
    change = series.change(question, (2, 2), (1, 1))
    assert change.note == NOISE_ONLY
    for found in (series.curve(question), stream.curve(question), change, window.ask(question, 0.95)):
        assert found.counts == series.counts
    assert "user-days" in words_in(series.plot(question))
    document = series.to_document()
    del document.header["guarantee"]["counted_again"]
    with pytest.raises(FileRefused):
        type(series).from_document(document)


def test_two_releases_together_count_users_of_each() -> None:
    sketch = dps.CountSketch(rows=3, width=16, unit=dps.per_user(max_keys=2), key_type="int")
    both = sketch.release(**BUDGET) + sketch.release(**BUDGET)
    assert both.estimate([1]).counts.startswith("users of each release (a user in both counts in each), clipped")

"""A stream whose state is seized once, in exact arithmetic up to 1e-12: the adaptive game over three days.

The stream itself is run. Its permit draws nothing: each cell of its tables is one outcome of all draws, so that every
outcome is enumerated, with its probability, and what is seen (three publications and, at one moment, the whole state)
has its exact law in either world. The adversary chooses the days' tables, the record's day, and whether it comes before
or after the seizure, by what was published before.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.special import ndtr

import dpsketch as dps
from dpsketch.core.move import Move
from dpsketch.core.move import Table as Counted
from dpsketch.errors import FileRefused, InvalidInput, SensitiveData
from dpsketch.laws.designs import Contribution, PanPrivate
from dpsketch.laws.streams import PUBLICATIONS, STATE, Seizable
from dpsketch.noise import RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.sketches.continual.folder import StreamFolder
from dpsketch.sketches.continual.stream import SeizableStream

MU, DAYS = 4.0, 3
EPSILONS = [1.0, 6.0, 10.0]
DESIGN = PanPrivate((2, 1))
RECORD = Contribution(Move.each(1, 1).between("add_remove"))
Table = np.ndarray


def promised(epsilon: float, mu: float = MU) -> float:
    return float(ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2))


def law(sigma: float) -> tuple[Table, Table]:
    """The outcomes of a rounded Gaussian, and their probabilities; of σ = 0, nothing."""
    reach = math.ceil(7 * sigma)  # and half a step: what is left out is below 1e-13
    outcomes = np.arange(-reach, reach + 1)
    if not sigma:
        return outcomes, np.ones(1)
    return outcomes, np.asarray(ndtr((outcomes + 0.5) / sigma) - ndtr((outcomes - 0.5) / sigma))


def twice(one: tuple[Table, Table], other: tuple[Table, Table]) -> tuple[Table, Table]:
    """The law of a sum of two draws."""
    chances = np.convolve(one[1], other[1])
    return np.arange(len(chances)) + one[0][0] + other[0][0], chances


class Enumerated:
    """A permit that adds, instead of a draw, one outcome of it in each cell."""

    def __init__(self, laws: dict[tuple[str, int], tuple[Table, Table]]) -> None:
        grids = np.meshgrid(*[outcomes for outcomes, _ in laws.values()], indexing="ij")
        self.added = {name: grid.ravel() for name, grid in zip(laws, grids, strict=True)}
        chances = np.ones(1)
        for _, each in laws.values():
            chances = np.outer(chances, each).ravel()
        self.chances = chances
        counted = Counted("cells", chances.shape, Move.each(1, 1))
        self.laws = (Seizable((counted,), (1,), "add_remove", RoundedGaussian(1.0), DESIGN, DAYS),)

    def draw(self, law: Seizable, pieces: list[tuple[str, int, Table]]) -> dict[str, Table]:
        return {str(i): table + self.added.get((slot, piece), 0) for i, (slot, piece, table) in enumerate(pieces)}


class Game(NamedTuple):
    """When the state is seized, what is on each day, and when the record comes; by what was published before."""

    day: int  # seized on this day, counted from 1
    evening: bool  # after it was published, rather than in its middle
    others: Callable[[int, list[Table]], Table]
    own: Callable[[int, bool, list[Table]], Table]  # the record, on a day, before or after noon


def seen(permit: Enumerated, game: Game, present: int) -> Table:
    """All that the adversary sees in one world, a row for each outcome of the draws."""
    stream: Any = SeizableStream(permit)  # type: ignore[arg-type]
    stream.begin()
    shown: list[Table] = []
    nothing = np.zeros(permit.chances.shape, np.int64)
    for day in range(1, DAYS + 1):
        published = list(stream._tables)
        stream.take({"cells": nothing + game.others(day, published)})
        stream.take({"cells": nothing + present * game.own(day, True, published)})
        if game.day == day and not game.evening:
            shown += list(stream.state.copy())
        stream.take({"cells": nothing + present * game.own(day, False, published)})
        stream.end_day({"cells": nothing})
        if game.day == day and game.evening:
            shown += list(stream.state.copy())
    return np.stack([*shown, *stream._tables])


def gained(game: Game, sigmas: tuple[float, float], epsilons: list[float] = EPSILONS) -> list[float]:
    """The exact divergence of the two worlds, the larger of both directions; σ of the state and of what is shown."""
    state, shown = law(sigmas[0]), law(sigmas[1])
    first = game.day + game.evening  # the sums for the days from here on are seen
    laws = {}
    for day in range(1, DAYS + len(DESIGN.bands)):
        visible = first <= day < first + len(DESIGN.bands)
        if visible:
            laws[STATE, day] = state
        if day <= DAYS:
            laws[PUBLICATIONS, day] = shown if visible else twice(state, shown)
    permit = Enumerated(laws)
    worlds = [seen(permit, game, present) for present in (0, 1)]
    both = np.concatenate(worlds, axis=1)
    low = both.min(axis=1, keepdims=True)
    code = np.zeros(both.shape[1], np.int64)
    for row, start in zip(both, low, strict=True):
        code = code * (int(row.max() - start[0]) + 1) + (row - start[0])
    _, places = np.unique(code, return_inverse=True)
    size = len(permit.chances)
    masses = [np.bincount(each, permit.chances, places.max() + 1) for each in (places[:size], places[size:])]
    return [
        max(float(np.maximum(one - math.exp(epsilon) * other, 0).sum()) for one, other in (masses, masses[::-1]))
        for epsilon in epsilons
    ]


def sigma_of(unit: Contribution = RECORD) -> float:
    return DESIGN.sensitivity(unit, DAYS).l2 / MU


def by_sign(day: int, published: list[Table]) -> Any:
    """What others add: on the first day nothing, later by the sign of what was last published."""
    return np.where(published[-1] > 0, 2, 0) if published else 0


def on(*places: tuple[int, bool]) -> Callable[[int, bool, list[Table]], Any]:
    """A record on one day, before or after noon; of several, the first if the first publication is above 0."""

    def own(day: int, early: bool, published: list[Table]) -> Any:
        if (day, early) not in places:
            return 0
        if len(places) == 1:
            return 1
        return (published[0] > 0) == ((day, early) == places[0])

    return own


GAMES = [
    pytest.param(Game(1, False, by_sign, on((1, True))), id="seized just after it came"),
    pytest.param(Game(1, False, by_sign, on((1, False))), id="seized just before it came"),
    pytest.param(Game(1, True, by_sign, on((1, True))), id="seized in the evening of its day"),
    pytest.param(Game(2, False, by_sign, on((1, True))), id="seized the day after"),
    pytest.param(Game(2, False, by_sign, on((2, True), (2, False))), id="before or after the seizure, as seen fit"),
    pytest.param(Game(2, True, by_sign, on((2, True), (3, True))), id="before it or on the last day, as seen fit"),
    pytest.param(Game(3, False, by_sign, on((3, True))), id="in sums for days after the last"),
]


@pytest.mark.parametrize("game", GAMES)
def test_no_adversary_who_seizes_the_state_gains_more_than_is_promised(game: Game) -> None:
    sigma = sigma_of()
    for epsilon, delta in zip(EPSILONS, gained(game, (sigma, sigma)), strict=True):
        assert delta <= promised(epsilon) + 1e-12


@pytest.mark.parametrize(("before", "sigmas"), [(True, (0.9, 1.0)), (False, (1.0, 0.9))])
def test_a_tenth_less_of_either_noise_is_seen(before: bool, sigmas: tuple[float, float]) -> None:
    """Power: the state's noise hides who came before, the publications' who came after; the bound is nearly reached."""
    sigma, game = sigma_of(), Game(1, False, lambda *_: 0, on((1, before)))
    short = (sigmas[0] * sigma, sigmas[1] * sigma)
    (honest,), (less,) = (gained(game, each, epsilons=[6.0]) for each in ((sigma, sigma), short))
    assert 0.7 * promised(6.0) < honest <= promised(6.0) < less


def test_a_record_before_the_seizure_that_is_replaced_by_one_after_it() -> None:
    """Both noises are moved, by S each: √2·S, for which a replaced record pays even where nothing counts downwards."""
    unit = Contribution(Move.each(1, 1).between("replace"))

    def own(day: int, early: bool, published: list[Table]) -> int:
        return {(1, True): 1, (2, False): -1}.get((day, early), 0)

    game, sigma = Game(2, False, lambda *_: 1, own), sigma_of(unit)
    (found,) = gained(game, (sigma, sigma), epsilons=[6.0])
    assert 0.5 * promised(6.0) < found <= promised(6.0) + 1e-12
    (unpaid,) = gained(game, (sigma / math.sqrt(2),) * 2, epsilons=[6.0])
    assert unpaid > promised(6.0)


def stream(**given: Any) -> dps.ContinualSketch:
    options: dict[str, Any] = {"days": 5, "epsilon": 1.0, "delta": 1e-6, "design": "pan-private", **given}
    return dps.ContinualSketch(dps.Histogram(unit=dps.per_record(), key_type="text"), keys=["a", "b"], **options)


def counts(**given: Any) -> dps.ContinualSketch:
    shape: dict[str, Any] = {"rows": 3, "width": 4, "unit": dps.per_record(), "key_type": "text"}
    return dps.ContinualCountSketch(**shape, days=5, epsilon=1.0, delta=1e-6, **{"design": "pan-private", **given})


@pytest.mark.parametrize("start", [stream, counts])
def test_a_state_shows_its_noisy_sums_and_nothing_else_of_the_records(start: Any) -> None:
    """Of a stream of many records and nulls, and of one without any, files differ in the sums alone."""
    documents = []
    for busy in (False, True):
        with seeded_noise_for_tests_only(17):
            sketch = start()
            for day in range(3):
                if busy:
                    sketch.update(["a", None, "b"] * (day + 2), counts=[5] * 3 * (day + 2))
                sketch.publish_day()
            if busy:
                sketch.update(["b", "c"])
                sketch.update(["a", "b", "a"], weights=[1, None, None])
            documents.append(sketch._to_document())
            assert (sketch.skipped_nulls, sketch.dropped_records, len(sketch.partial_ids)) == (0, 0, 1)
            assert not sketch._today._begun
    idle, busy_one = documents
    assert set(idle.arrays) == set(busy_one.arrays)
    for name, array in idle.arrays.items():
        if name not in ("state", "published", "today_partials"):  # ids are random
            assert np.array_equal(np.asarray(array), np.asarray(busy_one.arrays[name])), name
        assert np.shape(array) == np.shape(busy_one.arrays[name])
    assert idle.header == busy_one.header


KILLED = """
import os, pathlib, sys
from dpsketch.sketches.continual.folder import StreamFolder
folder = StreamFolder(sys.argv[1])
sketch = folder.load()
sketch.update(["a"] * 7)
pathlib.Path.replace = lambda *_: os._exit(9)
folder.publish(sketch)
"""


def test_killed_while_it_writes_no_second_state_is_left(tmp_path: Path) -> None:
    """The two would differ by the records of a day, exactly: the same noise is under both."""
    folder = StreamFolder(tmp_path)
    folder.begin(stream())
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False).returncode == 9
    assert len(list(tmp_path.glob("*.tmp"))) == 1
    StreamFolder(tmp_path).load()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stream.lock", "stream.sketch"]


@pytest.mark.parametrize("design", [None, "pan-private"])
def test_no_part_is_merged_twice_by_a_copy_or_within_another(design: Any) -> None:
    """A state that may be seized remembers what it merged, as one that may not be."""
    sketch = stream(design=design)
    part, other = sketch.empty_day(), sketch.empty_day()
    part.update(["a"])
    other.merge(part)
    twin = type(part).from_sensitive_bytes(part.to_sensitive_bytes())
    sketch.merge_today(other)
    for again in (part, twin):
        with pytest.raises(InvalidInput, match="already in the sketch"):
            sketch.merge_today(again)
    sketch.publish_day()
    with pytest.raises(InvalidInput, match="already in the sketch"):
        dps.ContinualSketch.from_sensitive_bytes(sketch.to_sensitive_bytes()).merge_today(twin)


def test_what_a_state_that_may_be_seized_cannot_do() -> None:
    with pytest.raises(InvalidInput, match="protects records"):
        dps.ContinualSketch(
            dps.Histogram(unit=dps.per_user(max_keys=1), key_type="text"), keys=["a"], days=5, user_days=1,
            epsilon=1.0, delta=1e-6, design="pan-private",
        )  # fmt: skip
    with pytest.raises(InvalidInput, match="protects records"):
        dps.PanPrivateCountSketch(rows=3, width=8, unit=dps.per_user(2), epsilon=1.0, delta=0, key_type="int")
    with pytest.raises(SensitiveData):
        counts(design="tree").snapshot()
    found = dps.Histogram(unit=dps.per_record(), key_type="text")
    with pytest.raises(InvalidInput, match="may be seized, which would show them"):
        dps.ContinualSketch(found, days=5, epsilon=1.0, delta=1e-6, design="pan-private")
    with pytest.raises(InvalidInput, match="delta > 0"):
        stream(delta=0.0)
    assert "a second state is not covered" in str(stream().guarantee.caveat)
    document = stream()._to_document()
    document.header["receipt"]["laws"][0]["noise"]["sigma"] *= 0.99
    with pytest.raises(FileRefused, match="guarantee"):
        dps.ContinualSketch.from_document(document)

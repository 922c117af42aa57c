"""Densities and classifiers as the table sees them: points in the place of keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch import kernels
from dpsketch.audit.shown import SEED, Records, Release, Shown, columns_of, mu_of, released, shown
from dpsketch.core.account import Account
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.density import DensityClassifier, DensitySketch
from dpsketch.sketches.density.class_densities import centre_table
from dpsketch.sketches.density.class_partial import ClassPartial
from dpsketch.sketches.density.class_spec import ClassSpec, Extras
from dpsketch.sketches.density.class_sums import Corrections, PrivateClassSums
from dpsketch.sketches.density.class_waves import Waves
from dpsketch.sketches.density.embedding import EmbeddingMap

__all__ = ["centre", "classifier", "density", "one_row", "parts", "passes", "sums", "vectors", "waves"]


def density(unit: Unit, records: Records) -> Release:
    """Points that share their cells four by four."""
    kernel = kernels.Euclidean(dim=1, bandwidth=1.0)
    sketch = DensitySketch(kernel=kernel, rows=3, width=16, unit=unit, seed=SEED)
    keys, given = columns_of(unit, records, weighted=False)
    sketch.update([[np.nan if key is None else 7.3 * (key // 4) + 1e-3 * (key % 4)] for key in keys], **given)
    return _summed(sketch)


def waves(unit: Unit, records: Records) -> Release:
    """Two waves, and points where both have turned by half: a record adds its bound, and another's may oppose it."""
    kernel = kernels.Gaussian(dim=1, bandwidth=1.0)
    sketch = DensitySketch(kernel=kernel, rows=2, unit=unit, seed=SEED, features="fourier")
    mapped = sketch.spec.feature_map
    assert mapped is not None
    one, other = (float(each) for each in mapped.matrix[0])
    odd = 2 * np.arange(2000) + 1
    half = float(odd[np.argmin(np.abs(odd * other / one % 2 - 1))]) / one
    keys, given = columns_of(unit, records, weighted=False)
    points = [[np.nan] if key is None else [half * (key // 8 % 2) + 1e-6 * key] for key in keys]
    sketch.update(points, **given)
    return _summed(sketch)


def vectors(unit: Unit, records: Records) -> Release:
    """Vectors of length 1, of which every other eight point back: a replaced one turns round."""
    sketch = DensitySketch(kernel=kernels.Linear(dim=2), unit=unit, seed=SEED)
    keys, given = columns_of(unit, records, weighted=False)
    points = [[np.nan, 0.0] if key is None else [(-1.0) ** (key // 8), 1e-6 * key] for key in keys]
    sketch.update(points, **given)
    return _summed(sketch)


def _summed(sketch: DensitySketch) -> Release:
    return released(sketch, lambda made: [(made.table, made.noise), (made.noisy_count, made.count_noise)])


def one_row(unit: Unit, records: Records) -> Release:
    """One row is drawn for each point. Outputs in which all rows speak for a point show it as the drawn one does."""
    kernel = kernels.Euclidean(dim=1, bandwidth=1.0)
    sketch = DensitySketch(kernel=kernel, rows=3, width=64, unit=unit, seed=SEED, placement="one_row")
    keys, given = columns_of(unit, records, weighted=False)
    sketch.update([[np.nan if key is None else 170.0 * key] for key in keys], **given)  # hardly two in a cell
    return released(sketch, lambda made: [(made.table, made.noise)], count_share=0)


def _angles(records: Records) -> tuple[npt.NDArray[np.float64], list[int]]:
    """Return points on a circle and their classes: four by four they share their class and most of their cells."""
    held = np.array([key for key, _, _ in records if key is not None], np.int64)
    angles = held // 4 * (8 * np.pi / 40) + held % 4 * 1e-3
    return np.column_stack([np.cos(angles), np.sin(angles)]), (held // 4 % 2).tolist()


def classifier(unit: Unit, records: Records) -> Release:
    """Fit two classes around a public centre: the tables of both."""

    def fit(asked: Any) -> Shown:
        made = DensityClassifier(
            **asked, bounds=(-1, 1), classes=[0, 1], kernel="angular", rows=3, power=4, centre="middle", unit=unit,
            seed=SEED,
        )  # fmt: skip
        _fitted(made, *_angles(records), unit, records)
        return shown(made.guarantee_, *((density.table, density.noise) for density in made.densities_))

    return fit


def sums(unit: Unit, records: Records) -> Release:
    """Fit two classes by the sums of their vectors."""

    def fit(asked: Any) -> Shown:
        made = DensityClassifier(**asked, classes=[0, 1], kernel="linear", unit=unit, seed=SEED)
        _fitted(made, *_angles(records), unit, records)
        return _parts_of(made.sums_)

    return fit


def parts(unit: Unit, records: Records) -> Release:
    """Sum two classes along public directions, with all that goes beside their sums: six pairs of waves tell enough."""
    circle = np.linspace(0, 2 * np.pi, 10, endpoint=False)
    shape = EmbeddingMap.fitted(np.column_stack([np.cos(circle), np.sin(circle)]), 2, 2)
    spec = ClassSpec((0, 1), unit, shape.spec, Extras(0.1, Waves(2, 6, SEED, 0.5)), SEED)
    held = ClassPartial.measuring(spec, shape)
    vectors, labels = _angles(records)
    owners = [user for key, user, _ in records if key is not None]
    held.update(vectors, np.array(labels, np.intp), owners if unit.level == "user" else None)
    return lambda asked: _parts_of(held.release(Budget(**asked), Account()))


def passes(unit: Unit, records: Records) -> Release:
    """Sum two classes, and correct them twice, among four hundred others who are all told apart and correct nothing.

    Whatever noise the sums have, a record that lies among the other class has all of its residual, and one among its
    own has none: what is corrected does not change with the draws of earlier parts.
    """
    crowd = np.repeat([[1.0, 0.0], [-1.0, 0.0]], 200, axis=0)
    held = [key for key, _, _ in records if key is not None]
    angles = np.array([1e-3 * (key % 8) + np.pi * (key // 8 % 2) for key in held])
    vectors = np.concatenate([crowd, np.column_stack([np.cos(angles), np.sin(angles)])])
    codes = np.array([0] * 200 + [1] * 200 + [key // 16 % 2 for key in held], np.intp)
    owners = [f"other {i}" for i in range(400)] + [user for key, user, _ in records if key is not None]
    shape = EmbeddingMap(2)
    partial = ClassPartial.measuring(ClassSpec((0, 1), unit, shape.spec, Extras(passes=3), SEED), shape)
    chosen = partial.update(vectors, codes, owners if unit.level == "user" else None)
    read = vectors[chosen], codes[chosen]
    return lambda asked: _parts_of(partial.release(Budget(**asked), Account(), read))


def _parts_of(released: PrivateClassSums) -> Shown:
    """Show all tables of a release by class sums; the corrections have the noise of all later passes."""
    tables, spreads = [], []
    for part in released.drawn.parts.values():
        if "table" in part.arrays:
            tables.append(np.ravel(part.arrays["table"]).astype(np.float64))
            law: Any = part.law
            laws = law.passes if isinstance(law, Corrections) else (law,)
            spreads.append((tables[-1].size, math.sqrt(sum(each.noise.variance for each in laws))))
    return Shown(np.concatenate(tables), released.drawn.guarantee, spreads)


def centre(unit: Unit, records: Records) -> Release:
    """Fit with nearly all of the budget for the private centre, among a thousand others, and show it.

    Where a unit is added, the centre tells all that its sums and its number do if their mean is a quarter of the way to
    the other side; where it is replaced, if it is in the middle. It is a ratio, of noise that is small against either.
    """
    mean, others, share = (0.08 if unit.neighbours == "replace" else -0.25), 1000, 0.98

    def fit(asked: Any) -> Shown:
        made = DensityClassifier(
            **asked, bounds=(-1, 1), classes=[0, 1], rows=2, power=1, centre_share=share, unit=unit, seed=SEED
        )
        held = [key for key, _, _ in records if key is not None]
        corners = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
        points = np.array([corners[key // 8 % 4] * (1 - 1e-3 * (key % 8)) for key in held]).reshape(-1, 2)
        # No two of the others are the same, and each is a user.
        crowd = np.full((others, 2), mean) + np.linspace(-1e-3, 1e-3, others)[:, None]
        owned: Records = [(0, f"other {i}", 1.0) for i in range(others)]
        _fitted(made, np.concatenate([crowd, points]), [0] * (others + len(held)), unit, owned + records)
        # Sums are in steps of 2⁻¹⁰, and the number in steps of 1/724; what the number is off moves the mean as well.
        drawn = centre_table(unit, 2).between(unit.neighbours).l2 / mu_of(asked) / math.sqrt(share)
        spread = 1e6 / others * drawn * math.hypot(1 / 1024, mean / 724)
        return Shown(1e6 * made.centre_, made.guarantee_, [(2, spread)])

    return fit


def _fitted(made: DensityClassifier, points: Any, labels: list[int], unit: Unit, records: Records) -> None:
    owners = [user for key, user, _ in records if key is not None]
    made.fit(points, labels, users=owners if unit.level == "user" else None)

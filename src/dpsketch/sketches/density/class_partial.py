"""The sensitive side of a classifier by class sums: batches come in, partials merge, and one release goes out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch._compiled.vectors import add_rows
from dpsketch.arrays import Floats, Integers
from dpsketch.bounding import CountedUsers
from dpsketch.core.account import Account
from dpsketch.core.drawn import Part
from dpsketch.core.laws import Additive
from dpsketch.core.permit import Permit
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.density.class_spec import COARSE, MOMENTS, SIZES, SUMS, WAVES, ClassSpec, triangle_weights
from dpsketch.sketches.density.class_sums import (
    CORRECTIONS,
    MAP,
    Corrections,
    PrivateClassSums,
    PublicMap,
    class_directions,
    fitting_step,
    residual_sums,
)
from dpsketch.sketches.density.embedding import STEPS, EmbeddingMap
from dpsketch.sketches.density.points import VectorBatch
from dpsketch.sketches.density.sketch import bounded_points
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.sketch import Sketch
from dpsketch.sketches.weights import checked_total

__all__ = ["ClassPartial", "chosen_records"]

Codes = npt.NDArray[np.intp]


class ClassPartial(Sketch[ClassSpec, PrivateClassSums]):
    """Sums of vectors by class, of some of the records. Sensitive."""

    kind: ClassVar[str] = "classes"
    spec_type: ClassVar[Any] = ClassSpec

    _shape: EmbeddingMap

    @classmethod
    def measuring(cls, spec: ClassSpec, shape: EmbeddingMap) -> Self:
        """Start an empty partial, of which the spec has the map's sizes and digest only."""
        sketch = cls.from_spec(spec)
        sketch._shape = _fitting(spec, shape)
        return sketch

    def _start(self, spec: ClassSpec) -> None:
        super()._start(spec)
        self.caveat: str | None = None  # what a guarantee has to say of the list of classes

    def empty_like(self) -> Self:
        """Start an empty partial that will merge with this one."""
        return type(self).measuring(self._spec, self._shape)

    def update(self, points: Floats, codes: Codes, users: Any = None) -> Codes:  # type: ignore[override]
        """Add records by their points and classes. Return which of them count: a later pass reads the same."""
        chosen, counted = chosen_records(self._spec.unit, self._spec.seed, points, codes, users, self._counted)
        mass = checked_total(self._mass, self._spec.steps, 1, len(chosen))
        vectors = self._spec.vectors(points[chosen])
        self._begin_change()
        self._counted, self._mass = counted, mass
        self._add_vectors(vectors, codes[chosen])
        return chosen

    def _add_vectors(self, points: Floats, codes: Codes) -> None:
        tables, waves = self._arrays, self._spec.extras.waves
        for chosen, vectors in self._shape.chunks(points):
            add_rows(tables[SUMS], codes[chosen], vectors)
            if waves is not None and WAVES in tables:
                waves.add(tables[WAVES], codes[chosen], vectors / STEPS)
        if MOMENTS in tables:
            triangle, weights = triangle_weights(self._shape.kept)
            tables[MOMENTS] += weights * _second_moments(self._shape, points)[triangle]
            tables[SIZES] += np.bincount(codes, minlength=len(tables[SIZES]))

    def _absorb(self, other: Self) -> None:
        super()._absorb(other)
        self.caveat = self.caveat or other.caveat

    def release(  # type: ignore[override]
        self, budget: Budget, account: Account, again: tuple[Floats, Codes] | None = None
    ) -> PrivateClassSums:
        """Charge the budget, draw what may be published, and return it.

        ``again`` are the points and classes of all records that count, for later passes.
        """
        spec = self._spec
        if again is None and spec.extras.passes > 1:
            raise InvalidInput("passes= goes with fit(), which has all records at once; nothing was charged.")
        note = f"density classifier, linear in {spec.measured.kept} dimensions"
        permit = Permit.pay(spec, spec.laws(budget), budget, account, note=note)
        arrays = {law.name: permit.draw(law, self._arrays) for law in permit.laws if law.name in self._arrays}
        later = tuple(law for law in permit.laws if law.name not in arrays and isinstance(law, Additive))
        parts: dict[str, Part] = {}
        if again is not None and later:
            vectors, codes = spec.vectors(again[0]), again[1]
            first = next(law for law in permit.laws if isinstance(law, Additive))
            sums, deviation = cast(Integers, arrays[SUMS]["table"]), math.sqrt(first.noise.variance) / STEPS
            step, total = fitting_step(sums, deviation), None
            for law in later:
                directions = class_directions(sums, deviation, total, step)
                arrays[law.name] = permit.draw(law, {law.name: residual_sums(self._shape, vectors, codes, directions)})
                noisy = cast(Integers, arrays[law.name]["table"])
                total = noisy if total is None else total + noisy
            parts[CORRECTIONS] = Part(Corrections(later, step), {"table": cast(Integers, total)})
        if self._shape.mean is not None and self._shape.directions is not None:
            parts[MAP] = Part(PublicMap(), {"mean": self._shape.mean, "directions": self._shape.directions})
        drawn = permit.drawn(caveat=self.caveat)
        own = {name: part for name, part in drawn.parts.items() if name in self._arrays}
        return PrivateClassSums(spec, replace(drawn, parts=own | parts))

    def _header(self) -> dict[str, Any]:
        return {"caveat": self.caveat}

    def _stored_arrays(self) -> dict[str, files.Array]:
        if self._shape.mean is None or self._shape.directions is None:
            return self._arrays
        return {**self._arrays, "mean": self._shape.mean, "directions": self._shape.directions}

    def _restore(self, document: files.Document) -> None:
        super()._restore(document)
        measured, arrays = self._spec.measured, {}
        if measured.digest is not None:
            shapes = {"mean": (measured.dim,), "directions": (measured.dim, measured.kept)}
            arrays = {name: integer_array(document, name, shape) for name, shape in shapes.items()}
        self._shape = _fitting(self._spec, EmbeddingMap(measured.dim, **arrays, limit=measured.limit))
        self.caveat = document.header["caveat"]


def _fitting(spec: ClassSpec, shape: EmbeddingMap) -> EmbeddingMap:
    """Return a map whose sizes and digest are those of the spec; refuse another one."""
    if shape.spec != spec.measured:
        raise FileRefused("the file's mean or directions are not those of its spec.")
    return shape


def chosen_records(
    unit: Unit, seed: int, points: Floats, codes: Codes, users: Any, counted: CountedUsers
) -> tuple[Codes, CountedUsers]:
    """Choose the records that count, a user's being bounded over all classes together; and whom was counted after."""
    if unit.level == "record":
        if users is not None:
            raise InvalidInput("this classifier protects records: users= goes with unit=dps.per_user(max_keys=…).")
        return np.arange(len(points)), counted
    keys = VectorBatch(np.column_stack([points, codes]), None, 0).keys()
    chosen, _, counted, _ = bounded_points(unit, seed, keys, users, counted, False)
    return chosen, counted


def _second_moments(shape: EmbeddingMap, points: Floats) -> Integers:
    """Return Σ q qᵀ of vectors in coarse steps. Products of a chunk are exact in doubles."""
    total = np.zeros((shape.kept, shape.kept), np.int64)
    for start in range(0, len(points), 1 << 13):
        coarse = shape.integers(points[start : start + (1 << 13)], COARSE).astype(np.float64)
        total += (coarse.T @ coarse).astype(np.int64)
    return total

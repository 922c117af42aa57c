"""The sensitive side of a classifier by class sums: batches come in, partials merge, and one release goes out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.arrays import Floats
from dpsketch.bounding import CountedUsers
from dpsketch.core.account import Account
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.numbers import hold_whole, real_number, whole_number
from dpsketch.privacy import Budget, Unit
from dpsketch.sketches.base import Accumulator
from dpsketch.sketches.density.class_sums import Extras, HeldSums, PrivateClassSums, calibrate
from dpsketch.sketches.density.class_waves import Waves
from dpsketch.sketches.density.embedding import LARGEST_DIM, STEPS, EmbeddingMap
from dpsketch.sketches.density.points import VectorBatch
from dpsketch.sketches.density.sketch import bounded_points
from dpsketch.sketches.documents import integer_array
from dpsketch.sketches.permit import Permit, obtain
from dpsketch.sketches.weights import checked_total

__all__ = ["ClassPartial", "ClassSpec", "chosen_records", "stored_map"]


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """All that two partials of a classifier must share to merge. Public.

    Attributes
    ----------
    shape : EmbeddingMap
        How vectors are measured.
    labels : tuple of int or str
        The public list of classes.
    unit : Unit
        Whose presence a release hides.
    extras : Extras
        What is counted beside the sums of vectors.
    seed : int
        By which a user's records are chosen.
    """

    shape: EmbeddingMap = field(compare=False)
    labels: tuple[Any, ...]
    unit: Unit
    extras: Extras
    seed: int

    def __post_init__(self) -> None:
        hold_whole(self, "seed")

    def to_json(self) -> dict[str, Any]:
        """Return the spec as JSON-ready values; mean and directions by their digest."""
        parts = [np.zeros(0, np.int64) if part is None else part for part in (self.shape.mean, self.shape.directions)]
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(part, "<i8").tobytes() for part in parts)).hexdigest()
        values = {
            "dim": self.shape.dim,
            "kept": self.shape.kept,
            "limit": self.shape.limit,
            "map": digest,
            "labels": list(self.labels),
            "unit": self.unit.to_json(),
            "moments": self.extras.moments,
            "seed": self.seed,
        }
        if self.extras.waves is not None:  # files without are as they were
            values["waves"] = self.extras.waves.to_json()
        return values

    @property
    def steps(self) -> int:
        """The most steps of a record in a sum."""
        return STEPS if self.extras.waves is None else max(STEPS, self.extras.waves.steps)


class ClassPartial(Accumulator[ClassSpec]):
    """Sums of vectors by class, of some of the records. Sensitive."""

    kind: ClassVar[str] = "classes"

    def _start(self, spec: ClassSpec) -> None:
        self._spec = spec
        self._held = HeldSums.empty(spec.shape, len(spec.labels), spec.extras)
        self._records = 0
        self._skipped = 0
        self._counted = CountedUsers()
        self.caveat: str | None = None  # what a guarantee has to say of the list of classes

    def update(
        self, points: Floats, vectors: Floats, codes: npt.NDArray[np.intp], users: Any = None
    ) -> npt.NDArray[np.intp]:
        """Add records: the points as they came, by which a user's are bounded, their vectors, and their classes.

        Returns which of them count: a later pass reads the same.
        """
        chosen, counted = chosen_records(self._spec.unit, self._spec.seed, points, codes, users, self._counted)
        checked_total(self._records * self._spec.steps, self._spec.steps, 1, len(chosen))
        self._begin_change()
        self._counted = counted
        self._records += len(chosen)
        self._held.add(vectors[chosen], codes[chosen])
        return chosen

    def _check_absorb(self, other: Self) -> None:
        checked_total(self._records * self._spec.steps, other._records * self._spec.steps, 1, 1)

    def _absorb(self, other: Self) -> None:
        self._records += other._records
        self._held.absorb(other._held)
        self.caveat = self.caveat or other.caveat

    def obtain_permit(self, budget: Budget, account: Account) -> Permit:
        """Charge a release, and return the permit to draw it."""
        spec = self._spec
        note = f"density classifier, linear in {spec.shape.kept} dimensions"
        return obtain(calibrate(budget, spec.unit, spec.shape, spec.extras), spec.unit, account, note=note)

    def drawn(self, permit: Permit) -> PrivateClassSums:
        """Draw what may be published."""
        return PrivateClassSums.drawn(self._held, permit)

    def _to_document(self) -> files.Document:
        shape, held = self._spec.shape, self._held
        arrays: dict[str, npt.NDArray[Any] | list[str] | list[bytes]] = {**held.parts}
        more = {"mean": shape.mean, "directions": shape.directions}
        arrays |= {name: array for name, array in more.items() if array is not None}
        header = {"spec": self._spec.to_json(), "records": str(self._records)}
        if self.caveat is not None:
            header["caveat"] = self.caveat
        return files.Document("classes", True, header, arrays)

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        stated = document.header["spec"]
        shape = stored_map(document)
        waves = None if stated.get("waves") is None else Waves.from_json(stated["waves"], shape.kept)
        extras = Extras(real_number("moments", stated["moments"]), waves)
        spec = ClassSpec(shape, tuple(stated["labels"]), Unit.from_json(stated["unit"]), extras, stated["seed"])
        if spec.to_json() != stated:
            raise FileRefused("the file's mean or directions are not those of its spec.")
        sketch = cls.from_spec(spec)
        for name, array in sketch._held.parts.items():
            array[:] = integer_array(document, name, array.shape)
        sketch._records = int(document.header["records"])
        sketch.caveat = document.header.get("caveat")
        return sketch


def chosen_records(
    unit: Unit, seed: int, points: Floats, codes: npt.NDArray[np.intp], users: Any, counted: CountedUsers
) -> tuple[npt.NDArray[np.intp], CountedUsers]:
    """Choose the records that count, a user's being bounded over all classes together; and whom was counted after."""
    if unit.level == "record":
        if users is not None:
            raise InvalidInput("this classifier protects records: users= goes with unit=dps.per_user(max_keys=…).")
        return np.arange(len(points)), counted
    keys = VectorBatch(np.column_stack([points, codes]), None, 0).keys()
    chosen, _, counted, _ = bounded_points(unit, seed, keys, users, counted, False)
    return chosen, counted


def stored_map(document: files.Document) -> EmbeddingMap:
    """Read the map of vectors from a file."""
    stated = document.header["spec"]
    dim, kept = (whole_number(name, stated[name], low=1, high=LARGEST_DIM) for name in ("dim", "kept"))
    if "directions" not in document.arrays:
        if kept != dim:
            raise FileRefused("the file's vectors lose coordinates without directions to measure them along.")
        return EmbeddingMap(dim, limit=stated["limit"])
    mean, directions = integer_array(document, "mean", (dim,)), integer_array(document, "directions", (dim, kept))
    return EmbeddingMap(dim, mean, directions, stated["limit"])

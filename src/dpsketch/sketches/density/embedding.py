"""The public map of embeddings: from vectors to integers of bounded length, each record by itself.

A vector is taken as it is, or less a public mean and along public directions, rescaled to length 1. Inputs, mean and
directions are integers before they are multiplied, and products and sums stay below 2⁵³: matrix products are exact
whatever their order, so that a record's integers do not depend on the batch that it came in.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dpsketch._compiled.vectors import whole_vectors
from dpsketch.arrays import Floats, Integers
from dpsketch.core.codec import stored
from dpsketch.errors import InvalidInput
from dpsketch.numbers import hold_whole, real_number, whole_number
from dpsketch.privacy import Budget, PureCost

__all__ = ["STEPS", "EmbeddingMap", "MapSpec", "embedding_map"]


STEPS = 1 << 16  # of the longest vector
_FINE, _DIRECTION = 1 << 20, 1 << 15
_CHUNK = 1 << 13
_LEAST_DIMS, _DIMS_OF_A_GUESS = 16, 64
_LARGEST_DIM = 1 << 14  # so that sums of products stay below 2⁵³


@stored
@dataclass(frozen=True, slots=True)
class MapSpec:
    """What a file's header says of an :class:`EmbeddingMap`: its sizes, and the digest of its arrays if it has any."""

    dim: int
    kept: int
    limit: int
    digest: str | None

    def __post_init__(self) -> None:
        hold_whole(self, "dim", low=1, high=_LARGEST_DIM)
        hold_whole(self, "kept", low=1, high=self.dim)
        hold_whole(self, "limit", low=0, high=_LARGEST_DIM * STEPS)
        if self.digest is None and self.kept != self.dim:
            raise InvalidInput("vectors that are taken as they are keep all coordinates.")

    @property
    def sizes(self) -> int:
        """The largest sum of a vector's sizes."""
        return self.limit or STEPS * self.kept


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """From vectors to integers. Public.

    Attributes
    ----------
    dim : int
        Coordinates of a vector that comes in.
    mean : numpy.ndarray or None
        What is subtracted, in steps of 2⁻²⁰; None where vectors are taken as they are.
    directions : numpy.ndarray or None
        Along which vectors are measured, dim × kept, in steps of 2⁻¹⁵.
    limit : int
        The largest sum of sizes, for Laplace noise; 0 where there is none.
    """

    dim: int
    mean: Integers | None = None
    directions: Integers | None = None
    limit: int = 0

    def __post_init__(self) -> None:
        whole_number("dim", self.dim, low=1)
        if self.dim > _LARGEST_DIM:
            raise InvalidInput(f"vectors have at most {_LARGEST_DIM:,} coordinates.")
        whole_number("limit", self.limit, low=0, high=_LARGEST_DIM * STEPS)
        # Beyond these sums of products would be rounded, and follow the batch.
        for name, array, most in (("mean", self.mean, _FINE), ("directions", self.directions, _DIRECTION)):
            if array is not None and np.any((array < -most) | (array > most)):
                raise InvalidInput(f"the {name} of vectors lie beyond what vectors of length 1 have.")
        if self.kept > self.dim:
            raise InvalidInput("vectors are measured along at most as many directions as they have coordinates.")

    @classmethod
    def fitted(cls, public: Any, dim: int, kept: int) -> Self:
        """Return the map by the mean and the first principal directions of public vectors."""
        vectors = _public_vectors(public, dim)
        units = _whole(vectors, unit_length=True) / STEPS
        mean = units.mean(axis=0)
        _, directions = np.linalg.eigh(np.atleast_2d(np.cov(units.T)))
        return cls(dim, np.rint(mean * _FINE).astype(np.int64), _stepped(directions[:, ::-1][:, :kept]))

    @classmethod
    def rotated(cls, dim: int, kept: int, seed: int) -> Self:
        """Return the map along random directions, with a limit on the sum of sizes that few vectors meet."""
        normal = np.random.default_rng(seed).normal(size=(dim, dim))
        directions, _ = np.linalg.qr(normal)
        return cls(dim, np.zeros(dim, np.int64), _stepped(directions[:, :kept]), _size_limit(kept))

    @property
    def kept(self) -> int:
        """Coordinates that come out."""
        return self.dim if self.directions is None else self.directions.shape[1]

    @property
    def spec(self) -> MapSpec:
        """Its sizes, and a digest of mean and directions."""
        if self.directions is None or self.mean is None:
            return MapSpec(self.dim, self.kept, self.limit, None)
        parts = (np.ascontiguousarray(part, "<i8").tobytes() for part in (self.mean, self.directions))
        return MapSpec(self.dim, self.kept, self.limit, hashlib.sha256(b"".join(parts)).hexdigest())

    def chunks(self, points: Floats) -> Iterator[tuple[slice, Integers]]:
        """Yield the integers of the points, some at a time."""
        for start in range(0, len(points), _CHUNK):
            chosen = slice(start, min(start + _CHUNK, len(points)))
            yield chosen, self.integers(points[chosen])

    def integers(self, points: Floats, steps: int = STEPS) -> Integers:
        """Return the integers of points: their squares sum to at most steps²."""
        if self.directions is None or self.mean is None:
            return _whole(points, steps, limit=self.limit)
        fine = _whole(points, _FINE) - self.mean
        measured = fine.astype(np.float64) @ self.directions.astype(np.float64)  # exact
        return _whole(measured / (_FINE * _DIRECTION), steps, unit_length=True, limit=self.limit)


def embedding_map(
    dim: int, budget: Budget, classes: int, public: Any, records: float | None, dims: int | None, seed: int
) -> EmbeddingMap:
    """Choose the map for a budget, by public facts alone.

    Gaussian noise in a score does not grow with the dimensions, so vectors are taken as they are, or along half as many
    public directions: what the noise leaves uncertain is a sum's own length, by σ²√(2d). Laplace noise does grow: about
    0.3·ε records of a class for each dimension were best on embeddings of texts.
    """
    kept = None if dims is None else whole_number("dims", dims, low=1, high=dim)
    guess = None if records is None else real_number("expected_records", records)
    if guess is not None and not 0 < guess < math.inf:
        raise InvalidInput("expected_records must be a positive number: a public guess at how many there are.")
    if isinstance(budget.cost, PureCost):
        fitting = _DIMS_OF_A_GUESS if guess is None else round(0.3 * budget.cost.epsilon * guess / classes)
        kept = kept or min(dim, max(_LEAST_DIMS, fitting))
        if public is None:
            return EmbeddingMap.rotated(dim, kept, seed)
        fitted = EmbeddingMap.fitted(public, dim, kept)
        return replace(fitted, limit=_size_limit(kept))
    if public is None:
        if kept is not None:
            raise InvalidInput("dims= goes with public=, or with pure ε: Gaussian noise gains nothing from fewer.")
        return EmbeddingMap(dim)
    return EmbeddingMap.fitted(public, dim, kept or max(1, dim // 2))


def _size_limit(kept: int) -> int:
    """Return a limit on the sum of sizes just above that of a vector of length 1 in a random direction."""
    return math.floor(1.05 * STEPS * math.sqrt(2 * kept / math.pi))


def _public_vectors(public: Any, dim: int) -> Floats:
    """Check public vectors."""
    try:
        vectors = np.asarray(public, dtype=np.float64)
    except (TypeError, ValueError):
        vectors = np.empty(0)  # refused below, without a word of what it holds
    if vectors.ndim != 2 or vectors.shape[1] != dim or len(vectors) < 2 or not np.all(np.isfinite(vectors)):
        raise InvalidInput(f"public= must be two or more vectors of {dim} finite numbers, by the same encoder.")
    return vectors


def _stepped(directions: Floats) -> Integers:
    return np.rint(directions * _DIRECTION).astype(np.int64)


def _whole(points: Floats, steps: int = STEPS, *, unit_length: bool = False, limit: int = 0) -> Integers:
    out = np.empty(points.shape, np.int64)
    whole_vectors(np.ascontiguousarray(points, dtype=np.float64), steps, unit_length, limit, out)
    return out
